"""Expectations over one key that is uniformly distributed on N points: means over these points.

They are exact for n keys drawn with replacement from N points, such as rows of a user's data.  For keys of other
distributions, the N points are a scrambled Sobol sequence (Owen 1995).  Their error is estimated by the scatter of
results over independent scramblings.  The scatter does not show the bias of a smooth function of averages, which is of
the order of the squared error of one scrambling.

Index legend: h head; Q queries; U values of log t; N keys; d features, j one of them.
"""

import math
from collections.abc import Callable

import numpy as np
import scipy
from scipy.special import gammaincinv, logsumexp, ndtri

from simstudy.design.settings.choices import GaussianKeys, Keys, MixtureKeys, SphereKeys, Student
from simstudy.theory.exact.integrals import Factors, Law, Moments, damped
from simstudy.theory.functions import Array, Function
from simstudy.theory.tilting import Heads, key_covariance

# Share of the integrals over t that is neglected at either end of log t.
_TAIL = 1e-10
# Share of moments of estimates that is neglected, relative to moments of Y: two tails for either head.
NEGLECTED = 4 * _TAIL
# At this step, sums over e^{-tS} (tS)^2 are 1 within 3e-9 for every S from 0 to n max K.
_STEP = 0.38
# Most numbers held at once, and most multiplications for the tables of one pair of heads: half a minute.
_NUMBERS, _WORK = 6e7, 3e11
_TABLES = 7

N_RANDOMISATIONS = 16
_SEED = 20240613
_LOG2_FEWEST, _LOG2_MOST = 10, 14
# Most numbers of a randomisation held at once; most multiplications of all randomisations, which take some seconds.
_RANDOM_NUMBERS, _RANDOM_WORK = 2e7, 4e10


class EqualKeysLaw(Law):
    """N equally likely keys (N, d) with means and variances (N,) of Y given each, for heads of any kind."""

    def __init__(
        self, heads: Heads, keys: Array, means: Array, variances: Array, n_keys: int, coarsening: float = 1.0
    ) -> None:
        self._n_keys, self._step = n_keys, coarsening * _STEP
        projected = keys @ heads.projections
        if heads.logits == "dot_product":
            self._log_kernels = heads.projected_queries @ projected.mT / heads.bandwidth**2
        else:
            gaps = heads.projected_queries[:, :, None] - projected[:, None]
            self._log_kernels = -0.5 * np.sum((gaps / heads.bandwidth) ** 2, axis=-1)
        self._law = Moments(*(np.stack([np.ones(len(keys)), means, means**2 + variances]) / len(keys)))

    def n_steps(self) -> int:
        """Return the largest number of values of log t that any head needs."""
        # Counted without making the grids, which would fill the memory for very narrow kernels.
        ranges = [self._range(log_kernel) for heads in self._log_kernels for log_kernel in heads]
        return max(math.ceil((high - low) / self._step) for _, low, high in ranges)

    def too_large(self) -> str:
        """Return why the moments would take too much time or memory, or an empty string."""
        n_heads, _, size = self._log_kernels.shape
        n_steps = self.n_steps()
        if 3 * n_heads * n_steps * size <= _NUMBERS and _TABLES * n_steps**2 * size <= _WORK:
            return ""
        return (
            f"{n_heads} heads at {size} rows and {n_steps} values of log t would take too much time or memory: "
            "too many rows, or kernels too narrow"
        )

    def factors(self, query: int) -> list[Factors]:
        """Return the functions of tK of every head at the N keys."""
        found = []
        for log_kernel in self._log_kernels[:, query]:
            # A trapezoid rule in y, log t = y - e^{y0 - y}.
            y0, low, high = self._range(log_kernel)
            y = np.arange(low, high, self._step)
            bend = np.exp(y0 - y)
            found.append(Factors(damped((y - bend)[:, None] + log_kernel), self._step * (1 + bend)))
        return found

    def moments(self, query: int, *heads: int) -> Moments:
        """Return the moments (N,) of one key, the same for all heads."""
        return self._law

    def _range(self, log_kernel: Array) -> tuple[float, float, float]:
        """Return y0, and the lower and upper end of y."""
        log_mass = logsumexp(log_kernel) - np.log(len(log_kernel))
        y0 = -np.log(self._n_keys) - log_kernel.max() - 1.0
        low = np.log(_TAIL / self._n_keys) - log_mass
        # -log max_i K(X_i) is larger with probability `_TAIL`.
        depth = -np.quantile(log_kernel, _TAIL ** (1 / self._n_keys), method="lower")
        high = depth + np.log(-np.log(_TAIL)) + self._step
        return y0, y0 - np.log(max(y0 - low, 1.0)), high  # less than 1 by rounding alone


def qmc_law(
    heads: Heads, keys: Keys, regression: Function, variance: Function, n_keys: int
) -> tuple[Callable[[int], EqualKeysLaw], str]:
    """Return the distribution of one key as a function of the number of a randomisation; else why there is none."""
    directions = np.concatenate(list(heads.projections), axis=1)

    def law(randomisation: int, log2_points: int) -> EqualKeysLaw:
        rng = np.random.default_rng([_SEED, randomisation])
        n_uniforms = len(directions) + isinstance(keys, Student | MixtureKeys)
        sobol = scipy.stats.qmc.Sobol(n_uniforms, rng=rng)
        # Shifted by half a step of the generator, as 0 has no finite quantile.
        points = keys_at(keys, sobol.random_base2(log2_points) + 2.0**-31, directions)
        return EqualKeysLaw(heads, points, regression(points), variance(points), n_keys)

    n_steps = law(0, _LOG2_FEWEST).n_steps()
    n_heads, n_queries = heads.projected_queries.shape[:2]
    pairs = max(1, n_heads * (n_heads - 1) // 2)
    by_time = _RANDOM_WORK / (N_RANDOMISATIONS * n_queries * pairs * _TABLES * n_steps**2)
    by_memory = _RANDOM_NUMBERS / (3 * n_heads * n_steps)
    log2_points = min(math.floor(np.log2(min(by_time, by_memory))), _LOG2_MOST)
    reason = _heavy_tails(heads, keys, regression, variance)
    if not reason and log2_points < _LOG2_FEWEST:
        reason = (
            f"quasi-Monte Carlo with {n_steps} values of log t and 2^{_LOG2_FEWEST} points would take too long: "
            "kernels too narrow, or too many heads or queries"
        )
    return lambda randomisation: law(randomisation, log2_points), reason


def _heavy_tails(heads: Heads, keys: Keys, regression: Function, variance: Function) -> str:
    """Return why the scatter of a few randomisations would not show the error, or an empty string."""
    if heads.logits == "dot_product" and not isinstance(keys, SphereKeys):
        return "quasi-Monte Carlo misses rare keys that have most of the weight of a dot-product head"
    if isinstance(keys, Student):
        degrees = [2 if each.curvature.any() else int(each.gradient.any()) for each in (regression, variance)]
        # Squares of m^2 and of v must have finite means.
        needed = max(4 * degrees[0], 2 * degrees[1])
        if keys.df <= needed:
            return f"quasi-Monte Carlo errors have no variance unless Student keys have more than {needed} degrees"
    return ""


def keys_at(keys: Keys, uniforms: Array, directions: Array) -> Array:
    """Return keys (N, d) at points of the unit cube, whose first coordinates belong to the directions (d, k)."""
    gaussian, d = isinstance(keys, GaussianKeys), len(directions)
    root = np.linalg.cholesky(key_covariance(keys, d)) if gaussian else np.eye(d)
    # A rotation does not change the distribution of a standard normal vector.
    basis = np.linalg.qr(root.T @ directions, mode="complete")[0]
    normals = ndtri(uniforms[:, -d:]) @ basis.T @ root.T
    match keys:
        case GaussianKeys():
            return normals
        case SphereKeys():
            return keys.radius * normals / np.linalg.norm(normals, axis=1, keepdims=True)
        case Student():
            # Z (df / C)^(1/2) is Student-t, with variance df / (df - 2), if C is chi-square with df degrees of freedom.
            half_chi_square = gammaincinv(keys.df / 2, uniforms[:, 0])
            return normals * np.sqrt((keys.df / 2 - 1) / half_chi_square)[:, None]
        case MixtureKeys():
            centres = keys.separation * np.eye(keys.n_components, d)
            centres -= centres.mean(axis=0)
            return normals + centres[(keys.n_components * uniforms[:, 0]).astype(int)]
    raise TypeError(f"no distribution of keys is known as {keys!r}")
