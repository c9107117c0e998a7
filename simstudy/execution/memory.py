"""Memory that batches take: what cannot fit is refused before the first batch."""

import contextlib
import math
import tracemalloc
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from simstudy.design.document import PlannedCell
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.errors import UserError
from simstudy.execution.loop import of_one_task, sharing_data
from simstudy.replicates.allocation import with_settings
from simstudy.replicates.batch import pieces, replicate_bytes, simulate_batch

MOST_TIMES = 16
"""Multiple of what is counted of a batch beyond which it is taken to fit without being measured."""
PARTS = 32, 16
"""Of a replicate that is computed by itself: from so small parts of its keys follows what all of them take."""
KEPT = 1 / 3, 64 << 20
"""Freed memory that the allocator keeps: a share of what is taken, and the most."""


def least(cell: Cell) -> int:
    """Return the bytes that a batch takes at least: the largest array of one replicate, and sums of all blocks."""
    sums = N_BLOCKS * cell.n_queries * cell.n_members * (cell.n_members + 3) // 2 * (1 + cell.controlled) * 8
    return sums + (replicate_bytes(cell) if cell.functions is None else 0)


def taken(cells: Sequence[Cell]) -> tuple[float, int, float]:
    """Return the bytes that a batch of cells takes, how many replicates are held at once, and the bytes of each."""
    # Of large replicates, which are held one by one, parts of the keys are computed to see.
    blocks, _, count = next(pieces(max(cells, key=attrgetter("data.n_keys")), 0, "cpu"))
    whole = count > 1 or any(cell.functions for cell in cells)
    # The first time, what is compiled and imported counts as well.
    parts = (1, 1) if whole else (PARTS[0], *PARTS)
    parted = ([with_settings(cell, "data", n_keys=-(-cell.data.n_keys // part)) for cell in cells] for part in parts)
    _, *one = [_peak(each, range(1), 0, 1) for each in parted]
    if whole:
        found = float(_peak(cells, blocks, 0, count))
    else:  # most arrays have a place for each key, some for each pair of keys
        found = max(one[1] + 30.0 * (one[1] - one[0]), one[1] * (one[1] / one[0]) ** 4)
    return found + min(KEPT[0] * found, KEPT[1]), count, (found - one[0]) / (count - 1) if count > 1 else 0.0


def _peak(cells: Sequence[Cell], *piece: Any) -> int:
    tracemalloc.start()
    try:
        with contextlib.suppress(ValueError):  # of too few keys
            simulate_batch(cells, 0, some=[piece])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def require_memory(cells: Iterable[PlannedCell], free: float, calls: int) -> None:
    """Refuse a design of which the batches that run at once cannot fit into these bytes."""
    tight = [planned for planned in cells if MOST_TIMES * least(planned.cell) * calls > free]
    for task in (task for group in sharing_data(tight, lambda each: each.cell) for task in of_one_task(group)):
        largest = max(task, key=lambda planned: least(planned.cell))
        needed, count, each = float(least(largest.cell)), 1, 0.0
        if needed <= free:
            needed, count, each = taken([planned.cell for planned in task])
        if needed * calls <= free:
            continue
        remedy = "a smaller batch_size takes as much: use fewer keys, features, heads or query points"
        if needed <= free:
            remedy = f"use at most {free // needed:.0f} of them"
        elif each > 0.0 and (fewer := count - math.ceil((needed - free) / each)) > 0:
            sizes = range(largest.cell.simulation.batch_size - N_BLOCKS, 0, -N_BLOCKS)
            smaller = (with_settings(largest.cell, "simulation", batch_size=size) for size in sizes)
            fit = (cell.simulation.batch_size for cell in smaller if next(pieces(cell, 0, "cpu"))[2] <= fewer)
            remedy = next((f"use one of them and batch_size = {size}" for size in fit), remedy)
        raise UserError(
            f"grids.{largest.grid}: a batch takes {needed / 2**30:.3g} GiB of memory, and {calls} workers have "
            f"{free / 2**30:.3g} GiB together; {remedy}, or more memory"
        )
