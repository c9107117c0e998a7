"""Measures of a cell as functions of means over replicates.

There are two steps: averages over query points, and measures that are functions of these averages.  So averages can be
over fixed points, or over a population of points and heads, before ratios or optimal weights are computed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simstudy.attention.combinations import Combine
from simstudy.attention.members import pairs_of
from simstudy.design.settings.cell import ATTENDED
from simstudy.kernels.errors import PairSums, sums_over_pairs
from simstudy.replicates.moments import Array

Measures = dict[str, Array]
Means = tuple[Array, Array, Array]
"""Mean errors (case, query, head), mean products (case, query, pair), mean statistics (case, statistic)."""
NUMBERS = np.ones((1, 1))
"""Overlap of heads with scalar values; for vectors see `simstudy.data.heads.overlap`."""
SINGULAR = 1e-12
"""Least share of the squared error of a head that other heads cannot predict; less is rounding error."""

# Index legend: c case, q query, h and g heads.


class Averages(NamedTuple):
    """Averages over queries, from which all measures follow."""

    # bias_product, covariance, second: (case, head, head) Products of biases b_h b_g, covariances and second moments
    # of errors
    bias_product: Array
    covariance: Array
    second: Array
    bias_target: Array  # (case, head) b_h m
    output: Array  # (case, head, head) Second moments of estimates, E f_h f_g
    # target_square, correlation: (case,) m², and mean correlation of errors over pairs of heads
    target_square: Array
    correlation: Array
    # (case,) Mean cosine of value maps over all pairs of heads, including equal ones; no average over queries
    value_cosine: Array
    statistics: Array  # (case, statistic) Geometric diversity indices, and the statistics of the cell after them


def averages(means: Means, target: Array, overlap: Array) -> tuple[Averages, PairSums]:
    """Return averages over queries, and sums over heads and pairs at each query; targets (query,) or (case, query)."""
    bias, products, statistics = means
    n_heads = bias.shape[-1]
    of_values = np.broadcast_to(overlap, (n_heads, n_heads))
    pairs = sums_over_pairs(bias, products, of_values)
    square = _mean(np.broadcast_to(target**2, bias.shape[:2]), -1)
    bias_target = _mean(bias * target[..., None], -2)
    second = of_values * mirrored(_mean(products, -2))
    bias_product = of_values * (np.swapaxes(bias, 1, 2) @ bias / (bias.shape[1] or np.nan))
    target_part = bias_target[:, :, None] + bias_target[:, None] + square[:, None, None]
    cosine = np.broadcast_to(_scaled(of_values).mean(axis=(-2, -1)), len(statistics))
    return Averages(
        bias_product, second - bias_product, second, bias_target, second + of_values * target_part,
        square, _mean(_over_pairs(pairs.correlation, n_heads), -1), cosine, statistics,
    ), pairs  # fmt: skip


def mirrored(pairs: Array) -> Array:
    """Return symmetric matrices (..., head, head) of which the entries h ≤ g are given, (..., pair)."""
    n_heads = int((2 * pairs.shape[-1]) ** 0.5)
    place = np.zeros((n_heads, n_heads), int)
    place[pairs_of(n_heads)] = range(pairs.shape[-1])
    return pairs[..., np.maximum(place, place.T)]


def measures_by_query(means: Means, target: Array, weights: Array, pairs: PairSums, overlap: Array) -> Measures:
    """Return all measures at each query point, from the sums over pairs that `averages` returns."""
    bias, products, _ = means
    n_heads = bias.shape[-1]
    rows, columns = pairs_of(n_heads)
    outer = weights[:, :, None] * weights[:, None] * overlap
    second = (products @ (outer[:, rows, columns] * np.where(rows == columns, 1.0, 2.0))[:, :, None])[..., 0]
    of_bias = np.einsum("cqh,cqh->cq", bias @ outer, bias)
    squared_bias = of_bias + _of_excess(weights[:, None], bias * target[..., None], target**2)
    of_covariance = (pairs.variance / n_heads, _over_pairs(pairs.covariance, n_heads))
    of_second = (pairs.error / n_heads, (pairs.error + pairs.second) / n_heads**2)
    found = _of_moments(squared_bias, second - of_bias, of_covariance, of_second, n_heads)
    found["correlation"] = _over_pairs(pairs.correlation, n_heads)
    return {f"{name}_by_query": each for name, each in found.items()}


def _over_pairs(total: Array, n_heads: int) -> Array:
    """Return the mean over ordered pairs of distinct heads, from their sum; NaN for a single head."""
    return total / (n_heads * (n_heads - 1)) if n_heads > 1 else np.full_like(total, np.nan)


def measures_of(average: Averages, combine: Combine, names: Sequence[str]) -> Measures:
    """Return all measures that are functions of averages over queries, for each case."""
    covariance, n_heads = average.covariance, average.covariance.shape[-1]
    weights = combine(average.second, average.bias_target, average.target_square)
    squared_bias = _of_excess(weights, average.bias_target, average.target_square)
    squared_bias += np.einsum("ch,chg,cg->c", weights, average.bias_product, weights)
    ensemble_variance = np.einsum("ch,chg,cg->c", weights, covariance, weights)
    variance, error = (np.diagonal(each, axis1=1, axis2=2).mean(axis=-1) for each in (covariance, average.second))
    of_covariance = (variance, _over_pairs(covariance[..., ~np.eye(n_heads, dtype=bool)].sum(axis=-1), n_heads))
    of_second = (error, average.second.mean(axis=(-2, -1)))
    values = _of_moments(squared_bias, ensemble_variance, of_covariance, of_second, n_heads)
    values["correlation"] = average.correlation
    indices, extra = np.split(average.statistics, [average.statistics.shape[-1] - len(names)], axis=-1)
    values |= dict(zip(names, extra.T, strict=True))
    attended = values.pop(ATTENDED, np.full(len(covariance), np.nan))
    likeness = np.stack([average.value_cosine, attended, _scaled(average.output).mean(axis=(-2, -1))], axis=-1)
    likeness[np.isnan(variance)] = np.nan  # functions have no heads
    correlation, identity = _scaled(covariance), np.eye(n_heads)
    undefined = ~np.isfinite(correlation)
    blank = undefined.any(axis=(-2, -1))
    spectrum = np.linalg.eigvalsh(np.where(undefined, 0.0, correlation))
    # Equal heads have eigenvalues of 0, up to rounding.
    spectrum = np.maximum(spectrum, np.finfo(float).tiny) + np.where(blank, np.nan, 0.0)[:, None]
    share = spectrum / n_heads
    # Effective rank (Roy and Vetterli 2007), geometric mean and H²/Σ λ² of the spectrum of correlations.
    rank, determinant = np.exp(-(share * np.log(share)).sum(axis=-1)), np.exp(np.log(spectrum).mean(axis=-1))
    spectral = np.stack([rank, determinant, n_heads**2 / (spectrum**2).sum(axis=-1)], axis=-1)
    outputs = (1.0 - values["correlation"][:, None], spectral, -likeness)
    # Squared multiple correlation of a head with the others; regularised, as equal heads have a singular matrix.
    blank |= n_heads == 1
    regular = correlation + np.where(identity, SINGULAR * _ratio(average.second, covariance), 0.0)
    inverse = np.diagonal(np.linalg.inv(np.where(blank[:, None, None], identity, regular)), axis1=-2, axis2=-1)
    if "direct_mse" in names:
        # Relative errors of decompositions of the uniform average, for several choices of C̄; and equivalent heads.
        between, direct, share = values["mean_covariance"], values["direct_mse"], 1.0 / n_heads
        taken = {
            "decomposition_gap": between,
            "correlation_gap": values["correlation"] * variance,
            "query_correlation_gap": values["query_correlation"] * variance,
        }
        base = average.bias_product.mean(axis=(-2, -1)) + variance / n_heads
        values |= {name: _ratio(base + (1.0 - share) * c, direct) - 1.0 for name, c in taken.items()}
        differing = np.where(abs(variance - between) > SINGULAR * error, variance - between, np.nan)
        values["equivalent_heads"] = _ratio(differing, ensemble_variance - between)
        values["ambiguity_gap"] = _ratio(values["mean_squared_bias"] + variance - values["ambiguity"], direct) - 1.0
    return values | {
        "combination_weight": weights,
        "hdi": np.concatenate([indices, *outputs], axis=-1),
        "linear_predictability": np.where(blank, np.nan, (1.0 - 1.0 / inverse).mean(axis=-1)),
        "head_squared_bias": np.diagonal(average.bias_product, axis1=-2, axis2=-1),
        "head_covariance": covariance,
        "head_error_moment": average.second,
    }


def _of_excess(weights: Array, bias_target: Array, target_square: Array) -> Array:
    """Return the part of the squared bias from weights (..., head) of a sum other than 1, which scale the target."""
    excess = weights.sum(axis=-1) - 1.0
    return np.asarray(2.0 * excess * (weights * bias_target).sum(axis=-1) + excess**2 * target_square)


def _of_moments(
    squared_bias: Array, ensemble_variance: Array, covariance: Sequence[Array], second: Sequence[Array], n_heads: int
) -> Measures:
    """Return measures from (mean variance, mean covariance) and mean second moments (over heads, over all pairs)."""
    (variance, between), (error, product) = covariance, second
    effective_heads = np.where(np.isnan(variance), np.nan, 1.0)
    if n_heads > 1:
        with np.errstate(invalid="ignore", divide="ignore"):
            effective_heads = variance / (variance / n_heads + (1.0 - 1.0 / n_heads) * between)
    return {
        "squared_bias": squared_bias,
        "mean_squared_bias": error - variance,
        "mean_variance": variance,
        "mean_covariance": between,
        "ensemble_variance": ensemble_variance,
        "mse": squared_bias + ensemble_variance,
        "ambiguity": error - product,
        "effective_heads": effective_heads,
    }


def _mean(values: Array, axis: int) -> Array:
    """Return the mean over queries; NaN without queries, as for functions."""
    return np.asarray(values.sum(axis=axis) / (values.shape[axis] or np.nan))


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Return a ratio; NaN where its denominator is 0."""
    return numerator / np.where(denominator == 0.0, np.nan, denominator)


def _scaled(products: Array) -> Array:
    """Return correlations from covariances, or cosines from inner products, (..., head, head)."""
    squares = np.diagonal(products, axis1=-2, axis2=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return products / np.sqrt(squares[..., :, None] * squares[..., None, :])
