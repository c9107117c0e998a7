"""Performance over a population of query points and heads, which are drawn anew in each batch: a nested design.

The blocks of a batch give unbiased averages over its queries, as in `replicates.performance`.  Averages of batches are
independent and identically distributed, with the mean of the population.  So a measure is a function of a mean of
independent draws, and the jackknife over batches gives its estimate, error, and contributions.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from simstudy.attention.combinations import combine_heads
from simstudy.attention.expansion import known_of
from simstudy.attention.members import pairs_of
from simstudy.data.heads import overlap
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.replicates.measures import NUMBERS, Averages, averages, measures_of, mirrored
from simstudy.replicates.moments import PLAIN, Array, Draw, Moments, controlled, stack
from simstudy.replicates.performance import CHUNK_BYTES, Performance, jackknifed, means_of, performance


def measured(
    cell: Cell, batches: Sequence[Moments | Draw], lengths: Any = None, first: int = 0, by_query: bool = False
) -> Performance | None:
    """Return the performance of a cell from batches from ``first`` on; None with too few defined estimates."""
    combine, estimator, draws = combine_heads(cell), PLAIN, cast(Sequence[Draw], batches)
    if isinstance(batches[0], Moments):
        whole = cast(Sequence[Moments], batches)
        blocks = stack(list(whole))
        if cell.controlled:
            blocks, estimator = controlled(blocks)
            if estimator == PLAIN:
                why = "replicates do not differ" if cell.even_noise else "outcomes are noise of uneven variance"
                estimator = f"{PLAIN}: {known if isinstance(known := known_of(cell), str) else why}"
        if not cell.population:
            given = _overlap(cell), lengths, cell.functions.of_means if cell.functions else None, by_query
            usable = np.count_nonzero(blocks.n_defined) >= 2
            found = performance(blocks, combine, cell.statistics, *given) if usable else None
            return found and found._replace(estimator=estimator)
        draws = draws_of(cell, blocks._replace(target=np.stack([each.target for each in whole])), first)
    used = np.array([draw.averages is not None for draw in draws])
    if used.sum() < 2:
        return None
    own = Averages(*map(np.stack, zip(*(draw.averages for draw in draws if draw.averages), strict=True)))
    matrices = {name: mirrored(getattr(own, name)) for name in ("bias_product", "covariance", "second", "output")}
    own = own._replace(**{name: np.ascontiguousarray(each) for name, each in matrices.items()})
    n = len(own.covariance)
    mean = Averages(*(each.mean(axis=0, keepdims=True) for each in own))
    left_out = Averages(*((n * all_draws - each) / (n - 1) for all_draws, each in zip(mean, own, strict=True)))
    of_all, others = (measures_of(each, combine, cell.statistics) for each in (mean, left_out))
    n_defined, n_failed = np.array([draw.n_defined for draw in draws]), sum(len(draw.failed) for draw in draws)
    over = jackknifed(
        {name: values[0] for name, values in of_all.items()}, others,
        dict(zip(cell.statistics, own.statistics.T[-len(cell.statistics) :], strict=False)),
        np.ones(n), used, np.ones(len(draws)), n_defined, n_failed,
    )  # fmt: skip
    return over._replace(by_batch=True, block_length=N_BLOCKS, estimator=estimator)


def draws_of(cell: Cell, blocks: Moments, first: int = 0) -> list[Draw]:
    """Return unbiased averages over the queries of each batch, by a jackknife over its blocks."""
    targets, failed = np.atleast_2d(blocks.target), blocks.failed
    n_defined, *sums = (each.reshape(len(targets), -1, *each.shape[1:]) for each in blocks[:4])
    overlaps = [_overlap(cell.in_batch(number)) for number in range(first, first + len(targets))]
    if len(targets) > 1 and (failed.size or len({*map(bytes, overlaps)}) > 1 or 32 * sums[1].size > CHUNK_BYTES):
        of, rows = failed // cell.simulation.batch_size - first, enumerate(zip(n_defined, *sums, strict=True))
        alone = (Moments._make([*own, blocks.control_sum, targets[k], failed[of == k]]) for k, own in rows)
        return [draw for number, each in enumerate(alone, first) for draw in draws_of(cell, each, number)]
    if (n := np.count_nonzero(used := n_defined[0] > 0)) < 2:  # blocks, the least for an unbiased estimate
        return [Draw(int(n_defined.sum()), None, failed)]
    some = Moments._make([*(np.compress(used, each, axis=1) for each in (n_defined, *sums)), *blocks[4:]])
    bias, products, statistics = (each.reshape(-1, *each.shape[2:]) for each in means_of(some, axis=1))
    found, _ = averages((bias, products, statistics), np.repeat(targets, n + 1, axis=0), overlaps[0])
    counts, pairs = n_defined.sum(axis=1), pairs_of(bias.shape[-1])
    share = some.n_defined / counts[:, None]

    def unbiased(of_cases: Array) -> Array:
        each = of_cases.reshape(len(targets), n + 1, *of_cases.shape[1:])
        part = share.reshape(*share.shape, *[1] * (each.ndim - 2))
        own = n * each[:, 0] - ((1.0 - part) * each[:, 1:]).sum(axis=1)
        return own[:, *pairs] if own.ndim == 3 else own

    return [Draw(*each, failed) for each in zip(counts.tolist(), zip(*map(unbiased, found), strict=True), strict=True)]


def _overlap(cell: Cell) -> Array:
    return NUMBERS if (found := overlap(cell)) is None else found
