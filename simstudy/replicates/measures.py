"""Measures of a cell as functions of means over replicates.

In two steps: averages over query points, which are linear in what happens at each of them, and measures that are
functions of these averages.  So averages can be taken over points that are fixed, or over a population of points and
heads, before anything is divided or optimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simstudy.attention.combinations import Combine
from simstudy.design.settings.cell import ATTENDED
from simstudy.replicates.moments import Array

Measures = dict[str, Array]
Means = tuple[Array, Array, Array]
"""Mean errors (case, query, head), mean products (case, query, pair), mean statistics (case, statistic)."""
NUMBERS = np.ones((1, 1))
"""Overlap of heads whose values are numbers: as it is, `simstudy.data.value_projections`, of those that share a map."""
SINGULAR = 1e-12
"""Share of its variance that a head has of its own at least, for its correlations with others to have an inverse."""

# Index legend: c case, q query, h and g heads.


class AtQueries(NamedTuple):
    """What heads do at each query: (case, query, head), three times (case, query, head, head), (case, query)."""

    bias: Array
    bias_product: Array
    covariance: Array
    second: Array
    correlation: Array


class Averages(NamedTuple):
    """Averages over queries, of which all measures are functions.

    Attributes
    ----------
    bias_product, covariance, second : (case, head, head)
        Of b_h b_g, of the covariance of errors, and of their second moment.
    bias_target : (case, head)
        Of b_h m.
    output : (case, head, head)
        Of the second moment of estimates f_h f_g.
    target_square, correlation : (case,)
        Of m², and of the correlation of errors over pairs of heads.
    value_cosine : (case,)
        No average: the mean over all pairs, of a head with itself too, of the cosine of their values.
    statistics : (case, statistic)
        Geometric diversity indices, and the statistics of the cell after them.
    """

    bias_product: Array
    covariance: Array
    second: Array
    bias_target: Array
    output: Array
    target_square: Array
    correlation: Array
    value_cosine: Array
    statistics: Array


def at_queries(means: Means, overlap: Array) -> AtQueries:
    """Return biases, and products of biases, covariances, second moments and correlations of errors at each query.

    The overlap (head, head), or (case, 1, head, head), makes products of numbers those of vectors.
    """
    bias, products, _ = means
    second = overlap * _square(products, bias.shape[-1])
    bias_product = overlap * (bias[..., :, None] * bias[..., None, :])
    covariance = second - bias_product
    return AtQueries(bias, bias_product, covariance, second, _mean_over_pairs(_scaled(covariance)))


def averages(means: Means, target: Array, overlap: Array) -> Averages:
    """Return the averages over queries; ``target`` is (query,), or (case, query) where each case has its own."""
    return _averages(at_queries(means, overlap), means[2], target, overlap)


def _averages(at: AtQueries, statistics: Array, target: Array, overlap: Array) -> Averages:
    squares = np.broadcast_to(target**2, at.correlation.shape)
    second, square = _mean(at.second, -3), _mean(squares, -1)
    bias_target = _mean(at.bias * target[..., None], -2)
    of_values = overlap.reshape(-1, *overlap.shape[-2:])
    target_part = bias_target[:, :, None] + bias_target[:, None] + square[:, None, None]
    cosine = np.broadcast_to(_scaled(of_values).mean(axis=(-2, -1)), len(statistics))
    return Averages(
        _mean(at.bias_product, -3), _mean(at.covariance, -3), second, bias_target, second + of_values * target_part,
        square, _mean(at.correlation, -1), cosine, statistics,
    )  # fmt: skip


def measures_at(means: Means, target: Array, combine: Combine, names: Sequence[str], overlap: Array) -> Measures:
    """Return every measure at given query points, averaged over them and at each; arguments as of `measures_of`."""
    at = at_queries(means, overlap)
    values = measures_of(_averages(at, means[2], target, overlap), combine, names)
    weights = values["combination_weight"]
    squared_bias = _squared_bias(weights[:, None], at.bias_product, at.bias * target[..., None], target**2)
    ensemble = np.einsum("ch,cqhg,cg->cq", weights, at.covariance, weights)
    by_query = _of_moments(squared_bias, ensemble, at.covariance, at.second) | {"correlation": at.correlation}
    return values | {f"{name}_by_query": each for name, each in by_query.items()}


def measures_of(average: Averages, combine: Combine, names: Sequence[str]) -> Measures:
    """Return every measure that is an average over queries, or a function of such averages.

    Parameters
    ----------
    average
        Whose leading axis, of cases, is kept.
    combine
        Gives the combination weights (case, head).
    names
        Of the statistics but for the diversity indices, which come first.
    """
    covariance, n_heads = average.covariance, average.covariance.shape[-1]
    weights = combine(average.second, average.bias_target, average.target_square)
    squared_bias = _squared_bias(weights, average.bias_product, average.bias_target, average.target_square)
    ensemble_variance = np.einsum("ch,chg,cg->c", weights, covariance, weights)
    values = _of_moments(squared_bias, ensemble_variance, covariance, average.second)
    values["correlation"] = average.correlation
    indices, extra = np.split(average.statistics, [average.statistics.shape[-1] - len(names)], axis=-1)
    values |= dict(zip(names, extra.T, strict=True))
    attended = values.pop(ATTENDED, np.full(len(covariance), np.nan))
    likeness = np.stack([average.value_cosine, attended, _scaled(average.output).mean(axis=(-2, -1))], axis=-1)
    outputs = (1.0 - values["correlation"][:, None], _spectral_indices(covariance), -likeness)
    if "direct_mse" in names:
        values |= _gaps(values, average.bias_product.mean(axis=(-2, -1)), n_heads)
        of_heads = values["mean_squared_bias"] + values["mean_variance"]
        values["ambiguity_gap"] = _ratio(of_heads - values["ambiguity"], values["direct_mse"]) - 1.0
    return values | {
        "combination_weight": weights,
        "hdi": np.concatenate([indices, *outputs], axis=-1),
        "linear_predictability": _linear_predictability(covariance),
        "head_squared_bias": np.diagonal(average.bias_product, axis1=-2, axis2=-1),
        "head_covariance": covariance,
        "head_error_moment": average.second,
    }


def _squared_bias(weights: Array, bias_product: Array, bias_target: Array, target_square: Array) -> Array:
    """Squared bias from weights (..., head) and what `Averages` says, averaged over queries or at each of them."""
    # Of weights that do not sum to 1 the target itself is shrunk or inflated.
    excess = weights.sum(axis=-1) - 1.0
    within = np.einsum("...h,...hg,...g->...", weights, bias_product, weights)
    return np.asarray(within + 2.0 * excess * (weights * bias_target).sum(axis=-1) + excess**2 * target_square)


def _spectral_indices(covariance: Array) -> Array:
    """Diversity by the spectrum of the correlation matrix of head estimates, (case, 3).

    Of its eigenvalues λ, H of them and as large as 1 on average: exp of the entropy of λ/H (Roy and Vetterli 2007),
    their geometric mean, which orders as the log-determinant does, and H²/Σ λ².
    """
    correlation = _scaled(covariance)
    undefined = ~np.isfinite(correlation)
    spectrum = np.linalg.eigvalsh(np.where(undefined, 0.0, correlation))
    # Heads that agree leave eigenvalues of 0, up to rounding.
    spectrum = np.maximum(spectrum, np.finfo(float).tiny) + np.where(undefined.any(axis=(-2, -1)), np.nan, 0.0)[:, None]
    share, n_heads = spectrum / spectrum.shape[-1], spectrum.shape[-1]
    effective_rank = np.exp(-(share * np.log(share)).sum(axis=-1))
    determinant = np.exp(np.log(spectrum).mean(axis=-1))
    return np.stack([effective_rank, determinant, n_heads**2 / (spectrum**2).sum(axis=-1)], axis=-1)


def _linear_predictability(covariance: Array) -> Array:
    """Squared multiple correlation of a head with the others, averaged over heads, (case,); NaN for a single head."""
    correlation, identity = _scaled(covariance), np.eye(covariance.shape[-1])
    undefined = np.asarray(~np.isfinite(correlation).all(axis=(-2, -1))) | (len(identity) == 1)
    # Of heads that agree rounding would decide whether there is an inverse.
    regular = np.where(undefined[:, None, None], identity, correlation) + SINGULAR * identity
    inverse = np.diagonal(np.linalg.inv(regular), axis1=-2, axis2=-1)
    return np.where(undefined, np.nan, (1.0 - 1.0 / inverse).mean(axis=-1))


def _of_moments(squared_bias: Array, ensemble_variance: Array, covariance: Array, second: Array) -> Measures:
    """Measures that follow from bias, covariance and second moments, averaged over queries or at each of them."""
    variance, between = np.diagonal(covariance, axis1=-2, axis2=-1).mean(axis=-1), _mean_over_pairs(covariance)
    error = np.diagonal(second, axis1=-2, axis2=-1).mean(axis=-1)
    return {
        "squared_bias": squared_bias,
        "mean_squared_bias": error - variance,
        "mean_variance": variance,
        "mean_covariance": between,
        "ensemble_variance": ensemble_variance,
        "mse": squared_bias + ensemble_variance,
        "ambiguity": error - second.mean(axis=(-2, -1)),
        "effective_heads": _effective_heads(variance, between, covariance.shape[-1]),
    }


def _gaps(measure: Measures, squared_bias: Array, n_heads: int) -> Measures:
    """Relative errors of decompositions of the uniform average, by what they take for C̄; and equivalent heads."""
    variance, covariance = measure["mean_variance"], measure["mean_covariance"]
    taken = {
        "decomposition_gap": covariance,
        "correlation_gap": measure["correlation"] * variance,
        "query_correlation_gap": measure["query_correlation"] * variance,
    }
    share, own = 1.0 / n_heads, squared_bias + variance / n_heads
    gaps = {name: _ratio(own + (1.0 - share) * c, measure["direct_mse"]) - 1.0 for name, c in taken.items()}
    excess = measure["ensemble_variance"] - covariance
    return gaps | {"equivalent_heads": _ratio(variance - covariance, excess)}


def _mean(values: Array, axis: int) -> Array:
    """Mean over queries; NaN where there is none, as for random instances."""
    if values.shape[axis]:
        return np.asarray(values.mean(axis=axis))
    return np.full(np.delete(values.shape, axis), np.nan)


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Return a ratio, NaN where its denominator is 0."""
    return numerator / np.where(denominator == 0.0, np.nan, denominator)


def _square(packed: Array, n_heads: int) -> Array:
    """Unpack pairs h ≤ g into a symmetric matrix."""
    rows, columns = np.triu_indices(n_heads)
    full = np.empty((*packed.shape[:-1], n_heads, n_heads))
    full[..., rows, columns] = packed
    full[..., columns, rows] = packed
    return full


def _mean_over_pairs(matrix: Array) -> Array:
    """Mean over ordered pairs of different heads; NaN for a single head."""
    n_heads = matrix.shape[-1]
    if n_heads == 1:
        return np.full(matrix.shape[:-2], np.nan)
    off_diagonal = ~np.eye(n_heads, dtype=bool)
    return matrix[..., off_diagonal].mean(axis=-1)


def _scaled(products: Array) -> Array:
    """Correlations of covariances, or cosines of inner products, (..., head, head)."""
    squares = np.diagonal(products, axis1=-2, axis2=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return products / np.sqrt(squares[..., :, None] * squares[..., None, :])


def _effective_heads(variance: Array, covariance: Array, n_heads: int) -> Array:
    if n_heads == 1:
        return np.where(np.isnan(variance), np.nan, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return variance / (variance / n_heads + (1.0 - 1.0 / n_heads) * covariance)
