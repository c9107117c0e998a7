"""Bias and covariance of head estimates across sets of training data, at leading order in n.

A head estimate is a ratio of averages over n keys.  Its delta-method expansion (Owen, Monte Carlo theory, methods and
examples, section 9.2, on self-normalised importance sampling) has a closed form for Gaussian keys.  In it,
R_hg = E[K_h K_g] / (E K_h E K_g).  Index legend: h, g head; G pair of heads g >= h; q query.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import FixedBandwidth, GaussianKeys, ProductCombination, WholeMask
from simstudy.theory.exact.moments import ExactPrediction
from simstudy.theory.functions import (
    Array,
    expectation,
    next_term,
    noise_variance,
    regression_function,
    square_expectation,
    targets,
)
from simstudy.theory.tilting import heads_of, key_covariance

# Measured against the exact finite-n variance (one-dimensional integrals: distance logits with p = 1, 2, 4, 8 and
# b = 0.1 to 2, dot-product logits, six targets, n = 10 to 3e5): the next term of the expansion gives the relative
# error of the leading variance.  Under both limits that error was at most 5.0 %.  The effective sample size
# n/R alone does not suffice: at n/R = 50 the error was 1 % for p = 1 and 16 % for p = 8 far from the origin.
NEXT_TERM_LIMIT = 0.05
MIN_EFFECTIVE_SIZE = 20.0


class Prediction(NamedTuple):
    """Predictions of theory for one cell; NaN at queries where the formula does not apply.

    Attributes
    ----------
    bias : (Q, H) array
        E f_h(x_q) - m(x_q), including the term of order 1/n.
    covariance : (Q, H, H) array
        Covariance of head estimates at one query across sets of training data.
    target : (Q,) array
        m(x_q); never NaN.
    next_term : (Q, H) array
        Signed size of the first neglected term of each head's variance, relative to that variance.
    reason : str
        Empty if the formula applies to every query, else one sentence that says where not and why.
    """

    bias: Array
    covariance: Array
    target: Array
    next_term: Array
    reason: str

    @classmethod
    def blank(cls, target: Array, n_heads: int, reason: str) -> Self:
        """Return a prediction of NaN for all heads, with the reason."""
        unknown = np.full((len(target), n_heads), np.nan)
        return cls(unknown, np.stack([unknown] * n_heads, axis=2), target, unknown, reason)


def leading_order(cell: Cell, key_projections: Array, query_projections: Array, queries: Array) -> Prediction:
    """Bias and covariance of the head estimates of a cell, at leading order in n.

    Formulas :eq:`leading-mean`, :eq:`leading-covariance`.

    With mu_h = E[K_h m] / E K_h:  E f_h = mu_h - E[K_h^2 (m - mu_h)] / (n (E K_h)^2) + O(n^-2) and
    Cov(f_h, f_g) = E[K_h K_g (v + (m - mu_h)(m - mu_g))] / (n E K_h E K_g) + O(n^-2), v(X) the noise variance.

    Parameters
    ----------
    cell : Cell
        One of ``Design.cells``.  Its normaliser, mask and transformation are ignored: softmax attention to all keys.
    key_projections, query_projections : (H, d, p) arrays
        Ignored if the formula cannot apply to the cell.
    queries : (Q, d) array
        Query points.

    Returns
    -------
    Prediction
        Valid at a query where, for every head, the effective sample size n/R_hh is at least `MIN_EFFECTIVE_SIZE`
        and the next term is within `NEXT_TERM_LIMIT` of the variance.

    Raises
    ------
    ValueError
        If the regression function names more coordinates than the cell has features.
    """
    target = targets(cell, queries)
    if reason := _inapplicable(cell):
        return Prediction.blank(target, cell.heads.n_heads, reason)
    mean, covariance, ratio, neglected = _expansion(cell, key_projections, query_projections, queries)
    # Negated, so that NaN counts as invalid.
    invalid = ~((cell.data.n_keys >= MIN_EFFECTIVE_SIZE * ratio) & (np.abs(neglected) <= NEXT_TERM_LIMIT))
    blank = np.where(invalid.any(axis=1), np.nan, 0.0)
    bias, covariance = mean - target[:, None] + blank[:, None], covariance + blank[:, None, None]
    return Prediction(bias, covariance, target, neglected, _outside(cell, invalid, ratio, neglected))


def damped_leading_order(cell: Cell, key_projections: Array, query_projections: Array, queries: Array) -> Prediction:
    """Damped leading order at every query, also where leading order is not valid: a control variate over queries.

    The variance and the bias of order 1/n of a head grow without bound where few keys are near.  They are divided by
    1 + R_hh/n, and so are at most those of a single key.  A control variate need not be exact; this one is close to
    the truth at queries near the keys and far from them.

    Parameters
    ----------
    cell, key_projections, query_projections, queries
        As of :func:`leading_order`.

    Returns
    -------
    Prediction
        Never blank at single queries; the next term, which would take a quarter of the time, is NaN.  If the formula is
        not derived for such a cell, a reason and empty arrays, except for the target.
    """
    target = targets(cell, queries)
    if reason := _inapplicable(cell):
        return Prediction(np.zeros(0), np.zeros(0), target, np.zeros(0), reason)
    mean, covariance, ratio, neglected = _expansion(cell, key_projections, query_projections, queries, damped=True)
    damping = 1.0 / np.sqrt(1.0 + ratio / cell.data.n_keys)
    covariance = covariance * damping[:, :, None] * damping[:, None, :]
    return Prediction(mean - target[:, None], covariance, target, neglected, "")


# Ratios overflow at a query far from all keys; infinity or NaN then marks it as invalid.
@np.errstate(over="ignore", invalid="ignore")
def _expansion(
    cell: Cell, key_projections: Array, query_projections: Array, queries: Array, damped: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Mean (Q, H), covariance (Q, H, H), R_hh (Q, H) and next term (Q, H); the next term is NaN if ``damped``."""
    data, n_keys, n_heads = cell.data, cell.data.n_keys, len(key_projections)
    regression = regression_function(data.regression, data.n_features)
    variance = noise_variance(data.noise, data.noise_sd, data.n_features)
    kernels = heads_of(cell, key_projections, query_projections, queries)
    normal = key_covariance(data.key_distribution, data.n_features)
    heads = np.arange(n_heads)
    single = kernels.tilt(normal, heads)
    smooth = np.array([expectation(regression, *law) for law in single.laws])
    wanted = (expectation, regression), (square_expectation, regression), (expectation, variance)

    def errors(*factors: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        """E[K_1 K_2 ...] / (E K_1 E K_2 ...) of heads; E m and E[v + (m - mu_1)(m - mu_2)] of tilted keys, (G, Q)."""
        tilted = kernels.tilt(normal, *factors)
        mean, square, noise = np.array([[of(m, *law) for of, m in wanted] for law in tilted.laws]).swapaxes(0, 1)
        first, second = smooth[factors[0]], smooth[factors[1]]
        log_ratios = functools.reduce(lambda logs, h: logs - single.log_mass[h], factors, tilted.log_mass)
        return np.exp(log_ratios), mean, noise + square - (first + second) * mean + first * second

    first, second = np.triu_indices(n_heads)
    ratios, means, error = errors(first, second)
    covariance = np.empty((smooth.shape[1], n_heads, n_heads))
    covariance[:, first, second] = covariance[:, second, first] = (ratios * error / n_keys).T
    equal = first == second
    ratio, leading = ratios[equal], (ratios * error)[equal]
    drift = ratio * (means[equal] - smooth)
    neglected = np.full_like(ratio, np.nan)
    if not damped:
        cubes, _, error = errors(heads, heads, heads)
        neglected = next_term(ratio, leading, cubes * error, drift) / n_keys
    return (smooth - drift / (n_keys + ratio * damped)).T, covariance, ratio.T, neglected.T


def _inapplicable(cell: Cell) -> str:
    if not isinstance(cell.data.key_distribution, GaussianKeys):
        return f"leading order is derived for Gaussian keys; these are {cell.data.key_distribution.label}"
    if cell.heads.redrawn:
        return "leading order is derived for fixed heads; these are redrawn in every replicate"
    return ""


def _outside(cell: Cell, invalid: NDArray[np.bool_], ratio: Array, neglected: Array) -> str:
    if not invalid.any():
        return ""
    effective_size = cell.data.n_keys / ratio
    query, head = np.unravel_index(np.argmin(np.where(invalid, effective_size, np.inf)), invalid.shape)
    where = f"outside leading order at {invalid.any(axis=1).sum()} of {len(invalid)} queries"
    worst = f"at query {query}, head {head} (counted from 0)"
    log_ratio = np.log(ratio[query, head])
    limit = 0.5 * np.log(cell.data.n_keys)
    if cell.estimator.logits == "dot_product" and log_ratio > limit:
        return f"{where}; {worst} the softmax is condensed on a few keys: k'Σk = {log_ratio:.3g} > ½ ln n = {limit:.3g}"
    size, next_term = effective_size[query, head], neglected[query, head]
    return (
        f"{where}; {worst} the effective sample size is {size:.3g} of {cell.data.n_keys} "
        f"(at least {MIN_EFFECTIVE_SIZE:g} needed) and the next term {next_term:+.1%} of the variance "
        f"(at most {NEXT_TERM_LIMIT:.0%})"
    )


def product_head(cell: Cell, key_projections: Array, query_projections: Array) -> tuple[Cell, Array, Array]:
    """Return the single head that equals a product of softmax kernels, as logits add up over dimensions.

    Parameters
    ----------
    cell : Cell
        With a product of kernels; where logits are averaged, each dimension is shrunk by 1/√H.
    key_projections, query_projections : (H, d, p) arrays
        Projections W_h of keys and of queries; equal for heads with tied projections.

    Returns
    -------
    cell : Cell
        The same cell with one head of dimension H p.
    key_projection, query_projection : (1, d, H p) arrays
        The projections of the heads, side by side.
    """
    n_heads, d, p = key_projections.shape
    combination = cell.estimator.combination
    shrink = n_heads**-0.5 if isinstance(combination, ProductCombination) and combination.logits == "mean" else 1.0
    key, query = (
        shrink * projections.transpose(1, 0, 2).reshape(1, d, n_heads * p)
        for projections in (key_projections, query_projections)
    )
    heads = cell.heads.model_copy(update={"n_heads": 1, "head_dim": n_heads * p})
    return cell.model_copy(update={"heads": heads}), key, query


def masked(
    method: Callable[[Cell, Array, Array, Array], Prediction | ExactPrediction],
    cell: Cell,
    key_projections: Array,
    query_projections: Array,
    queries: Array,
) -> Prediction | ExactPrediction:
    """Predictions of a theory for a cell with a mask, by which each query sees only some of the keys.

    Parameters
    ----------
    method : callable
        Theory without a mask, such as :func:`leading_order`.
    cell, key_projections, query_projections, queries
        As of :func:`leading_order`.

    Returns
    -------
    Prediction or ExactPrediction
        As `method` returns it, for the number of keys that each query sees; the reason names numbers without theory.
    """
    visible = cell.visible
    if visible is None:
        return method(cell, key_projections, query_projections, queries)
    # Keys are exchangeable, so that a query which sees k of n keys has the moments of k keys, at the same bandwidth.
    bandwidth = FixedBandwidth(kind="fixed", value=cell.bandwidth)
    estimator = cell.estimator.model_copy(update={"mask": WholeMask(kind="none"), "bandwidth": bandwidth})
    seen, parts = visible.sum(axis=1), []
    sizes = np.unique(seen).tolist()
    for n in sizes:
        data = cell.data.model_copy(update={"n_keys": n})
        unmasked = cell.model_copy(update={"estimator": estimator, "data": data})
        parts.append(method(unmasked, key_projections, query_projections, queries[seen == n]))
    place = np.argsort(np.concatenate([np.flatnonzero(seen == n) for n in sizes]))
    arrays = (name for name in parts[0]._fields if name != "reason")
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts])[place] for name in arrays}
    stated = [f"where {n} keys are seen, {part.reason}" for n, part in zip(sizes, parts, strict=True) if part.reason]
    others = f"; and of {len(stated) - 1} further numbers of keys" if stated[1:] else ""
    return parts[0]._replace(**joined, reason=f"{stated[0]}{others}" if stated else "")
