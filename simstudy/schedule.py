"""One queue of batches over all cells, on any executor.

Imports Dask, batch, cells, clients, jobs, moments, problems, provenance and usage only.  It contains no arithmetic:
every executor calls `simulate_batch`.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from simstudy.batch import simulate_batch
from simstudy.cells import Cell
from simstudy.clients import WORKER_SECONDS, cuda_client, job_cluster, local_client, no_workers, remote_client
from simstudy.jobs import Jobs
from simstudy.moments import Moments
from simstudy.problems import UserError
from simstudy.provenance import engine
from simstudy.usage import Usage, measured

EXECUTORS = ("serial", "threads", "processes", "cuda")
TASKS_PER_THREAD = 3
"""Turns in flight for each worker thread: enough to hide latency, few enough to stop quickly."""

TURN_SECONDS = 0.25
"""Processor time that a worker is given work for at a time: handing it over takes milliseconds, as do short batches."""


class Task(NamedTuple):
    """One batch of cells that share their data."""

    cells: tuple[Cell, ...]
    batch: int


class Outcome(NamedTuple):
    """The moments of each cell of a task, and what they took."""

    batches: list[Moments]
    usage: Usage


class EngineMismatchError(Exception):
    """A worker computes with other sources, libraries or processor features than those that ask it."""


def compute(tasks: Sequence[Task], device: str, wanted: str) -> list[Outcome]:
    """Return the outcomes of tasks, on whatever worker this runs.

    Raises
    ------
    EngineMismatchError
        If the engine here is not the one wanted: its bits would be stored under the wrong name.
    """
    here = engine(device)
    if here != wanted:
        raise EngineMismatchError(f"engine {here} on {platform.node()}, {wanted} wanted")
    return [Outcome(*measured(simulate_batch, *task, device)) for task in tasks]


class Queue:
    """Tasks waiting and in flight; iterate over it to get each with its outcome, in order of completion."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._waiting: deque[Task] = deque()

    def add(self, tasks: Iterable[Task]) -> None:
        """Append tasks; may be called while iterating."""
        self._waiting.extend(tasks)

    def workers(self) -> int:
        """Return how many tasks run at once."""
        return 1

    def __iter__(self) -> Iterator[tuple[Task, Outcome]]:
        while self._waiting:
            task = self._waiting.popleft()
            yield task, compute([task], self.device, engine(self.device))[0]


class DaskQueue(Queue):
    """The same queue, computed by the workers of a Dask client.

    Parameters
    ----------
    client
        The client.
    without_workers
        Called while there have been no workers for `WORKER_SECONDS`; raises if none will come.
    device
        What its workers compute on.
    """

    def __init__(self, client: Any, without_workers: Callable[[], None] | None = None, device: str = "cpu") -> None:
        super().__init__(device)
        self._client = client
        self._without_workers = without_workers or self._give_up
        self._seconds = TURN_SECONDS

    def workers(self) -> int:
        """Return how many tasks run at once, by the threads that the scheduler has now."""
        return sum(self._client.nthreads().values())

    def __iter__(self) -> Iterator[tuple[Task, Outcome]]:
        from distributed import CancelledError, as_completed
        from distributed.comm import CommClosedError

        flying: dict[Any, Sequence[Task]] = {}
        completed = as_completed()
        try:
            while self._waiting or flying:
                self._submit(flying, completed)
                self._wait(completed)
                future = next(completed)
                tasks = flying.pop(future)
                outcomes = _outcomes(future)
                # Released at once: a result kept by its worker would be recomputed if that worker is lost.
                future.release()
                self._seconds = max(1e-6, sum(outcome.usage.cpu_seconds for outcome in outcomes) / len(outcomes))
                yield from zip(tasks, outcomes, strict=True)
        except (CancelledError, CommClosedError):
            raise UserError(
                f"executor = {self._client.scheduler.address!r}: the Dask scheduler is lost; start it again, and run "
                "again: finished batches are stored"
            ) from None

    def _submit(self, flying: dict[Any, Sequence[Task]], completed: Any) -> None:
        """Keep the workers supplied, with turns as long as the last one makes expect, but something for each."""
        places = TASKS_PER_THREAD * max(1, self.workers())
        while self._waiting and len(flying) < places:
            length = min(int(TURN_SECONDS / self._seconds), len(self._waiting) // places)
            tasks = [self._waiting.popleft() for _ in range(max(1, length))]
            future = self._client.submit(compute, tasks, self.device, engine(self.device), pure=False, retries=2)
            flying[future] = tasks
            completed.add(future)

    def _wait(self, completed: Any) -> None:
        """Wait until a task has ended, but not for ever for workers that do not come back."""
        looked = last_seen = time.monotonic()
        while not completed.has_ready():
            time.sleep(0.01)
            now = time.monotonic()
            if now - looked < 1.0:
                continue
            looked = now
            last_seen = now if self.workers() else last_seen
            if now - last_seen > WORKER_SECONDS:
                self._without_workers()
                last_seen = now

    def _give_up(self) -> None:
        raise no_workers(self._client.scheduler.address, WORKER_SECONDS)


def _outcomes(future: Any) -> list[Outcome]:
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker:
        raise UserError(
            "workers died, several in a row, while they computed one batch (out of memory?); start fewer "
            "workers, give them more memory or lower batch_size, and run again: finished batches are stored"
        ) from None
    except EngineMismatchError as error:
        raise UserError(
            f"a worker would give other bits ({error}); install the same simstudy and libraries there, and use "
            "nodes of one processor type, or set NUMBA_CPU_NAME and NUMBA_CPU_FEATURES alike on all"
        ) from None


@contextlib.contextmanager
def open_queue(executor: str | Jobs, workers: int | None = None) -> Iterator[Queue]:
    """Open a queue on an executor and close its workers at the end.

    Parameters
    ----------
    executor
        ``serial``; ``threads`` or ``processes`` on this machine; ``cuda``, one process for each of its GPUs; the
        address of a running Dask scheduler, such as ``tcp://host:8786``; or jobs to submit, which are replaced if they
        are lost.
    workers
        Number of threads or processes, at least 1; all cores, or GPUs, by default.

    Raises
    ------
    UserError
        If the executor is unknown, the number of workers is not positive, there are not so many GPUs, the scheduler
        does not answer or has no workers, or jobs cannot be submitted.
    """
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise UserError(f"workers = {workers!r}: must be a whole number of at least 1; leave it out for all cores")
    if isinstance(executor, Jobs):
        with job_cluster(executor) as (client, without_workers):
            yield DaskQueue(client, without_workers)
    elif executor == "serial":
        yield Queue()
    elif executor == "cuda":
        with cuda_client(workers) as client:
            yield DaskQueue(client, device="cuda")
    elif executor in EXECUTORS:
        with local_client(executor, workers or os.cpu_count() or 1) as client:
            yield DaskQueue(client)
    elif "://" in str(executor):
        with remote_client(executor) as client:
            yield DaskQueue(client)
    else:
        known = ", ".join(EXECUTORS)
        raise UserError(f"executor = {executor!r}: unknown; choose {known}, or an address such as tcp://host:8786")
