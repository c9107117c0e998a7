"""Expectations over one key of any distribution by randomised quasi-Monte Carlo.

A scrambled Sobol sequence (Owen 1995) gives N keys that stand for the law of one key.  They are a law themselves: the
integrals over log t are exact for n keys drawn from these N with replacement, and the only error left is that of N
points.  It is seen in how results scatter over independent scramblings; what all of them have in common, the bias of
a smooth function of averages, is of the order of the squared error of one.

Index legend: h head; q query; U values of log t; N points; j feature.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp
from scipy.stats import qmc

from simstudy.design.settings import Keys, SphereKeys, StudentKeys
from simstudy.theory.exact.integrals import Factors, Moments
from simstudy.theory.exact.key_laws import keys_at, n_uniforms
from simstudy.theory.functions import Array, Function
from simstudy.theory.tilting import Heads

N_RANDOMISATIONS = 16
# Part of the integrals over t that is neglected at either end of log t.
_TAIL = 1e-10
# At this step in log t, sums over e^{-tS} (tS)^2 are 1 within 3e-9 for every S.
_STEP = 0.4
# e^{-tK} = 0 beyond.
_LARGE = 100.0
_SEED = 20240613
_LOG2_FEWEST, _LOG2_MOST = 10, 14
# Multiplications in all, which take some seconds; and numbers held at once.
_WORK = 4e10
_NUMBERS = 2e7
_TABLES = 7


class QmcLaw:
    """One key with its response, as seen by heads of any kind: N equally likely keys.

    Parameters
    ----------
    heads : Heads
    keys : (N, d) array
    regression, variance : Function
        Mean and variance of Y given X.
    n_keys : int
    """

    def __init__(self, heads: Heads, keys: Array, regression: Function, variance: Function, n_keys: int) -> None:
        self._n_keys = n_keys
        self._log_kernels = _log_kernels(heads, keys)
        mean = regression(keys) / len(keys)
        square = regression(keys) * mean + variance(keys) / len(keys)
        self._law = Moments(np.full(len(keys), 1 / len(keys)), mean, square)

    def n_steps(self) -> int:
        """Return how many values of log t the heads need at most."""
        ranges = [self._range(log_kernel) for heads in self._log_kernels for log_kernel in heads]
        return int(max(high - low for low, high in ranges) / _STEP) + 1

    def factors(self, query: int) -> list[Factors]:
        """Functions of tK of every head at the N keys."""
        return [self._factors(log_kernel) for log_kernel in self._log_kernels[:, query]]

    def alone(self, query: int, head: int) -> Moments:
        """Law of one key, (N,): the same for every head."""
        return self._law

    def together(
        self, query: int, factors: list[Factors], first: int, second: int
    ) -> tuple[tuple[Factors, Factors], tuple[Moments, Moments], Moments]:
        """Factors of two heads, the law of one key as each sees it and as both see it."""
        return (factors[first], factors[second]), (self._law, self._law), self._law

    def _factors(self, log_kernel: Array) -> Factors:
        log_t = np.arange(*self._range(log_kernel), _STEP)
        z = np.exp(np.minimum(log_t[:, None] + log_kernel, _LARGE))
        left = np.exp(-z)
        first = z * left
        return Factors(1 - left, first, z * first, np.full(len(log_t), _STEP))

    def _range(self, log_kernel: Array) -> tuple[float, float]:
        """Lowest and highest log t for one kernel at the N keys."""
        log_mass = logsumexp(log_kernel) - np.log(len(log_kernel))
        # -log max_i K(X_i) is larger with probability `_TAIL`.
        depth = -np.quantile(log_kernel, _TAIL ** (1 / self._n_keys), method="lower")
        return np.log(_TAIL / self._n_keys) - log_mass, depth + np.log(-np.log(_TAIL)) + _STEP


def qmc_law(
    heads: Heads, keys: Keys, regression: Function, variance: Function, n_keys: int
) -> tuple[Callable[[int], QmcLaw], str]:
    """Return the law of one key as a function of the number of its randomisation; else why there is none."""

    reason = _heavy_tails(heads, keys, regression, variance)

    def law(randomisation: int, log2_points: int) -> QmcLaw:
        points = _points(keys, heads, randomisation, log2_points)
        return QmcLaw(heads, points, regression, variance, n_keys)

    n_steps = law(0, _LOG2_FEWEST).n_steps()
    log2_points = min(_affordable(heads, n_steps), _LOG2_MOST)
    if not reason and log2_points < _LOG2_FEWEST:
        reason = (
            f"quasi-Monte Carlo with {n_steps} values of log t and 2^{_LOG2_FEWEST} points would take too long: "
            "kernels too narrow, or too many heads or queries"
        )
    return lambda randomisation: law(randomisation, log2_points), reason


def _heavy_tails(heads: Heads, keys: Keys, regression: Function, variance: Function) -> str:
    """Say why the scatter of a few randomisations would not show the error, or nothing."""
    if heads.logits == "dot_product" and not isinstance(keys, SphereKeys):
        return "quasi-Monte Carlo misses keys that are rare and have most of the weight of a dot-product head"
    if isinstance(keys, StudentKeys):
        # Squares of m^2 and of v need a mean.
        needed = max(4 * _degree(regression), 2 * _degree(variance))
        if keys.df <= needed:
            return f"quasi-Monte Carlo errors have no variance unless Student keys have more than {needed} degrees"
    return ""


def _degree(function: Function) -> int:
    return 2 if function.curvature.any() else int(function.gradient.any())


def _affordable(heads: Heads, n_steps: int) -> int:
    """Logarithm of the number of points that time and memory allow."""
    n_heads, n_queries = heads.projected_queries.shape[:2]
    pairs = max(1, n_heads * (n_heads - 1) // 2)
    by_time = _WORK / (N_RANDOMISATIONS * n_queries * pairs * _TABLES * n_steps**2)
    by_memory = _NUMBERS / (3 * n_heads * n_steps)
    return int(np.floor(np.log2(min(by_time, by_memory))))


def _points(keys: Keys, heads: Heads, randomisation: int, log2_points: int) -> Array:
    n_features = heads.projections.shape[1]
    sobol = qmc.Sobol(n_uniforms(keys, n_features), rng=np.random.default_rng([_SEED, randomisation]))
    # Half a step of the generator away from 0, which has no quantile.
    uniforms = sobol.random_base2(log2_points) + 2.0**-31
    return keys_at(keys, uniforms, np.concatenate(list(heads.projections), axis=1))


def _log_kernels(heads: Heads, keys: Array) -> Array:
    """Log K of every head and query at every key, (H, Q, N)."""
    projected = keys @ heads.projections
    if heads.logits == "dot_product":
        return heads.projected_queries @ projected.mT / heads.bandwidth**2
    gaps = heads.projected_queries[:, :, None] - projected[:, None]
    return -0.5 * np.sum((gaps / heads.bandwidth) ** 2, axis=-1)
