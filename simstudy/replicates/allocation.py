"""Numbers of replicates: for each draw of a population, for grids with or without control, and the stopping rule.

Decisions depend only on the batches in the order of their numbers, not on when they arrive.  So they are the same on
any number of workers and after any interruption.

Let c_d and c_r be the costs of a draw and of a replicate, σ_b² the variance between draws and σ_w² that between
replicates of a draw.  With m replicates per draw, the time to a given error is proportional to
(c_d + m c_r) (σ_b² + σ_w² / m), least at m = √(c_d σ_w² / (c_r σ_b²)) (Neyman).  Variances are estimated from draws
that are in no batch, so that estimates are unbiased.  Costs are counts of operations, so that choices are reproducible.
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

if TYPE_CHECKING:  # slow to import
    from simstudy.replicates.performance import Performance

MEASURES = ("mse", "ensemble_variance")  # the one with the larger relative error is used
SIZES = 1 << np.arange(2, 11)
PILOT_CELLS, PILOT_DRAWS, FIRST_DRAW = 4, 32, 1 << 40
ANY = Precision(relative_mcse=dict.fromkeys(MEASURES, 1.0))  # equal errors of any size, as only times are compared
Control = Callable[[Cell, "Performance", int], "Performance"]
"""Function that returns the performance of a cell, in batches from a number on, with smaller errors."""
_libraries = functools.cache(ThreadpoolController)  # numbers of threads change bits; cached, as the search takes 1 ms


def sized(design: Design, control: Control | None = None) -> Design:
    """Return a design with the fastest batch sizes of populations and controls where grids state none."""
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
    """Return true if the size of batches is stated, or has its default as there is no population."""
    return not cell.simulation.population or "batch_size" in cell.simulation.model_fields_set


def quickest(grid: Sequence[PlannedCell], claims: bool, control: Control | None = None) -> dict[str, Any]:
    """Return the batch size and control, if not stated, with which the target errors are reached in the least time.

    Errors are the targets if there are no others; otherwise those of `MEASURES`, and populations have no control.
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
            row += np.inf  # It cannot be faster, and its pilot might take longer than the cell.
            continue
        known = cell.controlled and not cell.population  # assumed to need the least number of batches
        found = np.zeros((2, 1)) if known else variances(cell, precision if precise else ANY, control)
        if found is None:
            return (ways[0] if first.population else {}) | ({} if stated else {"batch_size": N_BLOCKS})
        # The variance of variances that are estimated within a draw depends on the degrees of freedom.
        units = found[0] + found[1] / (sizes[:, None] - 1 if cell.population else sizes[:, None])
        row += once + batch * np.maximum(units.max(axis=1, initial=0.0), least)
    place, column = np.unravel_index(np.argmin(total), total.shape)
    return ways[place] | ({} if stated else {"batch_size": int(sizes[column])})


def operations(cell: Cell) -> tuple[float, float]:
    """Return the estimated costs of a draw and of a replicate, in about nanoseconds."""
    from simstudy.data.span import n_coordinates

    n, d, n_heads, p = cell.data.n_keys, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim
    estimator, drawn = cell.estimator, n_coordinates(cell)
    n_queries = cell.n_queries or n  # functions are assumed to cost as much as attention of all keys to all
    compiled = estimator.normaliser.kind in ("softmax", "compact") and estimator.learner.kind == "nadaraya_watson"
    columns, pairs = n_heads * (p if drawn is None else n_queries), n_queries * n_heads**2
    of_key = (drawn or d) * (1.5 + 0.02 * columns) + (0.25 if compiled else 25.0) * n_queries * n_heads
    products = d * (n_queries * n_heads * p + (drawn or 0) ** 2 + ("heads" in cell.population) * (n_heads * p) ** 2)
    by_nodes = cell.has_closed_forms and estimator.logits == "dot_product"
    known = 2.5e4 * pairs if by_nodes else 0.04 * cell.control_operations + 1e4 * pairs
    control, more = (known, 90.0 * pairs) if cell.controlled else (0.0, 0.0)
    return 7e5 + 300.0 * pairs + 0.4 * products + control, 1e3 + n * of_key + 2.5 * pairs + more


def cost(cell: Cell) -> float:
    """Return the estimated cost of a batch of a cell, in about nanoseconds."""
    of_draw, of_replicate = operations(cell)
    return of_draw + cell.simulation.batch_size * of_replicate


def variances(cell: Cell, precision: Precision = ANY, control: Control | None = None) -> Any:
    """Return variances between and within draws over squared target errors, (2, measure); None if a draw fails."""
    from simstudy.replicates.batch import simulate_batch
    from simstudy.replicates.population import measured

    n_draws, cell = PILOT_DRAWS if cell.population else 1, cell.with_simulation(batch_size=N_BLOCKS)
    with _libraries().limit(limits=1):
        batches = [simulate_batch([cell], number)[0] for number in range(FIRST_DRAW, FIRST_DRAW + n_draws)]
        by_draw: list[Any] = [measured(cell.with_simulation(population=()), [batch]) for batch in batches]
        joint = measured(cell, batches, first=FIRST_DRAW)
        if joint is None or joint.n_failed or None in by_draw:
            return None
        joint = control(cell, joint, FIRST_DRAW) if control else joint
    wanted = _wanted(joint, precision)
    within = np.array([np.mean([one.mcse[name] ** 2 for one in by_draw]) for name, _ in wanted])
    total = n_draws * np.array([(joint.contribution[name] ** 2).sum() for name, _ in wanted])
    both = np.stack([np.maximum(total - within, 0.0), (N_BLOCKS - 1) * within])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(both / np.array([error for _, error in wanted]) ** 2, posinf=0.0)


MIN_BATCHES = 4
"""Least batches before the first look; with fewer, the MCSE is so uncertain that the rule would stop too early."""
GROWTH = 4
"""Largest factor by which the number of batches grows between two looks, as early MCSEs are inaccurate."""


def first_target(precision: Precision, batch_size: int, *, population: bool = False) -> int:
    """Return the batches before the first look, enough for min_replicates and an MCSE, within max_replicates."""
    floor = -(-precision.min_replicates // batch_size)
    return min(max(floor, MIN_BLOCKS if population else MIN_BATCHES), -(-precision.max_replicates // batch_size))


class Shortfall(NamedTuple):
    """The measure whose MCSE is furthest from its target: ``ratio`` is ``mcse / wanted``."""

    ratio: float
    measure: str
    mcse: float
    wanted: float


def shortfall(performance: "Performance", precision: Precision) -> Shortfall:
    """Return the largest ratio of an MCSE to its target; 0 if only undefined measures or verdicts have targets."""
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
    """Return the number of batches that the targets require, as MCSE ∝ 1/√n, plus a tenth."""
    ceiling, ratio = -(-precision.max_replicates // batch_size), shortfall(performance, precision).ratio
    return done if ratio <= 1.0 or done >= ceiling else math.ceil(min(1.1 * done * (ratio * ratio), ceiling))


def next_target(done: int, performance: "Performance", precision: Precision, batch_size: int) -> int:
    """Return the number of batches at the next look after ``done`` batches; ``done`` means stop."""
    return min(needed(done, performance, precision, batch_size), GROWTH * done)
