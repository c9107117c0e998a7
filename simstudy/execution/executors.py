"""Executors of batches, from threads to cluster jobs; the loop that runs batches on them; their time and memory."""

import concurrent.futures
import contextlib
import importlib.util
import operator
import os
import platform
import re
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from itertools import groupby, product
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from threadpoolctl import threadpool_limits

from simstudy.design.document import PlannedCell
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.errors import UserError, require_extra
from simstudy.execution.provenance import engine
from simstudy.replicates.batch import PIECE_BYTES, draws_at_once, replicate_bytes, simulate_batch
from simstudy.replicates.moments import Draw, Moments
from simstudy.replicates.population import draws_of

MAX_WORKERS = 1024
"""Largest number of workers on one machine, as systems limit the number of threads."""
SAME_ENGINE = "install the same simstudy and libraries there, and use nodes of one processor type"
_GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""List of the control groups of this process, and the folder that describes them."""
_FILES = ("memory.max", "memory.current", "file"), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
"""Memory of a control group, version 2 and 1: limit, bytes in use, and bytes of cache among them."""
_QUOTAS = ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")
"""Processor time of a control group, version 2 and 1: time in a period, and the period."""
TASKS_PER_THREAD, MAX_WAITING = 3, 1 << 14
"""Calls submitted for each worker thread, to hide latency; largest number of tasks that wait for a call."""
CALL_SECONDS, WAIT_SECONDS = 0.5, 1.0
"""Processor time of the tasks in one call; time without an outcome after which workers are counted."""
CELLS_PER_TASK = 8
"""Largest number of cells that one task evaluates on shared data; more would save little time."""


def _groups() -> Iterator[Path]:
    """Yield the control groups of this process and their parents."""
    with contextlib.suppress(OSError):
        for line in _GROUPS[0].read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            yield from ((own := _GROUPS[1] / controllers / path[1:]), *own.parents)


def cores() -> int:
    """Return the number of cores that this process may use, within limits of a batch system or container."""
    found = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for group, names in product(_groups(), _QUOTAS):
        with contextlib.suppress(OSError, ValueError):  # no such file; no limit, which is "max", or negative
            quota, period = (int(each) for name in names for each in (group / name).read_text().split())
            found += [-(-quota // period)] if quota > 0 else []
    return min(found)


def available() -> int:
    """Return the bytes that this process may still allocate, limited by machine, control groups and address space."""
    free = [psutil.virtual_memory().available]
    if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        free.append(limit - psutil.Process().memory_info().vms)
    for group, (most, used, cached) in product(_groups(), _FILES):
        with contextlib.suppress(OSError, ValueError):  # no such file; no limit, which is "max"
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            taken = int((group / used).read_text()) - int(stat[cached])
            free.append(int((group / most).read_text()) - taken)
    return min(free)


def batch_bytes(cell: Cell) -> float:
    """Return the estimated bytes of a batch: sums of blocks, known means, and the keys of replicates held at once."""
    known = 1500 * (cell.controlled and cell.has_closed_forms and cell.estimator.logits == "dot_product")  # at nodes
    sums = 8 * cell.n_queries * cell.n_members * (cell.n_members + 3) // 2 * (N_BLOCKS * (1 + cell.controlled) + known)
    copies = {"identity": 1, "equicorrelated": 3}.get(getattr(cell.data.key_distribution, "structure", ""), 2)
    numbers = cell.data.n_keys * (copies * cell.data.n_features + cell.heads.n_heads * cell.heads.head_dim + 2)
    count = max(1, min(cell.simulation.batch_size // N_BLOCKS, PIECE_BYTES // replicate_bytes(cell)))
    # The allocator holds a third more; 10 MiB are common to all batches.  The memory of a user's functions is unknown.
    held = count * numbers * (4 if cell.simulation.dtype == "float32" else 8) * 4 / 3 + (10 << 20)
    return sums + (held if cell.functions is None else 0)


def require_memory(cells: Iterable[PlannedCell], free: float, calls: int) -> None:
    """Raise a UserError if simultaneous batches need more than the free bytes."""
    largest = max(cells, key=lambda planned: batch_bytes(planned.cell))
    if (needed := batch_bytes(largest.cell)) * calls > free:
        smaller = "use fewer keys, features, heads or query points"
        remedy = f"use at most {free // needed:.0f} of them" if needed <= free else smaller
        both = f"about {needed / 2**30:.2g} GiB of memory, and {calls} workers have {free / 2**30:.2g} GiB together"
        raise UserError(f"grids.{largest.grid}: a batch takes {both}; {remedy}, or more memory")


class Executor:
    """An executor of `concurrent.futures`; other executors have the same methods."""

    device = "cpu"

    def __init__(self, pool: Any, count: int) -> None:
        self._pool, self._count = pool, count
        self.notes: list[str] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Return the future of a call."""
        return self._pool.submit(function, *arguments)

    def workers(self) -> int:
        """Return the number of calls that run at once."""
        return self._count

    def memory(self) -> float:
        """Return the bytes that all workers together may still allocate."""
        return available()

    def result(self, future: Future) -> Any:
        """Return the result of a call that has ended."""
        return future.result()

    def wait_for_workers(self) -> None:
        """Do nothing; an executor of Dask raises UserError if it has had no workers for long."""

    def exclude(self, worker: Any) -> None:
        """Raise UserError for a worker of another engine; an executor of Dask continues with the other workers."""
        raise UserError(f"a worker on {worker.host} would give other last bits (engine {worker.engine}); {SAME_ENGINE}")


class Threads(Executor):
    """Threads that end with their process; ``calling`` executes each call, possibly in another process."""

    def __init__(self, pool: ThreadPool, count: int, calling: Callable[..., Any] = operator.call) -> None:
        super().__init__(pool, count)
        self._calling = calling

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Return the future of a call."""
        future: Future = Future()
        self._pool.apply_async(self._calling, (function, *arguments), {}, future.set_result, future.set_exception)
        return future


class Jobs(NamedTuple):
    """Equal Slurm jobs for the study in a folder, as the configuration of dask-jobqueue describes them."""

    n_jobs: int
    folder: Path

    def __str__(self) -> str:
        return f"{self.n_jobs} slurm jobs"


@contextlib.contextmanager
def open_executor(
    executor: Any, workers: int | None = None, reserve: Callable[[float, int], None] = lambda *_: None
) -> Iterator[Executor]:
    """Open an executor; ``reserve`` is called with its memory and workers, before jobs are submitted."""
    if workers is not None and not (type(workers) is int and 1 <= workers <= MAX_WORKERS):
        raise UserError(f"workers = {workers!r}: must be a whole number from 1 to {MAX_WORKERS}; leave it out for all")
    count = workers or cores()
    # Threads of numerical libraries would compete with workers, and their number may change last bits.
    with threadpool_limits(1), contextlib.ExitStack() as stack:
        if isinstance(executor, Jobs) or (isinstance(executor, str) and re.match("processes$|cuda$|.*://", executor)):
            require_extra(f"executor = {str(executor)!r}", "distributed", "cluster", ", or choose executor = 'threads'")
            from simstudy.execution.clusters import dask_executor

            opened: Executor = stack.enter_context(dask_executor(executor, workers, reserve))
        elif executor in ("serial", "threads"):
            count = 1 if executor == "serial" else count
            opened = Threads(stack.enter_context(ThreadPool(count)), count)
        elif not isinstance(executor, str):  # given by the caller, and left open
            dask = importlib.import_module("distributed") if hasattr(executor, "get_client") else None
            own = stack.enter_context(dask.Client(executor, set_as_default=False)) if dask else executor
            closed = any(getattr(own, name, None) is True for name in ("_shutdown", "_shutdown_thread"))
            closed |= getattr(own, "status", None) == "closed"
            if hasattr(own, "nthreads") and not (closed or own.asynchronous):
                from simstudy.execution.clusters import DaskExecutor

                opened = DaskExecutor(own)
            elif isinstance(own, concurrent.futures.Executor) and not closed:
                opened = Executor(own, getattr(own, "_max_workers", None) or count)
            else:
                known = "a Client (not asynchronous) or cluster of Dask, an executor of concurrent.futures, or a word"
                raise UserError(f"executor of type {type(own).__name__}{', which is closed' * closed}: give {known}")
        else:
            joblib = importlib.import_module("joblib.parallel") if importlib.util.find_spec("joblib") else None
            if joblib is None or executor not in joblib.BACKENDS:
                known = "serial, threads, processes, cuda, a backend of joblib, or an address such as tls://host:8786"
                raise UserError(f"executor = {executor!r}: unknown; choose {known}")

            def call(function: Callable[..., Any], *arguments: Any) -> Any:
                return joblib.Parallel(count, backend=executor)([joblib.delayed(function)(*arguments)])[0]

            opened = Threads(stack.enter_context(ThreadPool(count)), count, call)
            opened.result(opened.submit(int))  # joblib must start its processes from one thread
        if not isinstance(executor, Jobs):  # for jobs it is called before they exist
            reserve(opened.memory(), opened.workers())
        try:
            yield opened
        except BrokenExecutor as error:  # when a call is submitted or has ended
            raise UserError(f"{type(opened._pool).__name__}: {error} Run again: finished batches are stored") from None


class Task(NamedTuple):
    """One batch of cells that share their data."""

    cells: tuple[Cell, ...]
    batch: int
    identities: tuple[str, ...] = ()  # Names under which the batches of the cells are stored


class Outcome(NamedTuple):
    """Moments of each cell of a task, the process that computed them, and its time and memory."""

    batches: list[Moments | Draw]
    process: str
    cpu_seconds: float  # Processor time of the thread
    peak_MiB: float  # Peak memory of the process so far


class OtherEngine(NamedTuple):
    """A worker of another engine, which therefore computed nothing."""

    engine: str
    host: str
    address: str


def compute(tasks: Sequence[Task], device: str, expected: str) -> list[Outcome] | OtherEngine:
    """Return the outcomes of tasks on this worker, or `OtherEngine` if its engine is not the expected one."""
    if (own := engine(device)) != expected:
        dask = sys.modules.get("distributed")
        return OtherEngine(own, platform.node(), dask.get_worker().address if dask else "")
    threadpool_limits(1)  # for the lifetime of the worker
    outcomes = []
    for (cells, _), consecutive in groupby(enumerate(tasks), lambda pair: (pair[1].cells, pair[1].batch - pair[0])):
        numbers, step = [task.batch for _, task in consecutive], min(draws_at_once(cell, device) for cell in cells)
        for run in (numbers[start : start + step] for start in range(0, len(numbers), step)):
            start = time.thread_time()
            found = zip(cells, simulate_batch(cells, run[0], device, len(run)), strict=True)
            # A draw of a population has small statistics, unless a control needs the moments of all draws.
            made = [draws_of(cell, x, run[0]) if cell.population and not cell.controlled else [x] for cell, x in found]
            used = _process(), (time.thread_time() - start) / len(run), _peak_MiB()
            outcomes += [Outcome(list(batches), *used) for batches in zip(*made, strict=True)]
    return outcomes


def run_tasks(executor: Executor, streams: deque[Iterator[Task]]) -> Iterator[tuple[Task, Outcome]]:
    """Yield tasks of streams with their outcomes, in order of completion; streams may be added meanwhile."""
    running: dict[Future, list[Task]] = {}
    waiting: deque[Task] = deque()
    seconds = CALL_SECONDS

    def submit_calls() -> None:
        """Submit calls of about equal duration, estimated from the last call, and at least one for each worker."""
        most = TASKS_PER_THREAD * max(1, executor.workers())
        while streams and len(waiting) < MAX_WAITING:
            if task := next(streams[0], None):
                waiting.append(task)
            else:
                streams.popleft()
        while waiting and len(running) < most:
            length = max(1, min(int(CALL_SECONDS / seconds), len(waiting) // most))
            tasks = [waiting.popleft() for _ in range(length)]
            running[executor.submit(compute, tasks, executor.device, engine(executor.device))] = tasks

    submit_calls()
    while running:
        done, _ = concurrent.futures.wait(running, WAIT_SECONDS, concurrent.futures.FIRST_COMPLETED)
        if not done:
            executor.wait_for_workers()
        for future in [each for each in running if each.done()]:  # in order; `wait` leaves out cancelled calls
            tasks, found = running.pop(future), executor.result(future)
            if isinstance(found, OtherEngine):
                executor.exclude(found)
                waiting.extendleft(reversed(tasks))
            else:
                seconds = max(1e-6, sum(outcome.cpu_seconds for outcome in found) / len(found))
                submit_calls()  # before outcomes are stored, so that no worker waits for the disk
                yield from zip(tasks, found, strict=True)
        submit_calls()


class Meter:
    """Time and memory of a run since the meter was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._elsewhere = self._peak = 0.0

    def add(self, outcome: Outcome) -> None:
        """Add an outcome of another process; time and memory of this process are measured in `read`."""
        if outcome.process != _process():
            self._elsewhere += outcome.cpu_seconds
            self._peak = max(outcome.peak_MiB, self._peak)

    def read(self) -> dict[str, float]:
        """Return wall time, processor time of all processes, and peak memory of the largest process."""
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
