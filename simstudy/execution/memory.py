"""Memory that batches take, and that there is for them: what cannot fit is refused before the first batch."""

import contextlib
import resource
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import psutil

from simstudy.design.document import PlannedCell
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.errors import UserError

_FILES = ("memory.max", "memory.current", "file"), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
"""Of a control group, version 2 and 1: its limit, what is used, and how much of that can be given back."""


def least(cell: Cell) -> int:
    """Return the bytes that a batch takes at least: one replicate of keys and projections, and sums of all blocks."""
    n_keys, n, itemsize = cell.data.n_keys, cell.n_members, np.dtype(cell.simulation.dtype).itemsize
    widths = cell.data.n_features + cell.heads.n_heads * cell.heads.head_dim
    sums = N_BLOCKS * cell.n_queries * (n + n * (n + 1) // 2) * (1 + cell.controlled) * 8
    return sums + (n_keys * widths * itemsize if cell.functions is None else 0)


def available() -> int:
    """Return the bytes that this process may still take: of the machine, its control groups and its address space."""
    free = [psutil.virtual_memory().available]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        free.append(limit - psutil.Process().memory_info().vms)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            root = Path("/sys/fs/cgroup", controllers)
            for group in (root / path[1:], *(root / path[1:]).parents):
                for most, used, cached in _FILES:
                    with contextlib.suppress(OSError, ValueError):  # no such file; no limit, which is "max"
                        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                        taken = int((group / used).read_text()) - int(stat[cached])
                        free.append(int((group / most).read_text()) - taken)
    return min(free)


def require_memory(cells: Iterable[PlannedCell], free: float, calls: int) -> None:
    """Refuse a design of which the batches that run at once cannot fit into these bytes."""
    largest = max(cells, key=lambda planned: least(planned.cell))
    if (taken := least(largest.cell)) * calls > free:
        fit = int(free // taken)
        remedy = f"use at most {fit} of them" if fit > 0 else "use fewer keys, features, heads or query points"
        raise UserError(
            f"grids.{largest.grid}: a batch takes {taken / 2**30:.3g} GiB of memory at least, and {calls} workers have "
            f"{free / 2**30:.3g} GiB together; {remedy}, or more memory; a smaller batch_size takes as much"
        )
