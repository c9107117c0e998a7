"""Dask clients of all kinds: on this machine, on its GPUs, on a running scheduler, on jobs of a batch system.

Imports Dask (with dask-jobqueue), devices, jobs and problems only.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from simstudy.devices import cuda_problem, visible_gpus
from simstudy.jobs import SINGLE_THREADED, TCP_TIMEOUT, Jobs
from simstudy.problems import UserError

WORKER_SECONDS = 30
"""How long to wait for a scheduler without workers to get some."""
SUBMIT_RETRIES, SUBMIT_SECONDS = 60, 5.0
"""How often a job is submitted again to a batch system that fails, and seconds between."""
LOST_WORKERS = 10
"""Workers that may be lost with one task before it counts as deadly: jobs are ended for many a reason."""


def no_workers(address: str, seconds: float) -> UserError:
    """Return what to tell of a scheduler at an address that had no workers for so long."""
    return UserError(
        f"executor = {address!r}: the scheduler has had no workers for {seconds:g} s; start some (dask worker "
        f"{address}), and run again: finished batches are stored"
    )


@contextlib.contextmanager
def local_client(executor: str, workers: int) -> Iterator[Any]:
    """Start workers on this machine: ``threads`` of this process, or ``processes``."""
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
def cuda_client(workers: int | None) -> Iterator[Any]:
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
def remote_client(address: str) -> Iterator[Any]:
    """Connect to a running scheduler that has a worker."""
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
            raise no_workers(address, WORKER_SECONDS) from None
        yield client


@contextlib.contextmanager
def job_cluster(jobs: Jobs) -> Iterator[tuple[Any, Callable[[], None]]]:
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
        # Paths of logs are quoted by us; dask-jobqueue writes them as they are.
        **({"job_directives_skip": ["#SBATCH -e ", "#SBATCH -o "]} if jobs.system == "slurm" else {}),
        "job_extra_directives": [*([jobs.slurm_log("%j.log")] if jobs.system == "slurm" else []), *jobs.directives],
        "job_script_prologue": [f"export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP={TCP_TIMEOUT}", *jobs.prologue],
        "worker_extra_args": lifetime,
        "job_name": "simstudy",
    }
