"""Replicates in each draw of a population: those by which the errors of a grid take the least time to fall.

With c_d and c_r the costs of a draw and of a replicate, σ_b² the variance between draws and σ_w² that between
replicates of one draw, the time to one error with m replicates a draw is as (c_d + m c_r) (σ_b² + σ_w² / m): least at
m = √(c_d σ_w² / (c_r σ_b²)) (Neyman).  Variances come from draws that no batch has, so that estimates stay unbiased,
and costs from counts of operations: the size is the same whoever chooses it, and when.
"""

import contextlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from simstudy.design.document import Design
from simstudy.design.settings.cell import MIN_BLOCKS, N_BLOCKS, Cell
from simstudy.errors import UserError

MEASURES = ("mse", "ensemble_variance")  # of which the one with the larger relative error counts
SIZES = 1 << np.arange(2, 11)
PILOT_CELLS, PILOT_DRAWS, FIRST_DRAW = 4, 32, 1 << 40


def sized(design: Design) -> Design:
    """Return a design with batch sizes also of grids over a population that state none, if their code may run."""
    cells = list(design.cells)
    free = [number for number, planned in enumerate(cells) if not states_size(planned.cell)]
    for _, numbers in groupby(free, lambda number: cells[number].grid):
        of_grid = {number: cells[number].cell for number in numbers}
        if any(cell.population for cell in of_grid.values()):
            with contextlib.suppress(UserError):
                size = best_size([*of_grid.values()], cells[min(of_grid)].precision.max_replicates // MIN_BLOCKS)
                for number, cell in of_grid.items():
                    own = with_settings(cell, "simulation", batch_size=size)
                    cells[number] = cells[number].model_copy(update={"cell": own})
    return design.model_copy(update={"cells": tuple(cells)})


def states_size(cell: Cell) -> bool:
    """Whether replicates in a batch are stated, or those by default as there is no population."""
    return not cell.simulation.population or "batch_size" in cell.simulation.model_fields_set


def best_size(cells: Sequence[Cell], most: int = SIZES[-1]) -> int:
    """Return the number of replicates a draw by which some of the cells together take the least time to one error."""
    drawn = [cell for cell in cells if cell.population]
    least = SIZES[0] if len(drawn) == len(cells) else N_BLOCKS
    sizes = SIZES[(least <= SIZES) & (max(most, least) >= SIZES)]
    total = np.zeros(len(sizes))
    for cell in drawn[:: -(-len(drawn) // PILOT_CELLS)]:
        if (found := variances(cell)) is None:
            return N_BLOCKS
        (between, within), (of_draw, of_replicate) = found, operations(cell)
        # Of variances that are estimated within a draw, the variance falls with the degrees of freedom.
        needed = (between + within / (sizes[:, None] - 1)).max(axis=1, initial=0.0)
        total += (of_draw + sizes * of_replicate) * needed
    return int(sizes[np.argmin(total)])


def operations(cell: Cell) -> tuple[float, float]:
    """Return the estimated cost of a draw and of a replicate, by what they draw and compute: about nanoseconds."""
    from simstudy.data.span import n_coordinates

    n, d, n_heads, p = cell.data.n_keys, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim
    estimator, drawn = cell.estimator, n_coordinates(cell)
    n_queries = cell.n_queries or n  # functions are taken for attention of every key to all
    compiled = estimator.normaliser.kind in ("softmax", "compact") and estimator.learner.kind == "nadaraya_watson"
    columns, pairs = n_heads * (p if drawn is None else n_queries), n_queries * n_heads**2
    of_key = (drawn or d) * (1.5 + 0.02 * columns) + (0.25 if compiled else 25.0) * n_queries * n_heads
    products = d * (n_queries * n_heads * p + (drawn or 0) ** 2 + ("heads" in cell.population) * (n_heads * p) ** 2)
    control = 0.25 * cell.control_operations if cell.controlled else 0.0
    return 7e5 + 300.0 * pairs + 0.4 * products + control, 1e3 + n * of_key + 2.5 * pairs


def variances(cell: Cell) -> Any:
    """Return variances between and within draws over squared means, (2, measure); None if a replicate fails."""
    from threadpoolctl import threadpool_limits

    from simstudy.replicates.batch import simulate_batch
    from simstudy.replicates.population import measured

    one, found = with_settings(cell, "simulation", population=()), []
    cell = with_settings(cell, "simulation", batch_size=N_BLOCKS)
    with threadpool_limits(limits=1):
        for number in range(FIRST_DRAW, FIRST_DRAW + PILOT_DRAWS):
            (batch,) = simulate_batch([cell], number)
            told = measured(one, [batch])
            if told is None or told.n_failed:
                return None
            found.append([[table[name] for name in MEASURES] for table in (told.estimate, told.mcse)])
    estimates, errors = np.moveaxis(np.array(found), 1, 0)
    error = (errors**2).mean(axis=0)
    both = np.stack([np.maximum(estimates.var(axis=0, ddof=1) - error, 0.0), (N_BLOCKS - 1) * error])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(both / estimates.mean(axis=0) ** 2, posinf=0.0)


def with_settings(cell: Cell, table: str, **settings: Any) -> Cell:
    """Return a cell with other settings in one of its tables."""
    return cell.model_copy(update={table: getattr(cell, table).model_copy(update=settings)})
