"""Performance measures of a cell and their Monte Carlo standard errors, from blocks of moments.

Never imports the theory.

Every measure is a smooth function of means over replicates.  It is evaluated with each block left out in turn.  From
θ̂ of all n blocks and the leave-one-out values θ_(k) come

- the estimate Σ τ_k/h_k with pseudo-values τ_k = h_k·θ̂ − (h_k − 1)·θ_(k), h_k the number of replicates over those of
  block k: unbiased for variances, covariances and squared bias;
- influence values τ_k − estimate, and MCSE = √(Σ (τ_k − estimate)²/(h_k − 1)/n), which for blocks of equal length is
  sd(τ)/√n (delete-m_j jackknife: Busing, Meijer and van der Leeden 1999).

No normality is assumed, and influence values of two cells that share data pair block by block.

Influence values are the linear part of a measure.  That of the squared bias vanishes with the bias, so its MCSE also
holds the quadratic part, whose variance at one query is 2·Var(mean error)².

Replicates without a defined estimate enter the failure rate alone: all other measures are conditional on there being
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from simstudy.attention.combinations import Combine, fixed
from simstudy.replicates.moments import Array, Moments

CHUNK_BYTES = 64 << 20
"""Largest array of leave-one-out means held at once."""

Measures = dict[str, Array]


class Performance(NamedTuple):
    """Measures of one cell.

    Attributes
    ----------
    estimate, mcse : dict of arrays
        By measure: a scalar, (index,) for ``hdi``, (head,) and (head, head) for heads and
        pairs, (query,) for ``*_by_query``.
    contribution : dict of float64 (block, ...)
        Influence values of the scalar measures and ``hdi``, scaled so that the squares sum to MCSE² (but for the
        remainder) and products of two cells that share data sum to the covariance of their estimates.
    remainder : dict of float
        Standard error of a measure beyond its contributions: of the quadratic part of the squared bias, and of a
        failure rate of which few failures say little.
    n_blocks, n_replicates, n_failed : int
        Blocks and replicates with a defined estimate, and replicates without.
    """

    estimate: Measures
    mcse: Measures
    contribution: Measures
    remainder: dict[str, float]
    n_blocks: int
    n_replicates: int
    n_failed: int


def performance(blocks: Moments, weights: Array | Combine, statistics: Sequence[str]) -> Performance:
    """Return every measure of a cell with its Monte Carlo standard error.

    Parameters
    ----------
    blocks
        Moments of all batches, stacked in index order; at least two blocks with a defined replicate.
    weights : (head,) array, or a function
        Combination weights a_h, or what gives them from means of errors: see `simstudy.attention.combinations`.
    statistics
        Names of the statistics that the moments hold, as `Cell.statistics` gives them.

    Raises
    ------
    ValueError
        If fewer than two blocks have a defined replicate: there is no Monte Carlo error to compute.
    """
    combine = weights if callable(weights) else fixed(weights)
    used = blocks.n_defined > 0
    n_blocks = int(used.sum())
    if n_blocks < 2:
        raise ValueError(f"{n_blocks} block(s) with a defined replicate; at least 2 are needed")
    sums = blocks._replace(
        n_defined=blocks.n_defined[used],
        error_sum=blocks.error_sum[used],
        product_sum=blocks.product_sum[used],
        statistic_sum=blocks.statistic_sum[used],
    )
    whole = measures(_means(sums, slice(0, 0)), sums.target, combine, statistics)
    parts = [measures(_means(sums, part), sums.target, combine, statistics) for part in _chunks(sums)]
    left_out = _concatenate(parts)
    estimate, mcse, contribution = {}, {}, {}
    for name, values in left_out.items():
        estimate[name], share = _jackknife(whole[name][0], values, sums.n_defined)
        mcse[name] = np.sqrt((share**2).sum(axis=0))
        if values.ndim == 1 or name == "hdi":
            contribution[name] = _on_all_blocks(share, used)
    quadratic = _quadratic_errors(sums, whole["combination_weight"][0])
    for name, error in quadratic.items():
        mcse[name] = np.hypot(mcse[name], error)
    remainder = {name: float(quadratic[name]) for name in quadratic if name in contribution}
    estimate["failure_rate"], share, lacking = _failures(blocks)
    mcse["failure_rate"] = np.hypot(np.sqrt((share**2).sum()), lacking)
    contribution["failure_rate"], remainder["failure_rate"] = share, lacking
    return Performance(
        estimate, mcse, contribution, remainder, n_blocks, int(blocks.n_defined.sum()), len(blocks.failed)
    )


def _failures(blocks: Moments) -> tuple[Array, Array, float]:
    """Share of failed replicates, contributions of blocks (block,), and the standard error that these lack.

    Replicates are independent, so the error is known: that of Agresti and Coull (1998), who add two failures and two
    successes, so that no failure does not mean no error.
    """
    n_blocks = len(blocks.n_defined)
    total = int(blocks.n_defined.sum()) + len(blocks.failed)
    # Blocks have one length, whatever failed in them.
    rates = 1.0 - blocks.n_defined * (n_blocks / total)
    share = (rates - rates.mean()) / np.sqrt(n_blocks * (n_blocks - 1))
    shrunk = (len(blocks.failed) + 2) / (total + 4)
    lacking = shrunk * (1 - shrunk) / (total + 4) - (share**2).sum()
    return np.array(len(blocks.failed) / total), share, float(np.sqrt(max(lacking, 0.0)))


def _jackknife(whole: Array, left_out: Array, sizes: np.ndarray) -> tuple[Array, Array]:
    """Estimate and contributions (block, ...) from the value of all blocks and those with each block left out."""
    ratio = (sizes.sum() / sizes).reshape(-1, *[1] * (left_out.ndim - 1))
    pseudo = ratio * whole - (ratio - 1) * left_out
    estimate = (pseudo / ratio).sum(axis=0)
    return estimate, (pseudo - estimate) / np.sqrt(len(sizes) * (ratio - 1))


def _quadratic_errors(sums: Moments, weights: Array) -> Measures:
    """Standard errors of the quadratic part of squared biases.

    For mean errors with covariance S over queries: √(2 Σ S_qq'²)/Q when averaged over queries, √2·S_qq at each.
    """
    mean_error = sums.error_sum / sums.n_defined[:, None, None]
    each = np.stack([_quadratic_error(mean_error[..., head], sums.n_defined)[0] for head in range(len(weights))])
    together, by_query = _quadratic_error(mean_error @ weights, sums.n_defined)
    return {"squared_bias": together, "squared_bias_by_query": by_query, "head_squared_bias": each}


def _quadratic_error(means: Array, sizes: np.ndarray) -> tuple[Array, Array]:
    """Error averaged over queries and at each, from block means (block, query) of one error."""
    ratio = (sizes.sum() / sizes)[:, None]
    deviations = (means - (means / ratio).sum(axis=0)) / np.sqrt(len(sizes) * (ratio - 1))
    # |DᵀD| = |DDᵀ| in the Frobenius norm: the smaller of the two is formed.
    n_blocks, n_queries = means.shape
    if not n_queries:
        return np.array(np.nan), np.zeros(0)
    covariance = deviations.T @ deviations if n_queries < n_blocks else deviations @ deviations.T
    average = np.array(np.sqrt(2.0) * np.linalg.norm(covariance) / n_queries)
    return average, np.sqrt(2.0) * (deviations**2).sum(axis=0)


def _on_all_blocks(share: Array, used: np.ndarray) -> Array:
    """Put contributions back at the place of their block, 0 where a block is empty, so that cells stay aligned."""
    placed = np.zeros((len(used), *share.shape[1:]))
    placed[used] = share
    return placed


def _chunks(sums: Moments) -> Iterator[slice]:
    step = max(1, CHUNK_BYTES // (32 * max(sums.product_sum[0].size, 1)))
    for start in range(0, len(sums.n_defined), step):
        yield slice(start, min(start + step, len(sums.n_defined)))


def _means(sums: Moments, left_out: slice) -> tuple[Array, Array, Array]:
    """Means of errors, products and indices, each with one of the blocks left out; of all blocks for an empty slice."""

    def mean(field: Array) -> Array:
        total = field.sum(axis=0)
        kept = total - field[left_out] if left_out.stop > left_out.start else total[None]
        return kept / count.reshape(-1, *[1] * (field.ndim - 1))

    whole = left_out.stop == left_out.start
    count = np.atleast_1d(sums.n_defined.sum() - (0 if whole else sums.n_defined[left_out])).astype(float)
    return mean(sums.error_sum), mean(sums.product_sum), mean(sums.statistic_sum)


def _concatenate(parts: list[Measures]) -> Measures:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def measures(means: tuple[Array, Array, Array], target: Array, combine: Combine, names: Sequence[str]) -> Measures:
    """Return every measure as a function of means; the leading axis of each array is kept.

    Parameters
    ----------
    means
        Mean errors (case, query, head), mean products (case, query, pair), mean statistics (case, statistic).
    target : (query,)
        m(x_q).
    combine
        Gives the combination weights (case, head).
    names
        Of the statistics but for the diversity indices, which come first.
    """
    bias, products, statistics = means
    n_heads = bias.shape[-1]
    second = _square(products, n_heads)
    covariance = second - bias[..., :, None] * bias[..., None, :]
    weights = combine(bias, second, target)
    ensemble_bias = np.einsum("cqh,ch->cq", bias, weights) + (weights.sum(axis=-1, keepdims=True) - 1.0) * target
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    by_query = {
        "squared_bias": ensemble_bias**2,
        "mean_variance": variance.mean(axis=-1),
        "mean_covariance": _mean_over_pairs(covariance),
        "ensemble_variance": np.einsum("ch,cqhg,cg->cq", weights, covariance, weights),
        "correlation": _mean_over_pairs(_correlation(covariance, variance)),
    }
    by_query["mse"] = by_query["squared_bias"] + by_query["ensemble_variance"]
    by_query["effective_heads"] = _effective_heads(by_query, n_heads)
    averages = {name: _mean(values, -1) for name, values in by_query.items()}
    averages["effective_heads"] = _effective_heads(averages, n_heads)
    output = 1.0 - averages["correlation"]
    indices, extra = np.split(statistics, [statistics.shape[-1] - len(names)], axis=-1)
    averages |= dict(zip(names, extra.T, strict=True))
    if "direct_mse" in names:
        averages |= _gaps(averages, _mean(bias.mean(axis=-1) ** 2, -1), n_heads)
    return averages | {
        "combination_weight": weights,
        "hdi": np.concatenate([indices, output[:, None]], axis=-1),
        "head_squared_bias": _mean(bias**2, -2),
        "head_covariance": _mean(covariance, -3),
        "head_error_moment": _mean(second, -3),
        **{f"{name}_by_query": values for name, values in by_query.items()},
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


def _correlation(covariance: Array, variance: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return covariance / np.sqrt(variance[..., :, None] * variance[..., None, :])


def _effective_heads(measure: Measures, n_heads: int) -> Array:
    variance, covariance = measure["mean_variance"], measure["mean_covariance"]
    if n_heads == 1:
        return np.where(np.isnan(variance), np.nan, 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return variance / (variance / n_heads + (1.0 - 1.0 / n_heads) * covariance)
