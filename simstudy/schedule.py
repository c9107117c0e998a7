"""One queue of batches over all cells, on any executor: the only module that imports Dask.

Imports Dask, batch, cells, devices, moments, problems, provenance and usage only.  It contains no arithmetic: every
executor calls `simulate_batch`.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from simstudy.batch import simulate_batch
from simstudy.cells import Cell
from simstudy.devices import cuda_problem, visible_gpus
from simstudy.moments import Moments
from simstudy.problems import UserError
from simstudy.provenance import engine
from simstudy.usage import Usage, measured

EXECUTORS = ("serial", "threads", "processes", "cuda")
TASKS_PER_THREAD = 3
"""Tasks in flight for each worker thread: enough to hide latency, few enough to stop quickly."""
WORKER_SECONDS = 30
"""How long to wait for a scheduler without workers to get some."""

# Kernels are serial and release the GIL; numerical libraries must not start threads of their own.
_SINGLE = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}


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


def compute(task: Task, device: str, wanted: str) -> Outcome:
    """Return the outcome of a task, on whatever worker this runs.

    Raises
    ------
    EngineMismatchError
        If the engine here is not the one wanted: its bits would be stored under the wrong name.
    """
    here = engine(device)
    if here != wanted:
        raise EngineMismatchError(f"engine {here} on {platform.node()}, {wanted} wanted")
    return Outcome(*measured(simulate_batch, *task, device))


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
            yield task, compute(task, self.device, engine(self.device))


class DaskQueue(Queue):
    """The same queue, computed by the workers of a Dask client."""

    def __init__(self, client: Any, device: str = "cpu") -> None:
        super().__init__(device)
        self._client = client

    def workers(self) -> int:
        """Return how many tasks run at once, by the threads that the scheduler has now."""
        return sum(self._client.nthreads().values())

    def __iter__(self) -> Iterator[tuple[Task, Outcome]]:
        from distributed import CancelledError, as_completed
        from distributed.comm import CommClosedError

        flying: dict[Any, Task] = {}
        completed = as_completed()
        try:
            while self._waiting or flying:
                self._submit(flying, completed)
                self._wait(completed)
                future = next(completed)
                task = flying.pop(future)
                outcome = _outcome(future)
                # Released at once: a result kept by its worker would be recomputed if that worker is lost.
                future.release()
                yield task, outcome
        except (CancelledError, CommClosedError):
            raise UserError(
                f"executor = {self._client.scheduler.address!r}: the Dask scheduler is lost; start it again, and run "
                "again: finished batches are stored"
            ) from None

    def _submit(self, flying: dict[Any, Task], completed: Any) -> None:
        """Keep the workers supplied."""
        room = TASKS_PER_THREAD * max(1, self.workers()) - len(flying)
        for _ in range(min(room, len(self._waiting))):
            task = self._waiting.popleft()
            future = self._client.submit(compute, task, self.device, engine(self.device), pure=False, retries=2)
            flying[future] = task
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
                raise _no_workers(self._client.scheduler.address)


def _no_workers(address: str) -> UserError:
    return UserError(
        f"executor = {address!r}: the scheduler has had no workers for {WORKER_SECONDS} s; start some (dask worker "
        f"{address}), and run again: finished batches are stored"
    )


def _outcome(future: Any) -> Outcome:
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
def open_queue(executor: str, workers: int | None = None) -> Iterator[Queue]:
    """Open a queue on an executor and close its workers at the end.

    Parameters
    ----------
    executor
        ``serial``; ``threads`` or ``processes`` on this machine; ``cuda``, one process for each of its GPUs; or the
        address of a running Dask scheduler, such as ``tcp://host:8786``.
    workers
        Number of threads or processes, at least 1; all cores, or GPUs, by default.

    Raises
    ------
    UserError
        If the executor is unknown, the number of workers is not positive, there are not so many GPUs, or the
        scheduler does not answer or has no workers.
    """
    if workers is not None and workers < 1:
        raise UserError(f"workers = {workers!r}: must be at least 1; leave it out for all cores")
    if executor == "serial":
        yield Queue()
    elif executor == "cuda":
        with _cuda_client(workers) as client:
            yield DaskQueue(client, "cuda")
    elif executor in EXECUTORS:
        with _local_client(executor, workers or os.cpu_count() or 1) as client:
            yield DaskQueue(client)
    elif "://" in str(executor):
        with _remote_client(executor) as client:
            yield DaskQueue(client)
    else:
        known = ", ".join(EXECUTORS)
        raise UserError(f"executor = {executor!r}: unknown; choose {known}, or an address such as tcp://host:8786")


@contextlib.contextmanager
def _local_client(executor: str, workers: int) -> Iterator[Any]:
    import dask
    from distributed import Client, LocalCluster

    processes = executor == "processes"
    shape = (
        {"n_workers": workers, "threads_per_worker": 1}
        if processes
        else {"n_workers": 1, "threads_per_worker": workers}
    )
    with dask.config.set({"distributed.nanny.pre-spawn-environ": _SINGLE}):
        cluster = LocalCluster(processes=processes, dashboard_address=":0", silence_logs=50, **shape)
        with cluster, Client(cluster) as client:
            yield client


@contextlib.contextmanager
def _cuda_client(workers: int | None) -> Iterator[Any]:
    """Start a process for each GPU, which sees that one alone."""
    if problem := cuda_problem():
        raise UserError(f"executor = 'cuda': {problem}, or choose another executor")
    gpus = visible_gpus()
    if workers is not None and workers > len(gpus):
        raise UserError(f"workers = {workers}: more than the GPUs that can be used ({len(gpus)}); leave it out for all")
    import dask
    from distributed import Client, Nanny, Scheduler, SpecCluster

    place = {"host": "127.0.0.1", "dashboard_address": ":0"}
    # One thread: a task keeps its GPU busy, and the simulator runs one kernel at a time.
    nannies = {
        name: {"cls": Nanny, "options": {**place, "nthreads": 1, "env": {"CUDA_VISIBLE_DEVICES": name}}}
        for name in gpus[:workers]
    }
    with dask.config.set({"distributed.nanny.pre-spawn-environ": _SINGLE}):
        cluster = SpecCluster(nannies, {"cls": Scheduler, "options": place}, silence_logs=50)
        with cluster, Client(cluster) as client:
            client.wait_for_workers(len(nannies), timeout=WORKER_SECONDS)
            yield client


@contextlib.contextmanager
def _remote_client(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise UserError(f"executor = {address!r}: no Dask scheduler answers there ({error}); start one") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            raise _no_workers(address) from None
        yield client
