"""Performance over a population of query points and heads, of which each batch has its own: a nested design.

Within a batch, its blocks give averages over its queries without bias, as `replicates.performance` does.  These are
independent between batches and have one distribution, whose mean is that of the population.  So a measure is a function
of a mean of independent draws, and the jackknife over batches gives its estimate, its error over the population, and
contributions of which there is one for each batch.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from simstudy.attention.combinations import combine_heads
from simstudy.data.heads import overlap
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.replicates.measures import NUMBERS, Averages, averages, measures_of, mirrored
from simstudy.replicates.moments import PLAIN, Array, Draw, Moments, controlled, stack
from simstudy.replicates.performance import Performance, averaged, defined, jackknifed, means_of, performance

# Index legend: g geometry (batch), k block within it, then what `Averages` says.


def measured(
    cell: Cell, batches: Sequence[Moments] | Sequence[Draw], lengths: np.ndarray | None = None, first: int = 0
) -> Performance | None:
    """Return the performance of a cell, from its batches from the first on; None with too few defined estimates."""
    combine, estimator, draws = combine_heads(cell), PLAIN, cast(Sequence[Draw], batches)
    if isinstance(batches[0], Moments):
        whole = cast(Sequence[Moments], batches)
        blocks = stack(list(whole))
        if not cell.controlled:
            blocks = blocks._replace(control_sum=blocks.control_sum[..., :0])
        else:
            blocks, estimator = controlled(blocks)
            if estimator == PLAIN:
                # Imported here: it compiles, which those who read plain moments need not wait for.
                from simstudy.attention.expansion import known_of

                known: Any = known_of(cell)
                if not isinstance(known, str):
                    known = "replicates do not differ" if cell.even_noise else "outcomes are noise of uneven variance"
                estimator = f"{PLAIN}: {known}"
        if not cell.population:
            given = _overlap(cell), lengths, cell.functions.of_means if cell.functions else None
            usable = np.count_nonzero(blocks.n_defined) >= 2
            found = performance(blocks, combine, cell.statistics, *given) if usable else None
            return found and found._replace(estimator=estimator)
        sums = zip(*(np.split(each, len(whole)) for each in blocks[1:3]), strict=True)
        less = (each._replace(error_sum=e, product_sum=p) for each, (e, p) in zip(whole, sums, strict=True))
        draws = [draw_of(cell, number, each) for number, each in enumerate(less, first)]
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
        {name: values[0] for name, values in of_all.items()}, others, averaged(own.statistics, cell.statistics),
        np.ones(n), used, np.ones(len(draws)), n_defined, n_failed,
    )  # fmt: skip
    return over._replace(by_batch=True, block_length=N_BLOCKS, estimator=estimator)


def draw_of(cell: Cell, number: int, batch: Moments) -> Draw:
    """Averages of the one geometry of a batch of a population, without bias, by a jackknife over blocks."""
    n_defined, (used, sums) = int(batch.n_defined.sum()), defined(batch)
    if used.sum() < 2:  # blocks, which an estimate without bias takes
        return Draw(n_defined, None, batch.failed)
    found, _ = averages(means_of(sums, slice(None)), sums.target, _overlap(cell.in_batch(number)))
    size = sums.n_defined / n_defined
    parts = [size.reshape(-1, *[1] * (each.ndim - 1)) for each in found]
    own = (len(size) * each[0] - ((1.0 - part) * each[1:]).sum(axis=0) for each, part in zip(found, parts, strict=True))
    pairs = np.triu_indices(sums.error_sum.shape[-1])
    return Draw(n_defined, tuple(each[pairs] if each.ndim == 2 else each for each in own), batch.failed)


def _overlap(cell: Cell) -> Array:
    return NUMBERS if (found := overlap(cell)) is None else found
