"""Performance measures of a cell and their Monte Carlo standard errors, from blocks of moments.

Every measure is a smooth function of means over replicates.  It is evaluated with each block left out in turn.  The
value θ̂ of all n blocks and the leave-one-out values θ_(k) give

- the estimate Σ τ_k/h_k with pseudo-values τ_k = h_k·θ̂ − (h_k − 1)·θ_(k), where h_k is the number of replicates over
  that of block k; it is unbiased for variances, covariances and squared bias;
- influence values τ_k − estimate, and MCSE = √(Σ (τ_k − estimate)²/(h_k − 1)/l_k), where l_k is the length of all
  blocks over that of block k: n for equal blocks (delete-m_j jackknife: Busing, Meijer and van der Leeden 1999).
  Blocks of many batches are added in pairs as they are read, and the last may be shorter.

Influence values are the linear part of a measure.  Those of two cells that share data are paired by block.  The linear
part of the squared bias vanishes with the bias, so that its MCSE includes the quadratic part, whose variance at one
query is 2·Var(mean error)².  No normality is assumed.

Replicates without a defined estimate count only in the failure rate: other measures are conditional on an estimate.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.combinations import Combine, fixed
from simstudy.design.settings.cell import N_BLOCKS
from simstudy.design.settings.functions import Functions
from simstudy.replicates.intervals import widening_of
from simstudy.replicates.measures import NUMBERS, Means, Measures, averages, measures_by_query, measures_of
from simstudy.replicates.moments import Array, Moments

CHUNK_BYTES = 64 << 20
"""Largest array of leave-one-out means."""
MOST_BLOCKS = 128
"""Most blocks of a cell, to which more are added in pairs; they give errors to about 7 percent."""


class Performance(NamedTuple):
    """Measures of one cell."""

    # By measure: a scalar; (index,) for ``hdi``; (head,) or (head, head) for heads and pairs; (query,) ``*_by_query``
    estimate: Measures
    mcse: Measures
    # Influence values (block, ...) of scalar measures and ``hdi``, scaled so that squares sum to MCSE² minus the parts
    # below, and products of two cells that share data sum to the covariance of their estimates
    contribution: Measures
    # Further part of standard errors: of the quadratic part of squared biases, and of few failures
    remainder: dict[str, float]
    n_blocks: int  # Number of simulated blocks with replicates; for a population, of batches
    n_replicates: int  # Number with a defined estimate
    n_failed: int
    by_batch: bool = False  # True if blocks are whole batches, as for a population
    widening: Measures = {}  # noqa: RUF012 - By measure: printed error over ``mcse``
    estimator: str = "plain"  # ``expansion``, or ``plain``, with the reason if an expansion was requested
    block_length: int = 1  # Blocks of a batch that each contribution covers, except the last
    # Influence values (randomisation,) of the random points of a control variate, common to all cells
    randomisation: Measures = {}  # noqa: RUF012 - never changed

    def printed(self, name: str) -> Array:
        """Return the printed error of a measure."""
        return np.asarray(self.mcse[name] * self.widening[name])

    def with_events(self, counted: Set[str]) -> "Performance":
        """Return the same, where equal numbers of events have the error of two exceptions (Agresti and Coull 1998)."""
        for name in counted - ({*Functions.builtin} - {"coverage", "rejection_rate"}):
            value, share = self.estimate[name], self.contribution[name]
            if np.abs([value - np.rint(value), *share]).max() <= 1e-12 * abs(np.rint(value)):  # up to rounding
                self.mcse[name], self.widening[name] = np.array(2.0**0.5 / self.n_replicates), widening_of(0.0 * share)
        return self


def performance(
    blocks: Moments,
    weights: Array | Combine,
    statistics: Sequence[str],
    overlap: Array = NUMBERS,
    lengths: np.ndarray | None = None,
    of_means: Mapping[str, Callable[[Measures], Array]] | None = None,
    by_query: bool = False,  # Also at each query point, which takes up to four times as long
) -> Performance:
    """Return all measures of a cell with their Monte Carlo standard errors, from at least two defined blocks."""
    combine = weights if callable(weights) else fixed(weights)
    used = blocks.n_defined > 0
    sums = Moments._make([*(each[used] for each in blocks[:4]), *blocks[4:]])
    lengths = np.ones(len(used), np.int64) if lengths is None else lengths
    step = max(1, CHUNK_BYTES // (32 * max(sums.product_sum[0].size, 1)))
    chunks = (means_of(sums, slice(start, start + step)) for start in range(0, len(sums.n_defined), step))
    parts = []
    for means in chunks:
        average, pairs = averages(means, sums.target, overlap)
        parts.append(part := measures_of(average, combine, statistics))
        if by_query:
            part |= measures_by_query(means, sums.target, part["combination_weight"], pairs, overlap)
    with np.errstate(invalid="ignore", divide="ignore"):
        for name, function in (of_means or {}).items():  # their bias is removed by the jackknife
            for part in parts:
                part[name] = function(part)
    whole = {name: values[0] for name, values in parts[0].items()}
    left_out = {name: np.concatenate([part[name][1:] for part in parts]) for name in whole}
    of_blocks = zip(statistics, (sums.statistic_sum / sums.n_defined[:, None]).T[-len(statistics) :], strict=False)
    numbers = {name: each for name, each in of_blocks if name not in (of_means or {})}
    found = jackknifed(whole, left_out, numbers, sums.n_defined, used, lengths, blocks.n_defined, len(blocks.failed))
    quadratic = quadratic_errors(sums, whole["combination_weight"], overlap, lengths[used], by_query)
    # At the end of its range, a measure is a definite quadratic form: its deviation is at most √2 times its bias.
    biases = {n: np.abs(whole[n] - found.estimate[n]) for n in ("linear_predictability", "hdi")}
    quadratic |= {n: np.sqrt(2.0) * bias * (found.mcse[n] > 0.0) for n, bias in biases.items()}
    found.mcse.update({name: np.hypot(found.mcse[name], error) for name, error in quadratic.items()})
    found.remainder.update({name: float(error) for name, error in quadratic.items() if error.ndim == 0})
    return found._replace(block_length=int(lengths[0]))


def jackknifed(
    whole: Measures,
    left_out: Measures,
    numbers: Measures,
    sizes: np.ndarray,
    used: np.ndarray,
    lengths: np.ndarray,
    n_defined: np.ndarray,
    n_failed: int,
) -> Performance:
    """Return measures from values of all blocks, without each used block, or of each alone; and the failure rate."""
    # Failure rates of blocks are over their lengths; the error for few failures is that of Agresti and Coull (1998).
    total, ratio = int(n_defined.sum()) + n_failed, lengths.sum() / lengths
    rates = 1.0 - n_defined * (ratio / total)
    share = (rates - np.average(rates, weights=lengths)) / np.sqrt(ratio * (ratio - 1))
    shrunk, square = (n_failed + 2) / (total + 4), (share**2).sum()
    lacking = float(np.sqrt(max(shrunk * (1 - shrunk) / (total + 4) - square, 0.0)))
    estimate = {"failure_rate": np.array(n_failed / total)}
    mcse = {"failure_rate": np.hypot(np.sqrt(square), lacking)}
    contribution, lacks = {"failure_rate": share}, {"failure_rate": lacking}
    shares: Measures = {}
    for name, values in left_out.items():
        estimate[name], shares[name] = jackknife(whole[name], values, sizes, lengths[used], numbers.get(name))
        mcse[name] = np.sqrt((shares[name] ** 2).sum(axis=0))
        if values.ndim == 1 or name == "hdi":
            # At the positions of blocks or batches, 0 for empty ones, so that cells are aligned.
            contribution[name] = np.zeros((len(used), *values.shape[1:]))
            contribution[name][used] = shares[name]
    # In one call, which takes as long as many numbers.
    together = widening_of(np.concatenate([each.reshape(len(each), -1) for each in shares.values()], axis=1))
    ends = np.cumsum([each[0].size for each in shares.values()])
    parts = zip(shares.items(), np.split(together, ends[:-1]), strict=True)
    wider = {name: part.reshape(each.shape[1:]) for (name, each), part in parts}
    wider["failure_rate"] = widening_of(share)
    counts = int(lengths[used].sum()), total - n_failed, n_failed
    return Performance(estimate, mcse, contribution, lacks, *counts, widening=wider)


def jackknife(whole: Any, left_out: Array, sizes: Any, lengths: Any, pseudo: Any = None) -> tuple[Array, Array]:
    """Return estimate and contributions (block, ...) from values of all blocks and without each, or of each alone."""
    shape = (-1, *[1] * (left_out.ndim - 1))
    ratio, parts = (sizes.sum() / sizes).reshape(shape), (lengths.sum() / lengths).reshape(shape)
    pseudo = ratio * whole - (ratio - 1) * left_out if pseudo is None else pseudo
    estimate = (pseudo / ratio).sum(axis=0)
    return estimate, (pseudo - estimate) / np.sqrt(parts * (ratio - 1))


def quadratic_errors(sums: Moments, weights: Array, overlap: Array, lengths: np.ndarray, by_query: bool) -> Measures:
    """Return errors of the quadratic part of squared biases: √(2 Σ S_qq'²)/Q for averages, √2·S_qq at each query."""
    mean_error = sums.error_sum / sums.n_defined[:, None, None]
    sizes, heads = (sums.n_defined, lengths), mean_error * np.sqrt(np.diagonal(overlap))
    values, vectors = np.linalg.eigh(overlap)
    components = weights[:, None] * (vectors * np.sqrt(np.maximum(values, 0.0)))
    together, of_heads = (jackknife(0.0, each, *sizes, each)[1] for each in (mean_error @ components, heads))
    of = {"squared_bias": (together, 1), "mean_squared_bias": (of_heads, len(weights))}
    found = {name: _averaged(each) / n for name, (each, n) in of.items()}
    found["head_squared_bias"] = np.stack([_averaged(of_heads[..., h, None]) for h in range(len(weights))])
    if by_query:
        found |= {f"{name}_by_query": _at_each(each) / n for name, (each, n) in of.items()}
    return found


def _averaged(deviations: Array) -> Array:
    flat = deviations.reshape(len(deviations), deviations[0].size)
    # |DᵀD| = |DDᵀ| in the Frobenius norm; the smaller matrix is computed.
    covariance = flat.T @ flat if flat.shape[1] < len(flat) else flat @ flat.T
    return np.array(np.sqrt(2.0) * np.linalg.norm(covariance) / (deviations.shape[1] or np.nan))


def _at_each(deviations: Array) -> Array:
    return np.asarray(np.sqrt(2.0) * np.linalg.norm(np.einsum("bqc,bqe->qce", deviations, deviations), axis=(1, 2)))


def means_of(sums: Moments, left_out: slice = slice(None), axis: int = 0) -> Means:
    """Return means of errors, products and statistics: over all blocks of an axis, then without each chosen one."""

    def without_each(field: Any) -> Any:
        total = field.sum(axis=axis, keepdims=True)
        return np.concatenate([total, total - field[*[slice(None)] * axis, left_out]], axis=axis)

    count, *fields = map(without_each, (sums.n_defined, sums.error_sum, sums.product_sum, sums.statistic_sum))
    errors, products, statistics = (x / count.reshape(*count.shape, *[1] * (x.ndim - count.ndim)) for x in fields)
    return errors, products, statistics


def halvings_of(n_batches: int) -> int:
    """Return how often neighbouring blocks are added in pairs until ``n_batches`` have at most `MOST_BLOCKS`."""
    return (-(-n_batches * N_BLOCKS // MOST_BLOCKS) - 1).bit_length() if n_batches else 0


def whole_batches(n_batches: int) -> int:
    """Return the number of first batches, among ``n_batches``, that make up whole blocks."""
    per_block = max(1, (1 << halvings_of(n_batches)) // N_BLOCKS)
    return n_batches // per_block * per_block


def halved(blocks: Moments, times: int) -> Moments:
    """Return blocks after neighbours were added ``times`` times; a last block without neighbour is kept."""
    for _ in range(times):
        first = np.arange(0, len(blocks.n_defined), 2)
        blocks = Moments._make([*(np.add.reduceat(each, first) for each in blocks[:5]), *blocks[5:]])
    return blocks


def block_lengths(n_batches: int) -> NDArray[np.int64]:
    """Return the length of each block of ``n_batches`` batches, in original blocks."""
    return np.diff(np.arange(0, n_batches * N_BLOCKS, 1 << halvings_of(n_batches)), append=n_batches * N_BLOCKS)
