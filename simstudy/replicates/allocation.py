"""How many replicates: of each draw of a population, of a grid with or without control, and when a cell has enough.

Decisions depend on the batches in index order alone, never on when they arrived, so that they are the same on any
number of workers and after any interruption.

With c_d and c_r the costs of a draw and of a replicate, σ_b² the variance between draws and σ_w² that between
replicates of one draw, the time to one error with m replicates a draw is as (c_d + m c_r) (σ_b² + σ_w² / m): least at
m = √(c_d σ_w² / (c_r σ_b²)) (Neyman).  Variances come from draws that no batch has, so that estimates stay unbiased,
and costs from counts of operations: the choice is the same whoever makes it, and when.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from itertools import groupby, product
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
ANY = Precision(relative_mcse=dict.fromkeys(MEASURES, 1.0))  # one error of both, of any size: times are compared alone
Control = Callable[[Cell, "Performance", int], "Performance"]
"""Takes the performance of a cell by batches from one on to one with smaller errors."""
_libraries = functools.cache(ThreadpoolController)  # whose threads decide bits; to find them takes a millisecond


def sized(design: Design, control: Control | None = None) -> Design:
    """Return a design with batch sizes of populations, and controls, also where grids state none and code may run."""
    cells = list(design.cells)
    for _, numbers in groupby(range(len(cells)), lambda number: cells[number].grid):
        grid, chosen = list(numbers), dict[str, Any]()
        free = [number for number in grid if not states_size(cells[number].cell)] or grid
        with contextlib.suppress(UserError):
            chosen = quickest([cells[number] for number in free], bool(design.claims), control)
        for number in free if chosen else ():
            cells[number] = cells[number].model_copy(update={"cell": cells[number].cell.with_simulation(**chosen)})
    return design.model_copy(update={"cells": tuple(cells)})


def states_size(cell: Cell) -> bool:
    """True if replicates in a batch are stated, or those by default as there is no population."""
    return not cell.simulation.population or "batch_size" in cell.simulation.model_fields_set


def quickest(grid: Sequence[PlannedCell], claims: bool, control: Control | None = None) -> dict[str, Any]:
    """Return the replicates a draw that cells leave open, and ``none`` for such a control, if time to errors is less.

    Errors are those wanted if they are all that is wanted; else one of ``MEASURES``, and populations are plain.
    """
    first, precision = grid[0].cell, grid[0].precision
    precise = not claims and precision.stop == "precision" and bool(precision.relative_mcse or precision.absolute_mcse)
    ways, stated = [dict[str, Any]()], states_size(first)
    if first.controlled and "control" not in first.simulation.model_fields_set and (precise or first.population):
        ways = [{"control": "none"}, {}][: 1 + precise]
    if stated and len(ways) == 1:
        return ways[0]
    sizes = SIZES[max(SIZES[0], precision.max_replicates // MIN_BLOCKS) >= SIZES]
    sizes = np.array([first.simulation.batch_size]) if stated else sizes
    least = [first_target(precision, size, population=bool(first.population)) for size in sizes] if precise else 0
    total = np.zeros((len(ways), len(sizes)))
    for planned, (row, way) in product(grid[:: -(-len(grid) // PILOT_CELLS)], zip(total, ways, strict=True)):
        cell = planned.cell.with_simulation(**way)
        of_draw, of_replicate = operations(cell)
        once, each = (0.0, of_draw) if cell.population else (of_draw, 0.0)
        batch = each + sizes * of_replicate
        if len(ways) > 1 and not way and (row + once + batch * least).min() > total[0].min():
            row += np.inf  # It cannot be sooner, and its pilot might take longer than the cell.
            continue
        known = cell.controlled and not cell.population  # which is taken to need no more than the least
        found = np.zeros((2, 1)) if known else variances(cell, precision if precise else ANY, control)
        if found is None:
            return (ways[0] if first.population else {}) | ({} if stated else {"batch_size": N_BLOCKS})
        # Of variances that are estimated within a draw, the variance falls with the degrees of freedom.
        units = found[0] + found[1] / (sizes[:, None] - 1 if cell.population else sizes[:, None])
        row += once + batch * np.maximum(units.max(axis=1, initial=0.0), least)
    place, column = np.unravel_index(np.argmin(total), total.shape)
    return ways[place] | ({} if stated else {"batch_size": int(sizes[column])})


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
    by_nodes = cell.has_closed_forms and estimator.logits == "dot_product"
    known = 2.5e4 * pairs if by_nodes else 0.04 * cell.control_operations + 1e4 * pairs
    control, more = (known, 90.0 * pairs) if cell.controlled else (0.0, 0.0)
    return 7e5 + 300.0 * pairs + 0.4 * products + control, 1e3 + n * of_key + 2.5 * pairs + more


def cost(cell: Cell) -> float:
    """Return the estimated cost of a batch of a cell, about nanoseconds."""
    of_draw, of_replicate = operations(cell)
    return of_draw + cell.simulation.batch_size * of_replicate


def variances(cell: Cell, precision: Precision = ANY, control: Control | None = None) -> Any:
    """Return variances between and within draws over squares of errors wanted, (2, measure); None if one fails."""
    from simstudy.replicates.batch import simulate_batch
    from simstudy.replicates.population import measured

    n_draws, cell = PILOT_DRAWS if cell.population else 1, cell.with_simulation(batch_size=N_BLOCKS)
    with _libraries().limit(limits=1):
        batches = [simulate_batch([cell], number)[0] for number in range(FIRST_DRAW, FIRST_DRAW + n_draws)]
        alone: list[Any] = [measured(cell.with_simulation(population=()), [batch]) for batch in batches]
        together = measured(cell, batches, first=FIRST_DRAW)
        if together is None or together.n_failed or None in alone:
            return None
        together = control(cell, together, FIRST_DRAW) if control else together
    wanted = _wanted(together, precision)
    within = np.array([np.mean([one.mcse[name] ** 2 for one in alone]) for name, _ in wanted])
    total = n_draws * np.array([(together.contribution[name] ** 2).sum() for name, _ in wanted])
    both = np.stack([np.maximum(total - within, 0.0), (N_BLOCKS - 1) * within])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(both / np.array([error for _, error in wanted]) ** 2, posinf=0.0)


MIN_BATCHES = 4
"""Batches before the first look: from fewer blocks the MCSE is so uncertain that the rule would stop too early."""
GROWTH = 4
"""Largest factor by which the number of batches may grow between two looks: guards against an early, poor MCSE."""


def first_target(precision: Precision, batch_size: int, *, population: bool = False) -> int:
    """Return the batches before the first look: the floor, and enough for an MCSE, but no more than the ceiling."""
    floor = -(-precision.min_replicates // batch_size)
    return min(max(floor, MIN_BLOCKS if population else MIN_BATCHES), -(-precision.max_replicates // batch_size))


class Shortfall(NamedTuple):
    """The measure whose MCSE is furthest from what is wanted: ``ratio`` is ``mcse / wanted``."""

    ratio: float
    measure: str
    mcse: float
    wanted: float


def shortfall(performance: "Performance", precision: Precision) -> Shortfall:
    """Return the largest ratio of an MCSE to the MCSE wanted; undefined measures want none, nor do verdicts."""
    found = [Shortfall(0.0, "", 0.0, 0.0)]
    for measure, target in () if precision.stop == "verdict" else _wanted(performance, precision):
        if (mcse := float(performance.mcse[measure])) > 0.0:
            found.append(Shortfall(mcse / target if target > 0.0 else math.inf, measure, mcse, target))
    return max(found)


def _wanted(performance: "Performance", precision: Precision) -> list[tuple[str, float]]:
    known = performance.estimate
    wanted = [(m, r * abs(float(known[m]))) for m, r in precision.relative_mcse.items() if m in known]
    return wanted + [(m, target) for m, target in precision.absolute_mcse.items() if m in known]


def needed(done: int, performance: "Performance", precision: Precision, batch_size: int) -> int:
    """Return how many batches the precision will take, by the root law of the MCSE, and a tenth more."""
    ceiling, ratio = -(-precision.max_replicates // batch_size), shortfall(performance, precision).ratio
    return done if ratio <= 1.0 or done >= ceiling else math.ceil(min(1.1 * done * (ratio * ratio), ceiling))


def next_target(done: int, performance: "Performance", precision: Precision, batch_size: int) -> int:
    """Return the number of batches wanted at the next look after ``done`` of them; ``done`` itself to stop."""
    return min(needed(done, performance, precision, batch_size), GROWTH * done)
