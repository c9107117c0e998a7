"""Plan of a study: a pilot of a few batches of each cell, stored like any other, and what follows from it."""

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from simstudy.execution.executors import Executor, Meter, run_tasks
from simstudy.execution.state import RunState
from simstudy.execution.store import DRAWN, size_of
from simstudy.replicates.allocation import cost
from simstudy.replicates.performance import halvings_of

PILOT_BATCHES = 4
"""Batches of each cell in the pilot: 64 blocks, from which an MCSE is known to a tenth or so."""


@dataclass
class GridPlan:
    """Work of one grid: replicates and bytes in the end, batches and processor seconds still to be computed."""

    grid: str
    cells: int = 0
    replicates: int = 0
    bytes: int = 0
    batches: int = 0
    cpu_seconds: float = 0.0


class Plan(NamedTuple):
    """Prediction for the rest of a study: workers run at once here, and the peak is that of the largest process."""

    grids: list[GridPlan]
    workers: int
    peak_MiB: float

    def seconds(self, workers: int) -> float:
        """Return the time to wait with so many workers, each as fast as those of the pilot."""
        return sum(grid.cpu_seconds for grid in self.grids) / workers


def pilot(
    state: RunState,
    executor: Executor,
    track: Callable[[Iterable[Any], int], Iterable[Any]],
    observer: Callable[[RunState], object],
) -> Plan:
    """Compute the first missing batches of unfinished cells, through ``track``, and predict what the rest takes.

    ``observer`` is called once these are stored, if there are any.
    """
    meter, seconds = Meter(), defaultdict[str, list[float]](list)
    tasks = list(state.first_tasks(PILOT_BATCHES))
    for task, outcome in track(run_tasks(executor, deque([iter(tasks)])), len(tasks)):
        meter.add(outcome)
        state.record(task, outcome.batches)
        costs = [cost(cell) for cell in task.cells]
        for identity, share in zip(task.identities, costs, strict=True):
            seconds[identity].append(outcome.cpu_seconds * share / sum(costs))
    plans: dict[str, GridPlan] = {}
    planned: dict[str, int] = defaultdict(int)
    if tasks:
        observer(state)
    state.cut()  # which looks at each cell as it stands
    for account in state.accounts:
        grid = plans.setdefault(account.planned.grid, GridPlan(account.planned.grid))
        cell, n = account.planned.cell, account.expected
        if account.identity not in planned:
            drawn = 0 if cell.controlled else DRAWN
            grid.bytes += n * size_of(cell, 1, drawn) if cell.population else size_of(cell, n, halvings_of(n))
        first = planned[account.identity]
        last = planned[account.identity] = max(first, n) if account.cut else first
        missing = last - first - sum(first <= batch < last for batch in account.stored)
        grid.cells += 1
        grid.replicates += n * account.batch_size
        grid.batches += missing
        # The first batch on a worker waits for the compiler: the median does not.
        grid.cpu_seconds += missing * float(np.median(seconds.get(account.identity, 0.0)))
    return Plan([*plans.values()], min(executor.workers(), os.cpu_count() or 1), meter.read()["peak_memory_MiB"])
