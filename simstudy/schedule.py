"""One queue of batches over all cells, on any executor: the only module that imports Dask.

Imports Dask (with dask-jobqueue), batch, cells, devices, jobs, moments, problems, provenance and usage only.  It
contains no arithmetic: every executor calls `simulate_batch`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from simstudy.batch import simulate_batch
from simstudy.cells import Cell
from simstudy.devices import cuda_problem, visible_gpus
from simstudy.jobs import SINGLE_THREADED, TCP_TIMEOUT, Jobs
from simstudy.moments import Moments
from simstudy.problems import UserError
from simstudy.provenance import engine
from simstudy.usage import Usage, measured

EXECUTORS = ("serial", "threads", "processes", "cuda")
TASKS_PER_THREAD = 3
"""Tasks in flight for each worker thread: enough to hide latency, few enough to stop quickly."""
WORKER_SECONDS = 30
"""How long to wait for a scheduler without workers to get some."""
SUBMIT_RETRIES, SUBMIT_SECONDS = 60, 5.0
"""How often a job is submitted again to a batch system that fails, and seconds between."""
LOST_WORKERS = 10
"""Workers that may be lost with one task before it counts as deadly: jobs are ended for many a reason."""


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
                self._without_workers()
                last_seen = now

    def _give_up(self) -> None:
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
        with _job_cluster(executor) as (client, without_workers):
            yield DaskQueue(client, without_workers)
    elif executor == "serial":
        yield Queue()
    elif executor == "cuda":
        with _cuda_client(workers) as client:
            yield DaskQueue(client, device="cuda")
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
    with dask.config.set({"distributed.nanny.pre-spawn-environ": SINGLE_THREADED}):
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
    with dask.config.set({"distributed.nanny.pre-spawn-environ": SINGLE_THREADED}):
        cluster = SpecCluster(nannies, {"cls": Scheduler, "options": place}, silence_logs=50)
        with cluster, Client(cluster) as client:
            yield client


@contextlib.contextmanager
def _remote_client(address: str) -> Iterator[Any]:
    from distributed import Client

    # A scheduler that is lost is reported once, by us.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
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


@contextlib.contextmanager
def _job_cluster(jobs: Jobs) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Keep jobs running that are workers of a scheduler in this process."""
    import dask
    from distributed import Client

    jobs.require_command()
    kind = _cluster_class(jobs)
    config = {"distributed.comm.timeouts.tcp": TCP_TIMEOUT, "distributed.scheduler.allowed-failures": LOST_WORKERS}
    submissions = _patient(kind.job_cls)
    with (
        dask.config.set(config),
        kind(job_cls=submissions, **_asked(jobs), scheduler_options={"dashboard_address": ":0"}) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=jobs.jobs)
        cluster.sync(_submitted, cluster)
        if not submissions.accepted:
            reason = "; ".join(line.strip() for line in submissions.refusal.splitlines() if line.strip())
            raise UserError(
                f"{jobs.system} refuses the job: {reason}; mend --queue, --walltime, --memory or --directive"
            )
        # `scale` alone would not replace a job that is lost.  As many as wanted whatever the load: the queue hands
        # out few tasks at a time, from which the scheduler would infer that few workers are needed.
        cluster.adapt(minimum_jobs=jobs.jobs, maximum_jobs=jobs.jobs, interval="1s")
        yield client, lambda: _require_live(jobs, cluster)


async def _submitted(cluster: Any) -> None:
    await cluster


def _patient(job_class: Any) -> Any:
    """Return a class of jobs that are submitted again if the batch system fails, once it has taken the first."""
    import asyncio

    class PatientJob(job_class):
        accepted = False
        refusal = ""

        async def _submit_job(self, script: str) -> str:
            for _ in range(SUBMIT_RETRIES):
                try:
                    answer: str = await super()._submit_job(script)
                    PatientJob.accepted = True
                    return answer
                except RuntimeError as error:
                    PatientJob.refusal = str(error).split("stderr:")[-1]
                    if not PatientJob.accepted:
                        break
                    await asyncio.sleep(SUBMIT_SECONDS)
            return ""

        def _job_id_from_submit_output(self, answer: str) -> str | None:
            return super()._job_id_from_submit_output(answer) if answer else None

    return PatientJob


def _require_live(jobs: Jobs, cluster: Any) -> None:
    """Jobs may wait in the queue for days; but if Slurm knows none of them any more, none will come."""
    if jobs.system != "slurm" or not cluster.workers:
        return
    numbers = ",".join(job.job_id for job in cluster.workers.values() if job.job_id)
    command = ["squeue", "--noheader", "--format=%A", f"--jobs={numbers or 0}"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if not asked.stdout.strip() and (asked.returncode == 0 or "Invalid job id" in asked.stderr):
        raise UserError(
            f"slurm jobs {numbers}: ended without becoming workers; {jobs.logs} has their logs; mend --setup, "
            "--interface or --memory, and submit again: finished batches are stored"
        )


def job_script(jobs: Jobs) -> str:
    """Return the script of a job, as it is submitted apart from the address of the scheduler and the worker's name."""
    script: str = _cluster_class(jobs).job_cls("tcp://SCHEDULER", name="WORKER", **_asked(jobs)).job_script()
    return script


def _cluster_class(jobs: Jobs) -> Any:
    handler = signal.getsignal(signal.SIGINT)
    try:
        import dask_jobqueue  # takes Ctrl-C for itself
    except ImportError:
        raise UserError(
            "dask-jobqueue: not installed; pip install 'simstudy[cluster]', or use --array, which does without"
        ) from None
    signal.signal(signal.SIGINT, handler)
    names = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "sge": "SGECluster", "lsf": "LSFCluster"}
    return getattr(dask_jobqueue, names[jobs.system])


def _asked(jobs: Jobs) -> dict[str, Any]:
    """Return what dask-jobqueue is told about a job."""
    # Workers leave in order, a little apart, before the batch system ends them.
    lifetime = ["--lifetime", f"{0.9 * jobs.seconds:.0f}s", "--lifetime-stagger", f"{0.05 * jobs.seconds:.0f}s"]
    return {
        "cores": jobs.threads,
        "processes": 1,
        "memory": jobs.memory,
        # LSF counts hours and minutes.
        "walltime": jobs.walltime[:-3] if jobs.system == "lsf" else jobs.walltime,
        "queue": jobs.queue,
        "interface": jobs.interface,
        "local_directory": f'"{jobs.scratch}"',
        "log_directory": str(jobs.logs),
        "job_extra_directives": list(jobs.directives),
        "job_script_prologue": [f"export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP={TCP_TIMEOUT}", *jobs.prologue],
        "worker_extra_args": lifetime,
        "job_name": "simstudy",
    }
