"""Performance over a population of query points and heads, of which each batch has its own: a nested design.

Within a batch, its blocks give averages over its queries without bias, as `replicates.performance` does.  These are
independent between batches and have one distribution, whose mean is that of the population.  So a measure is a function
of a mean of independent draws, and the jackknife over batches gives its estimate, its error over the population, and
contributions of which there is one for each batch.

The error given the points and heads that were drawn follows from the blocks within batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simstudy.attention.combinations import Combine, combine_heads
from simstudy.data.value_projections import overlap
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.known_means import MIN_THIRD_ORDER, have_closed_forms
from simstudy.replicates.measures import NUMBERS, Averages, Measures, averages, measures_of
from simstudy.replicates.moments import EXPANSION, PLAIN, Array, Moments, controlled, stack
from simstudy.replicates.performance import Performance, failures, jackknifed, performance, placed, quadratic_errors

if TYPE_CHECKING:
    from simstudy.attention.expansion import Known

# Index legend: g geometry (batch), k block within it, then what `Averages` says.

CHUNK_BYTES = 64 << 20
"""Largest array of leave-one-out means held at once."""


def measured(cell: Cell, batches: Sequence[Moments], lengths: np.ndarray | None = None) -> Performance | None:
    """Return the performance of a cell, from its batches in index order; None with too few defined estimates."""
    combine = combine_heads(cell)
    if cell.population:
        if sum(map(_usable, batches)) < 2:
            return None
        overlaps = [_overlap(cell.in_batch(number)) for number in range(len(batches))]
        blocks, estimator = _controlled(cell, batches, None)
        if estimator == EXPANSION:
            sums = zip(*(np.split(each, len(batches)) for each in blocks[1:3]), strict=True)
            batches = [each._replace(error_sum=e, product_sum=p) for each, (e, p) in zip(batches, sums, strict=True)]
        found = population_performance(batches, combine, cell.statistics, overlaps)
        return found._replace(estimator=_stated(estimator, cell))
    nets = _nets(cell) if cell.controlled and not have_closed_forms(cell) else None
    blocks, estimator = _controlled(cell, batches, nets)
    if np.count_nonzero(blocks.n_defined) < 2:
        return None
    used = nets if estimator == EXPANSION else None
    found = performance(blocks, combine, cell.statistics, _overlap(cell), lengths, used)
    return found._replace(estimator=_stated(estimator, cell))


def _controlled(cell: Cell, batches: Sequence[Moments], nets: Array | None) -> tuple[Moments, str]:
    """As `controlled`; a budget may leave too few replicates for third order."""
    blocks = stack(list(batches))
    if cell.simulation.control == "third_order" and blocks.n_defined.sum() + len(blocks.failed) < MIN_THIRD_ORDER:
        bare = blocks._replace(control_sum=blocks.control_sum[..., :0])
        return bare, f"{PLAIN}: with fewer than {MIN_THIRD_ORDER} replicates intervals of third order are too short"
    return controlled(blocks, nets)


def _nets(cell: Cell) -> Array | None:
    """Deviations of what nets give as known means (net, query, head + pair); None where these are exact."""
    known = _known(cell)
    return None if isinstance(known, str) else known.deviations


def _known(cell: Cell) -> Known | str:
    # Imported here: it compiles, which those who read plain moments need not wait for.
    from simstudy.attention.expansion import known_of

    return known_of(cell.decisive)


def _stated(estimator: str, cell: Cell) -> str:
    """Estimator with the reason why nothing was taken off a cell that asked for it."""
    if estimator != PLAIN or not cell.controlled:
        return cell.simulation.control if estimator == EXPANSION else estimator
    known = _known(cell)
    if not isinstance(known, str):
        known = "replicates do not differ" if cell.even_noise else "outcomes are noise alone, of uneven variance"
    return f"{PLAIN}: {known}"


def _overlap(cell: Cell) -> Array:
    found = overlap(cell)
    return NUMBERS if found is None else found


def population_performance(
    batches: Sequence[Moments], combine: Combine, statistics: Sequence[str], overlaps: Sequence[Array]
) -> Performance:
    """Return every measure of a cell with its error over the population, and the error given what was drawn."""
    used = np.array([_usable(batch) for batch in batches])
    kept = [drawn for drawn, use in zip(zip(batches, overlaps, strict=True), used, strict=True) if use]
    own, share = _within(kept)
    n = len(kept)
    mean = Averages(*(each.mean(axis=0, keepdims=True) for each in own))
    left_out = Averages(*((n * whole - each) / (n - 1) for whole, each in zip(mean, own, strict=True)))
    whole, others = (measures_of(each, combine, statistics) for each in (mean, left_out))
    n_defined = np.array([batch.n_defined.sum() for batch in batches])
    n_failed = sum(len(batch.failed) for batch in batches)
    of_all = {name: values[0] for name, values in whole.items()}
    over = jackknifed(of_all, others, np.ones(n), used, np.ones(len(batches)), n_defined, n_failed)
    moved = Averages(*(each + part.reshape(-1, *part.shape[2:]) / n for each, part in zip(mean, share, strict=True)))
    influence_given = {name: each - whole[name] for name, each in measures_of(moved, combine, statistics).items()}
    weights, ones = whole["combination_weight"][0], np.ones(len(batches[0].n_defined))
    quadratic = [quadratic_errors(batch, weights, each, ones, by_query=False) for batch, each in kept]
    return over._replace(given=_given(over, influence_given, batches, used, quadratic))


def _usable(batch: Moments) -> bool:
    """Whether a batch has the two blocks with a defined replicate that an estimate without bias takes."""
    return int(np.count_nonzero(batch.n_defined)) >= 2


def _given(
    over: Performance, influence: Measures, batches: Sequence[Moments], used: np.ndarray, quadratic: Sequence[Measures]
) -> Performance:
    """Performance given the points and heads of all batches, from what their blocks do to each measure (g · k, ...)."""
    mcse = {name: np.sqrt((each**2).sum(axis=0)) for name, each in influence.items()}
    remainder: dict[str, float] = {}
    for name in ("squared_bias", "mean_squared_bias", "head_squared_bias"):
        error = np.sqrt(sum(each[name] ** 2 for each in quadratic)) / len(quadratic)
        mcse[name] = np.hypot(mcse[name], error)
        if name in over.contribution:
            remainder[name] = float(error)
    n_blocks = len(batches[0].n_defined)
    of_blocks = np.repeat(used, n_blocks)
    contribution = {name: placed(influence[name], of_blocks) for name in over.contribution if name in influence}
    n_defined = np.concatenate([batch.n_defined for batch in batches])
    _, contribution["failure_rate"], lacking = failures(n_defined, over.n_failed, np.ones(len(n_defined)))
    mcse["failure_rate"], remainder["failure_rate"] = over.mcse["failure_rate"], lacking
    return over._replace(mcse=mcse, contribution=contribution, remainder=remainder, n_blocks=n_blocks * over.n_blocks)


def _within(drawn: Sequence[tuple[Moments, Array]]) -> tuple[Averages, Averages]:
    """Averages of each geometry without bias, (g, ...), and contributions of its blocks to their error, (g, k, ...)."""
    first, _ = drawn[0]
    size = (1 + len(first.n_defined)) * 8 * max(first.product_sum[0].size, 1) * 4
    step = max(1, CHUNK_BYTES // size)
    parts = [_jackknifed(drawn[start : start + step]) for start in range(0, len(drawn), step)]
    joined = (Averages(*map(np.concatenate, zip(*each, strict=True))) for each in zip(*parts, strict=True))
    own, share = joined
    return own, share


def _jackknifed(drawn: Sequence[tuple[Moments, Array]]) -> tuple[Averages, Averages]:
    """As `_within`, of a few batches at once."""
    batches, overlaps = zip(*drawn, strict=True)
    counts = np.stack([batch.n_defined for batch in batches]).astype(float)
    n_batches, n_blocks = counts.shape
    total = counts.sum(axis=1, keepdims=True)
    left = np.concatenate([total, total - counts], axis=1)

    def means(field: str) -> Array:
        sums = np.stack([getattr(batch, field) for batch in batches])
        whole = sums.sum(axis=1, keepdims=True)
        kept = np.concatenate([whole, whole - sums], axis=1) / left.reshape(*left.shape, *[1] * (sums.ndim - 2))
        return np.asarray(kept.reshape(-1, *sums.shape[2:]))

    target = np.repeat(np.stack([batch.target for batch in batches]), 1 + n_blocks, axis=0)
    through = np.repeat(np.stack(overlaps), 1 + n_blocks, axis=0)
    found, _ = averages((means("error_sum"), means("product_sum"), means("statistic_sum")), target, through)
    own, share = zip(*(_combined(each.reshape(n_batches, 1 + n_blocks, *each.shape[1:]), counts) for each in found),
                     strict=True)  # fmt: skip
    return Averages(*own), Averages(*share)


def _combined(values: Array, counts: Array) -> tuple[Array, Array]:
    """Jackknife of all geometries at once, from values (g, 1 + k, ...) of all blocks and with each left out."""
    shape = (*counts.shape, *[1] * (values.ndim - 2))
    size = (counts / counts.sum(axis=1, keepdims=True)).reshape(shape)
    some = size > 0.0
    n_blocks = some.sum(axis=1, keepdims=True)
    whole, left_out = values[:, :1], values[:, 1:]
    estimate = n_blocks * whole - np.where(some, (1.0 - size) * left_out, 0.0).sum(axis=1, keepdims=True)
    ratio = 1.0 / np.where(some, size, 0.5)
    pseudo = ratio * whole - (ratio - 1.0) * left_out
    share = np.where(some, (pseudo - estimate) / np.sqrt(n_blocks * (ratio - 1.0)), 0.0)
    return estimate[:, 0], share
