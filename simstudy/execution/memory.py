"""Memory that batches take: what cannot fit is refused before the first batch."""

import contextlib
import math
import tracemalloc
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from simstudy.data.shared import SharedData
from simstudy.design.document import PlannedCell
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.errors import UserError
from simstudy.execution.state import of_one_task, sharing_data
from simstudy.replicates.batch import NUMERICAL_FAILURES, Evaluation, pieces

MOST_TIMES = 16
"""Multiple of what is counted of a batch beyond which it is taken to fit without being measured."""
PARTS = 32, 16
"""Of a replicate that is computed by itself: from so small parts of its keys follows what all of them take."""
KEPT = 1 / 3, 64 << 20
"""Freed memory that the allocator keeps: a share of what is taken, and the most that it is told to keep."""


class Taken(NamedTuple):
    """Bytes that a batch takes, of how many replicates held at once, and how many less it takes with one less."""

    bytes: float
    replicates: int = 1
    each: float = 0.0


def least(cell: Cell) -> int:
    """Return the bytes that a batch takes at least: one replicate of keys and projections, and sums of all blocks."""
    n_keys, n, itemsize = cell.data.n_keys, cell.n_members, np.dtype(cell.simulation.dtype).itemsize
    widths = cell.data.n_features + cell.heads.n_heads * cell.heads.head_dim
    sums = N_BLOCKS * cell.n_queries * (n + n * (n + 1) // 2) * (1 + cell.controlled) * 8
    return sums + (n_keys * widths * itemsize if cell.functions is None else 0)


def taken(cells: Sequence[Cell]) -> Taken:
    """Return what a batch of cells that share data takes, as NumPy tells while a first piece of it is computed.

    Of replicates that are large, and so are held one by one, small parts of the keys are computed instead.
    """
    blocks, _, count = next(pieces(_largest(cells), 0, "cpu"))
    whole = count > 1 or any(cell.functions or cell.file_mask for cell in cells)
    # The first time, what is compiled and imported counts as well.
    parts = (1, 1) if whole else (PARTS[0], *PARTS)
    _, *one = [_peak([_part(cell, part) for cell in cells], range(1), 1) for part in parts]
    if whole:
        found = float(_peak(cells, blocks, count))
    else:  # most arrays have a place for each key, some for each pair of keys
        found = max(one[1] + 30.0 * (one[1] - one[0]), one[1] * (one[1] / one[0]) ** 4)
    return Taken(found + min(KEPT[0] * found, KEPT[1]), count, (found - one[0]) / (count - 1) if count > 1 else 0.0)


def _largest(cells: Sequence[Cell]) -> Cell:
    return max(cells, key=lambda cell: cell.data.n_keys)


def _part(cell: Cell, part: int) -> Cell:
    return cell.model_copy(update={"data": cell.data.model_copy(update={"n_keys": -(-cell.data.n_keys // part)})})


def _peak(cells: Sequence[Cell], blocks: range, count: int) -> int:
    """Return the most bytes held at once while so many replicates are computed."""
    tracemalloc.start()
    try:
        shared = SharedData(_largest(cells).in_batch(0), 0, count)
        for evaluation in [Evaluation(cell.in_batch(0)) for cell in cells]:
            with contextlib.suppress(*NUMERICAL_FAILURES, ValueError):  # the latter of too few keys
                evaluation.add(shared, blocks)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def require_memory(cells: Iterable[PlannedCell], free: float, calls: int) -> None:
    """Refuse a design of which the batches that run at once cannot fit into these bytes."""
    tight = [planned for planned in cells if MOST_TIMES * least(planned.cell) * calls > free]
    for task in (task for group in sharing_data(tight, lambda each: each.cell) for task in of_one_task(group)):
        largest = max(task, key=lambda planned: least(planned.cell))
        found = Taken(least(largest.cell))
        if found.bytes <= free:
            found = taken([planned.cell for planned in task])
        if found.bytes * calls > free:
            raise UserError(
                f"grids.{largest.grid}: a batch takes {found.bytes / 2**30:.3g} GiB of memory, and {calls} workers "
                f"have {free / 2**30:.3g} GiB together; {_remedy(largest.cell, found, free)}, or more memory"
            )


def _remedy(cell: Cell, found: Taken, free: float) -> str:
    if (workers := int(free // found.bytes)) > 0:
        return f"use at most {workers} of them"
    fewer = found.replicates - math.ceil((found.bytes - free) / found.each) if found.each > 0.0 else 0
    for size in range(cell.simulation.batch_size - N_BLOCKS, 0, -N_BLOCKS) if fewer > 0 else ():
        smaller = cell.model_copy(update={"simulation": cell.simulation.model_copy(update={"batch_size": size})})
        if next(pieces(smaller, 0, "cpu"))[2] <= fewer:
            return f"use one of them and batch_size = {size}"
    return "a smaller batch_size takes as much: use fewer keys, features, heads or query points"
