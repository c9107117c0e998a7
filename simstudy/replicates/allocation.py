"""How many replicates: of each draw of a population, of a grid with or without control, and when a cell has enough.

Decisions depend on the batches in index order alone, never on when they arrived, so that they are the same on any
number of workers and after any interruption.

With c_d and c_r the costs of a draw and of a replicate, σ_b² the variance between draws and σ_w² that between
replicates of one draw, the time to one error with m replicates a draw is as (c_d + m c_r) (σ_b² + σ_w² / m): least at
m = √(c_d σ_w² / (c_r σ_b²)) (Neyman).  Variances come from draws that no batch has, so that estimates stay unbiased,
and costs from counts of operations: the size is the same whoever chooses it, and when.  By such replicates, too, a
grid that only wants a precision, in a study without claims, is plain where it is there sooner.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from simstudy.design.document import Design, PlannedCell, Precision
from simstudy.design.settings.cell import MIN_BLOCKS, N_BLOCKS, Cell
from simstudy.errors import UserError

if TYPE_CHECKING:  # who looks at a study need not wait for it
    from simstudy.replicates.performance import Performance

MEASURES = ("mse", "ensemble_variance")  # of which the one with the larger relative error counts
SIZES = 1 << np.arange(2, 11)
PILOT_CELLS, PILOT_DRAWS, FIRST_DRAW = 4, 32, 1 << 40
_libraries = functools.cache(ThreadpoolController)  # whose threads decide bits; to find them takes a millisecond


def sized(design: Design) -> Design:
    """Return a design with batch sizes of populations, and controls, also where grids state none and code may run."""
    cells = list(design.cells)
    for _, numbers in groupby(range(len(cells)), lambda number: cells[number].grid):
        grid, chosen = list(numbers), dict[str, Any]()
        free = [number for number in grid if not states_size(cells[number].cell)]
        with contextlib.suppress(UserError):
            if any(cells[number].cell.population for number in free):
                most = cells[free[0]].precision.max_replicates // MIN_BLOCKS
                chosen = {"batch_size": best_size([cells[number].cell for number in free], most)}
            elif not design.claims and is_sooner_plain([cells[number] for number in grid]):
                free, chosen = grid, {"control": "none"}
        for number in free if chosen else ():
            own = cells[number].cell.with_simulation(**chosen)
            cells[number] = cells[number].model_copy(update={"cell": own})
    return design.model_copy(update={"cells": tuple(cells)})


def states_size(cell: Cell) -> bool:
    """True if replicates in a batch are stated, or those by default as there is no population."""
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


def is_sooner_plain(grid: Sequence[PlannedCell]) -> bool:
    """Return whether cells that leave their control open reach their precision sooner without: by a pilot of some."""
    (first, precision), costs = (grid[0].cell, grid[0].precision), np.zeros(2)
    targets = {**precision.relative_mcse, **precision.absolute_mcse} if precision.stop == "precision" else {}
    if not (targets and first.controlled) or "control" in first.simulation.model_fields_set:
        return False
    least = first.simulation.batch_size * first_target(precision, first.simulation.batch_size)
    for each in grid[:: -(-len(grid) // PILOT_CELLS)]:
        ways = [each.cell.with_simulation(control=way) for way in ("none", "expansion")]
        pilot = ways[0].with_simulation(batch_size=min(max(4, least // 64), N_BLOCKS))
        if (performance := _pilot(pilot, FIRST_DRAW)) is None:
            return False
        # The control is taken to need no more than the least.
        wanted = min(performance.n_replicates * shortfall(performance, precision).ratio ** 2, precision.max_replicates)
        replicates = max(least, wanted), least
        costs += [fixed + n * one for n, (fixed, one) in zip(replicates, map(operations, ways), strict=True)]
    return bool(costs[0] <= costs[1])


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
    control, more = (0.04 * cell.control_operations + 1e4 * pairs, 90.0 * pairs) if cell.controlled else (0.0, 0.0)
    return 7e5 + 300.0 * pairs + 0.4 * products + control, 1e3 + n * of_key + 2.5 * pairs + more


def cost(cell: Cell) -> float:
    """Return the estimated cost of a batch of a cell, about nanoseconds."""
    of_draw, of_replicate = operations(cell)
    return of_draw + cell.simulation.batch_size * of_replicate


def _pilot(cell: Cell, number: int) -> Any:
    """Averages of one batch at its own query points and heads; None if a replicate fails."""
    from simstudy.replicates.batch import simulate_batch
    from simstudy.replicates.population import measured

    with _libraries().limit(limits=1):
        performance = measured(cell.with_simulation(population=()), simulate_batch([cell], number))
    return None if performance is None or performance.n_failed else performance


def variances(cell: Cell) -> Any:
    """Return variances between and within draws over squared means, (2, measure); None if a replicate fails."""
    draws = range(FIRST_DRAW, FIRST_DRAW + PILOT_DRAWS)
    cell = cell.with_simulation(batch_size=N_BLOCKS)
    pilots = [each for number in draws if (each := _pilot(cell, number))]
    if len(pilots) < PILOT_DRAWS:
        return None
    found = [[[table[name] for name in MEASURES] for table in (each.estimate, each.mcse)] for each in pilots]
    estimates, errors = np.moveaxis(np.array(found), 1, 0)
    error = (errors**2).mean(axis=0)
    both = np.stack([np.maximum(estimates.var(axis=0, ddof=1) - error, 0.0), (N_BLOCKS - 1) * error])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(both / estimates.mean(axis=0) ** 2, posinf=0.0)


MIN_BATCHES = 4
"""Batches before the first look: from fewer blocks the MCSE is so uncertain that the rule would stop too early."""
GROWTH = 4
"""Largest factor by which the number of batches may grow between two looks: guards against an early, poor MCSE."""


def first_target(precision: Precision, batch_size: int, *, population: bool = False) -> int:
    """Return the batches before the first look: the floor, and enough for an MCSE, but no more than the ceiling."""
    floor = -(-precision.min_replicates // batch_size)
    least = MIN_BLOCKS if population else MIN_BATCHES
    return min(max(floor, least), -(-precision.max_replicates // batch_size))


class Shortfall(NamedTuple):
    """The measure whose MCSE is furthest from what is wanted: ``ratio`` is ``mcse / wanted``."""

    ratio: float
    measure: str
    mcse: float
    wanted: float


def shortfall(performance: Performance, precision: Precision) -> Shortfall:
    """Return the largest ratio of an MCSE to the MCSE wanted; undefined measures want none, nor do verdicts."""
    found, known = [Shortfall(0.0, "", 0.0, 0.0)], {} if precision.stop == "verdict" else performance.estimate
    wanted = [(m, r * abs(float(known[m]))) for m, r in precision.relative_mcse.items() if m in known]
    wanted += [(m, target) for m, target in precision.absolute_mcse.items() if m in known]
    for measure, target in wanted:
        if (mcse := float(performance.mcse[measure])) > 0.0:
            found.append(Shortfall(mcse / target if target > 0.0 else math.inf, measure, mcse, target))
    return max(found)


def needed(done: int, performance: Performance, precision: Precision, batch_size: int) -> int:
    """Return how many batches the precision will take, by the root law of the MCSE, and a tenth more."""
    ceiling, ratio = -(-precision.max_replicates // batch_size), shortfall(performance, precision).ratio
    if ratio <= 1.0 or done >= ceiling:
        return done
    return math.ceil(min(1.1 * done * (ratio * ratio), ceiling))


def next_target(done: int, performance: Performance, precision: Precision, batch_size: int) -> int:
    """Return the number of batches wanted at the next look after ``done`` of them; ``done`` itself to stop."""
    return min(needed(done, performance, precision, batch_size), GROWTH * done)
