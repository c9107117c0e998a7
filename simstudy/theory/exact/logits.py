"""Exact finite-n moments of the weights of softmax heads with jointly Gaussian logits.

Without a signal (m = 0), the covariance of two heads is the noise variance times E sum_i w_hi w_gi.  With S the sum of
e^L over keys and 1/S = int_0^inf e^{-tS} dt, this is the integral of :mod:`simstudy.theory.exact.integrals` with m = 0
and v = 1.  Each key has one normal logit for each head, so expectations over a key are sums along two axes.  Tokens
with known logits l_ha, such as attention sinks, add A_h = sum_a e^{l_ha} to S.  This gives a factor e^{-tA} under the
integral and the further term sum_a e^{l_ha + l_ga} E 1/(S_h S_g).

Index legend: h, g head; a, A known tokens; U values of log t; X nodes of the first logit, Y nodes of the second.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import factorial, softmax

from simstudy.arguments import real_array, semidefinite
from simstudy.theory.exact.integrals import damped, power
from simstudy.theory.exact.scalar import ScalarHead, log_grid
from simstudy.theory.functions import Array

# Two step factors.  Convergence is exponential in 1/step, so that their difference exceeds the error of the finer.
_FINE, _COARSE = 1.5, 1.875
# At _FINE, the error of trapezoid sums, a Fourier transform, is exp(-_DECAY).
_DECAY = 18.0
# A logit is more than this many standard deviations from its mean with probability 8e-11.
_EXTENT = 6.5
# Spacings of nodes are rounded down to powers of 2^(1/8), so that heads share nodes and what depends on nodes alone.
_FINENESS = 8
# Share of the integral over log t that is neglected where t is small.
_NEGLIGIBLE = 1e-9
# Largest step in log t at which the doubly exponential rule is as exact as the equally spaced one; and how far below
# the inverse of the mean sum of e^L it begins.
_WIDEST, _BELOW = 0.45, 2.0
# e^-100 is negligible.  Smaller numbers are avoided, as their products would be slow subnormal numbers.
_LARGE = 100.0
# Up to this correlation, the density of two logits is expanded in powers of it (Mehler 1866), with terms summed to
# 1e-9.  Nodes must resolve logits of which the other logit leaves half of the variance unexplained.
_SERIES, _N_TERMS, _SERIES_VARIANCE = 0.7, 60, 0.5
# Where the first logit leaves a smaller share of the variance of the second unexplained, the second is integrated over
# its residual.  Nodes that heads share resolve pairs down to this share.
_NEARLY_ALIGNED = 0.01
MAX_NODES = 2000
ERROR_LIMIT = 1e-4


class LogitMoments(NamedTuple):
    """Exact moments of the weights of heads; NaN where they were not computed.

    Attributes
    ----------
    gram : (H, H) array
        E sum_i w_hi w_gi: the covariance of head outputs under independent noise of variance 1 on the values.
    correlation : (H, H) array
        gram_hg / (gram_hh gram_gg)^(1/2).
    numerical_error : (H, H) array
        Bound of the error of ``gram``, estimated by a second computation on coarser grids.
    reason : str
        Empty if all moments were computed, else one sentence that says why not.
    """

    gram: Array
    correlation: Array
    numerical_error: Array
    reason: str


def logit_moments(
    covariance: ArrayLike, n_keys: int, *, known: ArrayLike | None = None, error: bool = True
) -> LogitMoments:
    """Exact moments, at any n, of the weights of softmax heads over n keys whose logits are N(mean, covariance).

    Formula :eq:`exact-product`.

    Keys are independent.  The mean has no effect, as a softmax does not change if a constant is added to all logits.
    For heads of a transformer at one query, the covariance is that of q_h.k_h / p^(1/2) over tokens.

    Parameters
    ----------
    covariance : (H, H) array
        Of the logits of H heads at one key; positive semidefinite.
    n_keys
        n, at least 1; with known logits, at least 0.
    known : (H, A) array, optional
        Known logits of A further tokens, such as attention sinks, minus the mean logit of the n keys.
    error
        If true, estimate the numerical error and set moments that have not converged to NaN; doubles the time.

    Returns
    -------
    LogitMoments
        In about 0.6 ms for a pair of heads, with its error.  NaN for logits of a standard deviation above about 78.

    Raises
    ------
    ValueError
        If the covariance is not symmetric and positive semidefinite, or another argument is not as described.
    """
    matrix = semidefinite("covariance", covariance)
    logits = np.zeros((len(matrix), 0))
    if known is not None:
        logits = np.asarray(real_array("known", known, "(H, A)", "fiu"), np.float64)
        if logits.ndim != 2 or len(logits) != len(matrix) or not np.isfinite(logits).all():
            raise ValueError(f"known has shape {logits.shape}; give finite logits (H = {len(matrix)}, A)")
    least = 0 if logits.size else 1
    if isinstance(n_keys, bool) or not isinstance(n_keys, (int, np.integer)) or n_keys < least:
        raise ValueError(f"n_keys = {n_keys!r}; give a whole number, at least {least}")
    deviations = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    correlations = np.clip(matrix / np.maximum(np.outer(deviations, deviations), np.finfo(float).tiny), -1.0, 1.0)
    if n_keys == 0:
        weights = softmax(logits, axis=1)
        return _moments(weights @ weights.T, np.zeros_like(matrix), deviations)
    fine = _grams(deviations, correlations, int(n_keys), _FINE, logits)
    coarse = _grams(deviations, correlations, int(n_keys), _COARSE, logits) if error else np.full_like(fine, np.nan)
    return _moments(fine, np.abs(fine - coarse), deviations)


def _moments(gram: Array, error: Array, deviations: Array) -> LogitMoments:
    scales = np.sqrt(np.diag(gram))
    products = np.outer(scales, scales)
    reason = ""
    if np.isnan(gram).any():
        reason = f"logits of standard deviation {deviations.max():.3g}: too narrow for quadrature of {MAX_NODES} nodes"
    elif (error > ERROR_LIMIT * products).any():
        reason = f"no convergence: numerical errors above {ERROR_LIMIT:g} of the moments of single heads"
        gram = np.where(error > ERROR_LIMIT * products, np.nan, gram)
    return LogitMoments(gram, gram / products, error, reason)


class _Rows(NamedTuple):
    """Functions (3, U, X) of one head at values (U,) of log t, with weights ``steps``, and at nodes (X,) of its logit.

    ``density`` (X,) are the weights of the nodes; ``known`` (U, A) are t e^l of known tokens.
    """

    functions: Array
    log_t: Array
    steps: Array
    nodes: Array
    density: Array
    known: Array


@functools.lru_cache(maxsize=64)
def _hermite(end: float, n_nodes: int) -> Array:
    """Weights (X, K) of nodes from -end to end that give coefficients in orthonormal Hermite polynomials."""
    nodes = np.linspace(-end, end, n_nodes)
    polynomials = np.polynomial.hermite_e.hermevander(nodes, _N_TERMS - 1)
    return _normal(nodes, 1.0)[:, None] * (polynomials / np.sqrt(factorial(np.arange(_N_TERMS))))


def _grams(deviations: Array, correlations: Array, n_keys: int, step: float, known: Array) -> Array:
    """E sum_i w_hi w_gi (H, H) of all pairs of heads; NaN where too many nodes would be needed."""

    @functools.cache
    def rows(head: int, variance: float, distinctness: float) -> _Rows:
        slope = float(deviations[head])
        log_known = float(np.logaddexp.reduce(known[head])) if known.size else -np.inf
        one = ScalarHead(np.ones(1), 0.0, 0.0, slope)
        log_t, steps = _log_t(one, n_keys, 0.0 if known.size else distinctness, step, log_known)
        masses = np.exp(np.minimum(log_t[:, None] + known[head], np.log(_LARGE)))
        nodes, density = _rule(step * _spacing(slope, variance), variance)
        functions = damped(log_t[:, None] + slope * nodes)
        return _Rows(functions, log_t, steps * np.exp(-masses.sum(axis=1)), nodes, density, masses)

    grams = np.full_like(correlations, np.nan)
    distinctness = np.sqrt(_NEARLY_ALIGNED)
    n_nodes = [2 * _EXTENT / (_FINE * _spacing(deviation, 1.0)) for deviation in deviations]
    # Heads in descending order: the nodes of the steeper head of a pair serve both.
    order = [head for head in np.argsort(-deviations).tolist() if n_nodes[head] <= MAX_NODES]
    if order:  # pairs with higher correlations are computed again below
        clipped = np.clip(correlations[np.ix_(order, order)], -_SERIES, _SERIES)
        heads = [rows(head, _SERIES_VARIANCE, distinctness) for head in order]
        grams[np.ix_(order, order)] = _by_series(heads, clipped, n_keys)
    for h, g in itertools.combinations(order, 2):
        if abs(correlations[h, g]) > _SERIES:
            grams[h, g] = _near(rows, (h, g), correlations[h, g], n_keys, deviations[g], step)
        grams[g, h] = grams[h, g]
    for head in order:
        alone = rows(head, 1.0, distinctness)
        lost, _, twice = alone.functions @ alone.density
        grams[head, head] = alone.steps @ _density(twice, lost, n_keys, np.sum(alone.known**2, axis=1))
    return grams


def _by_series(heads: list[_Rows], correlations: Array, n_keys: int) -> Array:
    """E sum_i w_hi w_gi (H, H), h < g, by series, with the values of log t of all heads in one array."""
    lengths = [len(head.steps) for head in heads]
    # Coefficients (2, U, K) of the first two functions in orthonormal Hermite polynomials of the logit.
    series_of = [_expected(head.functions[:2], _hermite(head.nodes[-1], len(head.nodes))) for head in heads]
    ends, series = np.cumsum(lengths), np.concatenate(series_of, axis=1)
    known, steps = (np.concatenate([getattr(head, name) for head in heads]) for name in ("known", "steps"))
    grams = np.zeros_like(correlations)
    for h, first in enumerate(heads[:-1]):
        rest, powers = slice(ends[h], None), correlations[h, h + 1 :, None] ** np.arange(_N_TERMS)
        both, one_key = series_of[h] @ (series[:, rest] * np.repeat(powers, lengths[h + 1 :], axis=0)).mT
        either = series_of[h][0, :, :1] + series[0, rest, 0] - both
        over_t = first.steps @ _density(one_key, either, n_keys, first.known @ known[rest].T) * steps[rest]
        grams[h, h + 1 :] = np.add.reduceat(over_t, ends[h:-1] - ends[h])
    return grams


def _near(
    rows: Callable[[int, float, float], _Rows],
    pair: tuple[int, int],
    correlation: float,
    n_keys: int,
    slope: float,
    step: float,
) -> float:
    """E sum_i w_hi w_gi of two heads with highly correlated logits; ``slope`` is that of the second."""
    distinctness = np.sqrt(_NEARLY_ALIGNED)
    left = max(1.0 - correlation**2, 0.0)
    # The share of unexplained variance, rounded down to a power of 2^(1/2), so that pairs share nodes.
    floor = 2.0 ** (np.floor(2 * np.log2(left)) / 2) if left > _NEARLY_ALIGNED else 0.0
    first, second = rows(pair[0], 1.0, distinctness if floor else 0.0), rows(pair[1], floor or 1.0, distinctness)
    if floor:
        # Weights under N(correlation x, left); those for -x, which is a node if x is, are those for x reversed.
        half = _normal(second.nodes - correlation * first.nodes[: len(first.nodes) // 2 + 1, None], left)
        seen = _expected(second.functions[:2], np.concatenate([half, half[-2::-1, ::-1]]).T)
    else:
        rest, density = _rule(step * _spacing(slope * np.sqrt(left), 1.0), 1.0)
        logits = slope * (correlation * first.nodes[:, None] + np.sqrt(left) * rest)
        seen = _expected(damped(second.log_t[:, None, None] + logits)[:2], density)
    lost, once, _ = first.functions * first.density
    # 1 - e^{-z_h - z_g} keeps the digits of phi^n.
    either = lost.sum(axis=1)[:, None] + seen[0] @ first.density - lost @ seen[0].T
    density = _density(once @ seen[1].T, either, n_keys, first.known @ second.known.T)
    return float(first.steps @ density @ second.steps)


def _density(one_key: Array, lost: Array, n_keys: int, known: Array) -> Array:
    """Integrand over log t: the terms of n keys and, with phi = 1 - lost, of known tokens."""
    return power(lost, n_keys - 1) * (n_keys * one_key + known * (1 - lost))


def _log_t(head: ScalarHead, n_keys: int, distinctness: float, step: float, log_known: float) -> tuple[Array, Array]:
    """Nodes and weights in log t; ``log_known`` is the logarithm of the sum of e^l over known tokens.

    Nodes are equally spaced except at small t, where integrands are proportional to t: there they follow the doubly
    exponential rule (Takahasi and Mori 1974).
    """
    y, steps = log_grid(head, n_keys, distinctness, step)
    width = max(1.0, float(steps[0]) / _WIDEST)
    bulk = -np.logaddexp(np.log(n_keys) + head.log_mass(), log_known)
    below = steps[0] * np.arange(np.ceil((-np.log(n_keys) - head.log_mass() - bulk) / steps[0]), 0, -1)
    y, steps = np.concatenate([y[0] - below, y]), np.concatenate([np.full_like(below, steps[0]), steps])
    bend = np.exp((bulk - _BELOW * width - y) / width)
    log_t = y - width * bend
    kept = (log_t > np.log(_NEGLIGIBLE) + bulk) & (log_t + log_known < np.log(_LARGE))
    return log_t[kept], (steps * (1 + bend))[kept]


def _expected(functions: Array, weights: Array) -> Array:
    # One product of matrices is ten times as fast as a stack of products.
    flat = functions.reshape(-1, functions.shape[-1]) @ weights
    return flat.reshape(*functions.shape[:-1], *weights.shape[1:])


@functools.lru_cache(maxsize=256)
def _rule(spacing: float, variance: float) -> tuple[Array, Array]:
    """Nodes (X,) with this spacing, and their weights under N(0, variance)."""
    half = np.ceil(_EXTENT / spacing)
    nodes = spacing * np.arange(-half, half + 1)
    return nodes, _normal(nodes, variance)


def _spacing(slope: float, variance: float) -> float:
    """Spacing of nodes for e^{-e^{slope x}} times a normal density: analytic in a strip, in which the density grows."""
    strip = np.sqrt(2 * _DECAY * variance)
    if slope:
        strip = min(strip, np.pi / (2 * slope))
    widest = 2 * np.pi * strip / (_DECAY + strip**2 / (2 * variance)) / _FINE
    return float(2.0 ** (np.floor(_FINENESS * np.log2(widest)) / _FINENESS))


def _normal(values: Array, variance: float) -> Array:
    """Weights under N(0, variance) of nodes that are equally spaced along the last axis."""
    spacing = values[..., 1:2] - values[..., :1]
    return spacing * np.exp(np.maximum(-0.5 * values**2 / variance, -_LARGE)) / np.sqrt(2 * np.pi * variance)
