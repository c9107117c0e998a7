"""One queue of batches over all cells, on any executor: each calls `simulate_batch`; and what that took."""

import contextlib
import math
import os
import platform
import queue
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.pool import ThreadPool
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from simstudy.design.settings.cell import Cell
from simstudy.errors import UserError, require_extra
from simstudy.execution.clients import (
    WORKER_SECONDS,
    Jobs,
    gpu_environments,
    job_cluster,
    local_client,
    no_workers,
    remote_client,
)
from simstudy.execution.provenance import engine
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.moments import Moments

MAX_WORKERS = 1024
"""Most workers on one machine: a system that can start no more threads would end the run as a defect."""
TASKS_PER_THREAD = 3
"""Turns in flight for each worker thread: enough to hide latency, few enough to stop quickly."""

AHEAD = 1 << 14
"""Tasks that wait to be handed out, beyond which none is made: turns of many workers, and some tens of MiB."""
COUNT_SECONDS = 1.0
"""Time after which the workers of a scheduler are counted again: asking it for them takes as long as short batches."""
TURN_SECONDS = 0.5
"""Processor time that a worker is given work for at a time: handing it over takes milliseconds, as do short batches."""


class Task(NamedTuple):
    """One batch of cells that share their data."""

    cells: tuple[Cell, ...]
    batch: int


class Outcome(NamedTuple):
    """The moments of each cell of a task, and what they took where it ran: in which process of which host."""

    batches: list[Moments]
    process: str
    cpu_seconds: float  # Of the thread
    peak_MiB: float  # Most memory of the process so far


def engine_of(tasks: Sequence[Task], device: str) -> str:
    """Return the engine that computes tasks."""
    return engine(device, [cell for task in tasks for cell in task.cells])


def compute(tasks: Sequence[Task], device: str, wanted: str) -> list[Outcome]:
    """Return the outcomes of tasks on whatever worker this runs; UserError if its engine is another."""
    here = engine_of(tasks, device)
    if here != wanted:
        raise UserError(
            f"a worker would give other bits (engine {here} on {platform.node()}, {wanted} wanted); install the same "
            "simstudy and libraries there, and use nodes of one processor type"
        )
    threadpool_limits(1)  # for as long as a worker lives, whoever started it; `open_queue` restores it where it stands
    outcomes = []
    for task in tasks:
        start = time.thread_time()
        batches = simulate_batch(*task, device)
        outcomes.append(Outcome(batches, _process(), time.thread_time() - start, _peak_MiB()))
    return outcomes


class Queue:
    """Tasks, handed out in turns to threads; iterate over it to get each with its outcome, in order of completion."""

    def __init__(self, pool: Any, workers: int, device: str = "cpu") -> None:
        self.device = device
        # Threads of a `ThreadPool` do not keep a process from ending.
        self._pool, self._workers = pool, workers
        self._streams: deque[Iterator[Task]] = deque()
        self._waiting: deque[Task] = deque()
        self._flying = 0
        self._ended: queue.SimpleQueue[tuple[Sequence[Task], Any]] = queue.SimpleQueue()
        self._seconds = TURN_SECONDS

    def add(self, tasks: Iterable[Task]) -> None:
        """Append tasks, which are taken as workers need them; may be called while iterating."""
        self._streams.append(iter(tasks))

    def workers(self) -> int:
        """Return how many tasks run at once."""
        return self._workers

    def __iter__(self) -> Iterator[tuple[Task, Outcome]]:
        while self._supply():
            tasks, outcomes = self._next_ended()
            self._flying -= 1
            self._seconds = max(1e-6, sum(outcome.cpu_seconds for outcome in outcomes) / len(outcomes))
            self._supply()  # before its outcomes are stored, so that no worker waits for the disk
            yield from zip(tasks, outcomes, strict=True)

    def _supply(self) -> int:
        """Supply the workers, with turns as long as the last one makes expect, but something for each; count turns."""
        places = TASKS_PER_THREAD * max(1, self.workers())
        while self._streams and len(self._waiting) < AHEAD:
            if task := next(self._streams[0], None):
                self._waiting.append(task)
            else:
                self._streams.popleft()
        while self._waiting and self._flying < places:
            length = min(int(TURN_SECONDS / self._seconds), len(self._waiting) // places)
            self._start([self._waiting.popleft() for _ in range(max(1, length))])
            self._flying += 1
        return self._flying

    def _start(self, tasks: Sequence[Task]) -> None:
        """Give a turn to a worker."""

        def ended(found: Any) -> None:
            self._ended.put((tasks, found))

        self._pool.apply_async(compute, (tasks, self.device, engine_of(tasks, self.device)), {}, ended, ended)

    def _next_ended(self) -> tuple[Sequence[Task], list[Outcome]]:
        """Wait for a turn to end; raise what it raised."""
        tasks, found = self._ended.get()
        if isinstance(found, BaseException):
            raise found
        return tasks, found


class DaskQueue(Queue):
    """The same queue on a Dask client; ``without_workers`` is called while there are none."""

    def __init__(self, client: Any, without_workers: Callable[[], None] | None = None, device: str = "cpu") -> None:
        super().__init__(client, 0, device)
        self._client = client
        self._without_workers = without_workers
        self._counted = -math.inf

    def workers(self) -> int:
        """Return how many tasks run at once, by the threads that the scheduler had within the last second."""
        from distributed.comm import CommClosedError

        if time.monotonic() - self._counted >= COUNT_SECONDS:
            try:
                self._workers = sum(self._client.nthreads().values())
            except OSError as error:
                # It took no connection in time, which others hear of as a connection that is closed.
                raise CommClosedError(str(error)) from error
            self._counted = time.monotonic()
        return self._workers

    def __iter__(self) -> Iterator[tuple[Task, Outcome]]:
        from distributed import CancelledError
        from distributed.comm import CommClosedError

        try:
            yield from super().__iter__()
        except (CancelledError, CommClosedError):
            raise UserError(
                f"executor = {self._client.scheduler.address!r}: the Dask scheduler is lost; start it again, and run "
                "again: finished batches are stored"
            ) from None

    def _start(self, tasks: Sequence[Task]) -> None:
        wanted = engine_of(tasks, self.device)
        future = self._client.submit(compute, tasks, self.device, wanted, pure=False, retries=2)
        future.add_done_callback(lambda ended: self._ended.put((tasks, ended)))

    def _next_ended(self) -> tuple[Sequence[Task], list[Outcome]]:
        """Wait for a turn to end, but not for ever for workers that do not come back."""
        from distributed import KilledWorker

        last_seen = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                tasks, future = self._ended.get(timeout=COUNT_SECONDS)
                try:
                    outcomes = future.result()
                except KilledWorker:
                    raise UserError(
                        "workers died, several in a row, while they computed one batch (out of memory?); start fewer "
                        "workers, give them more memory or lower batch_size, and run again: finished batches are stored"
                    ) from None
                # Released at once: a result kept by its worker would be recomputed if that worker is lost.
                future.release()
                return tasks, outcomes
            now = time.monotonic()
            last_seen = now if self.workers() else last_seen
            if now - last_seen > WORKER_SECONDS:
                if self._without_workers is None:
                    raise no_workers(self._client.scheduler.address, WORKER_SECONDS)
                self._without_workers()
                last_seen = now


@contextlib.contextmanager
def open_queue(
    executor: str | Jobs,
    workers: int | None = None,
    trust_network: bool = False,
    claim: Callable[[], None] = lambda: None,
) -> Iterator[Queue]:
    """Open a queue on an executor; ``claim`` locks the folder once that can be used, before a job or a key is made."""
    whole = isinstance(workers, int) and not isinstance(workers, bool)
    if workers is not None and not (whole and 1 <= workers <= MAX_WORKERS):
        wanted = f"must be a whole number from 1 to {MAX_WORKERS}; leave it out for all cores"
        raise UserError(f"workers = {workers!r}: {wanted}")
    if executor in ("processes", "cuda") or isinstance(executor, Jobs) or "://" in str(executor):
        require_extra(f"executor = {str(executor)!r}", "distributed", "cluster", ", or choose executor = 'threads'")
    count = workers or os.cpu_count() or 1
    # Threads of the numerical library would compete with workers, and last bits depend on their number.
    with threadpool_limits(1), contextlib.ExitStack() as held:
        if isinstance(executor, Jobs):
            yield DaskQueue(*held.enter_context(job_cluster(executor, claim)))
            return
        if executor in ("serial", "threads"):
            count = 1 if executor == "serial" else count
            opened = Queue(held.enter_context(ThreadPool(count)), count)
        elif executor == "processes":
            opened = DaskQueue(held.enter_context(local_client({str(number): {} for number in range(count)})))
        elif executor == "cuda":
            opened = DaskQueue(held.enter_context(local_client(gpu_environments(workers))), device="cuda")
        elif "://" in str(executor):
            opened = DaskQueue(held.enter_context(remote_client(executor, trust_network)))
        else:
            known = "serial, threads, processes, cuda, or an address such as tls://host:8786"
            raise UserError(f"executor = {executor!r}: unknown; choose {known}")
        claim()
        yield opened


class Meter:
    """Sums the use of a run, from its making on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._elsewhere = 0.0
        self._peaks: dict[str, float] = {}

    def add(self, outcome: Outcome) -> None:
        """Take note of a task; what it took in this very process is counted already."""
        if outcome.process != _process():
            self._elsewhere += outcome.cpu_seconds
            self._peaks[outcome.process] = max(outcome.peak_MiB, self._peaks.get(outcome.process, 0.0))

    @property
    def wall_seconds(self) -> float:
        """Time on the clock so far."""
        return time.perf_counter() - self._wall

    @property
    def cpu_seconds(self) -> float:
        """Processor time of this process and of the tasks so far."""
        return time.process_time() - self._cpu + self._elsewhere

    def read(self) -> dict[str, float]:
        """Return wall time, processor time and peak memory of this process and those of the tasks, together."""
        peaks = [_peak_MiB(), *self._peaks.values()]
        return {
            "wall_seconds": round(self.wall_seconds, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "processes": len(peaks),
            "peak_memory_MiB": round(sum(peaks), 1),
            "peak_memory_largest_process_MiB": round(max(peaks), 1),
        }


def _process() -> str:
    return f"{platform.node()}:{os.getpid()}"


def _peak_MiB() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
