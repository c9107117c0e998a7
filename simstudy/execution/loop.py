"""One loop of batches over all cells, on anything with `submit`; and what that took."""

from __future__ import annotations

import os
import platform
import queue
import resource
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from threadpoolctl import threadpool_limits

from simstudy.design.settings.cell import Cell
from simstudy.execution.provenance import engine
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.moments import Draw, Moments
from simstudy.replicates.population import draw_of

if TYPE_CHECKING:
    from simstudy.execution.executors import Executor

TASKS_PER_THREAD, AHEAD = 3, 1 << 14
"""Turns in flight for each worker thread, to hide latency; tasks that wait, beyond which none is made."""
TURN_SECONDS, WAIT_SECONDS = 0.5, 1.0
"""Processor time that a worker is given work for at a time; time without an outcome before workers are looked for."""
CELLS_PER_TASK = 8
"""Cells that one task evaluates on shared data: more would save little drawing and make tasks long."""


class Task(NamedTuple):
    """One batch of cells that share their data."""

    cells: tuple[Cell, ...]
    batch: int
    identities: tuple[str, ...] = ()  # Names under which the batch of each is stored


class Outcome(NamedTuple):
    """The moments of each cell of a task, and what they took where it ran: in which process of which host."""

    batches: list[Moments | Draw]
    process: str
    cpu_seconds: float  # Of the thread
    peak_MiB: float  # Most memory of the process so far


class Unlike(NamedTuple):
    """A worker that would give other bits, and computed nothing."""

    engine: str
    host: str
    address: str


def compute(tasks: Sequence[Task], device: str, wanted: str) -> list[Outcome] | Unlike:
    """Return the outcomes of tasks on whatever worker this runs, unless its engine is another than wanted."""
    if (here := engine(device)) != wanted:
        dask = sys.modules.get("distributed")
        return Unlike(here, platform.node(), dask.get_worker().address if dask else "")
    threadpool_limits(1)  # of a worker as long as it lives, whoever started it
    outcomes = []
    for task in tasks:
        start = time.thread_time()
        # Of a population each batch tells little, unless what is taken off as control depends on all of them.
        batches = [
            draw_of(cell, task.batch, moments) if cell.population and not cell.controlled else moments
            for cell, moments in zip(task.cells, simulate_batch(task.cells, task.batch, device), strict=True)
        ]
        outcomes.append(Outcome(batches, _process(), time.thread_time() - start, _peak_MiB()))
    return outcomes


def run_tasks(executor: Executor, streams: deque[Iterator[Task]]) -> Iterator[tuple[Task, Outcome]]:
    """Yield each task of streams, to which others may be added meanwhile, with its outcome, in order of completion."""
    ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
    flying: dict[Future, list[Task]] = {}
    waiting: deque[Task] = deque()
    seconds = TURN_SECONDS

    def supply() -> None:
        """Give workers turns as long as the last one makes expect, but something to each."""
        places = TASKS_PER_THREAD * max(1, executor.workers())
        while streams and len(waiting) < AHEAD:
            if task := next(streams[0], None):
                waiting.append(task)
            else:
                streams.popleft()
        while waiting and len(flying) < places:
            length = max(1, min(int(TURN_SECONDS / seconds), len(waiting) // places))
            start([waiting.popleft() for _ in range(length)])

    def start(tasks: list[Task]) -> None:
        future = executor.submit(compute, tasks, executor.device, engine(executor.device))
        flying[future] = tasks
        future.add_done_callback(ended.put)

    supply()
    while flying:
        try:
            future = ended.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            executor.wait_for_workers()
            continue
        tasks = flying.pop(future)
        found = executor.result(future)
        if isinstance(found, Unlike):
            executor.set_aside(found)
            start(tasks)
            continue
        seconds = max(1e-6, sum(outcome.cpu_seconds for outcome in found) / len(found))
        supply()  # before its outcomes are stored, so that no worker waits for the disk
        yield from zip(tasks, found, strict=True)
        supply()


class Meter:
    """Sums the use of a run, from its making on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._elsewhere = self._peak = 0.0

    def add(self, outcome: Outcome) -> None:
        """Take note of a task; what it took in this very process is counted already."""
        if outcome.process != _process():
            self._elsewhere += outcome.cpu_seconds
            self._peak = max(outcome.peak_MiB, self._peak)

    def read(self) -> dict[str, float]:
        """Return wall time, processor time of all processes, and peak memory of the largest."""
        return {
            "wall_seconds": round(time.perf_counter() - self._wall, 2),
            "cpu_seconds": round(time.process_time() - self._cpu + self._elsewhere, 2),
            "peak_memory_MiB": round(max(_peak_MiB(), self._peak), 1),
        }


def _process() -> str:
    return f"{platform.node()}:{os.getpid()}"


def _peak_MiB() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
