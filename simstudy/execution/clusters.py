"""Executors of Dask: processes and GPUs of this machine, a scheduler that already runs, and Slurm jobs.

Anyone who reaches a scheduler or worker of Dask can run code as its user.  Therefore all processes started here
communicate by TLS with certificates of this run, serve no web pages, and import nothing from the current folder.
"""

import asyncio
import contextlib
import logging
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any
from unittest import mock

import dask
import psutil
from distributed import Client, KilledWorker, Nanny, Scheduler, Security, SpecCluster, Status, Worker
from distributed.comm import CommClosedError
from distributed.system import MEMORY_LIMIT

from simstudy.errors import UserError
from simstudy.execution.executors import SAME_ENGINE, Executor, Jobs, available, cores
from simstudy.execution.folder import PARTIAL, Folder

COUNT_SECONDS, WORKER_SECONDS, BUSY_SECONDS = 1.0, 30, 60.0
"""Seconds between counts of workers; seconds that a scheduler may be without workers, or too busy to answer."""
SUBMIT_RETRIES, SUBMIT_SECONDS = 60, 5.0
"""Number of attempts to submit a job if Slurm fails, and seconds between them."""
TCP_TIMEOUT = "11s"
"""Time without an answer after which a connection is broken: the least that Dask accepts; its default is a minute."""
# Environment of all processes started here.  Kernels are serial and release the GIL, so numerical libraries must not
# start threads.  Numba starts none; if one of its own variables changes, it resets the processor features for which it
# compiles.  Python must not look for modules in the current folder.
CHILDREN = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONSAFEPATH")}
_LOCAL = r"inproc://.*|tcp://(127(\.[0-9]{1,3}){3}|localhost|\[::1\])(:[0-9]+)?"
"""Addresses on this machine, which others on the network cannot reach."""


class _Private:
    local_directory: str

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Dask adds this folder to the path of modules.
        sys.path[:] = [entry for entry in sys.path if entry != self.local_directory]

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Do nothing: Dask would open a web server on all interfaces, even without a dashboard."""


class PrivateScheduler(_Private, Scheduler):
    """A scheduler without a web server."""


class PrivateNanny(_Private, Nanny):
    """A nanny, which restarts a worker process that dies."""


class PrivateWorker(_Private, Worker):
    """A worker without a web server; Slurm jobs name it on their command line."""


class NoReconnectClient(Client):
    """A client that does not reconnect to a lost scheduler: reconnecting may leave a TLS socket open (Python 3.11)."""

    async def _reconnect(self) -> None:
        """Cancel all futures instead of reconnecting."""
        self._handle_cancelled_keys(list(self.futures), reason="scheduler-connection-lost")
        self.scheduler_comm = None


class DaskExecutor(Executor):
    """An executor of a Dask client; ``without_workers`` is called after `WORKER_SECONDS` without workers."""

    def __init__(self, client: Any, device: str = "cpu", without_workers: Callable[[], None] | None = None) -> None:
        super().__init__(client, 0)
        self.device, self._client, self._address = device, client, client.scheduler.address
        self._without_workers = without_workers or partial(_no_workers, self._address)
        self._counted, self._last_seen = -math.inf, time.monotonic()
        self._excluded: set[str] = set()  # addresses of workers
        self._allowed: list[str] | None = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Return the future of a call."""
        task = self._client.submit(function, *arguments, pure=False, workers=self._allowed)

        async def outcome() -> Any:
            return await task

        # Dask's own executor fails if a worker is lost just after its result was fetched.
        return asyncio.run_coroutine_threadsafe(outcome(), self._client.loop.asyncio_loop)

    def workers(self) -> int:
        """Return the number of calls that run at once: threads of the workers, counted at most a second ago."""
        if time.monotonic() - self._counted >= COUNT_SECONDS:
            try:
                threads = self._client.nthreads()
            except OSError:  # also of a closed connection, or one that was not accepted in time
                raise self._lost() from None
            mine = {address: count for address, count in threads.items() if address not in self._excluded}
            self._allowed = sorted(mine) if self._excluded and mine else self._allowed
            self._count, self._counted = sum(mine.values()), time.monotonic()
        return self._count

    def memory(self) -> float:
        """Return the bytes that all workers may allocate together, at the smallest limit of any worker."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [each["memory_limit"] / each["nthreads"] for each in workers if each["memory_limit"]]
        local = [available()] if all(each["host"] == "127.0.0.1" for each in workers) else []
        return min([*local, *(limit * self.workers() for limit in limits)], default=math.inf)

    def result(self, future: Future) -> Any:
        """Return the result of a call that has ended; UserError if its workers died or the scheduler is lost."""
        self._last_seen = time.monotonic()
        try:
            return future.result()
        except KilledWorker:
            remedy = "start fewer workers, give them more memory or lower batch_size, and run again: finished batches"
            fault = "workers died, several in a row, while they computed one batch (out of memory?)"
            raise UserError(f"{fault}; {remedy} are stored") from None
        except (CancelledError, CommClosedError):
            raise self._lost() from None

    def _lost(self) -> UserError:
        remedy = "start it again, and run again: finished batches are stored"
        return UserError(f"executor = {self._address!r}: the Dask scheduler is lost; {remedy}")

    def wait_for_workers(self) -> None:
        """Raise UserError after `WORKER_SECONDS` without workers, unless jobs wait in the queue."""
        if self.workers():
            self._last_seen = time.monotonic()
        elif time.monotonic() - self._last_seen > WORKER_SECONDS:
            self._without_workers()
            self._last_seen = time.monotonic()

    def exclude(self, worker: Any) -> None:
        """Stop using a worker of another engine, and add a line to ``notes``; UserError if no worker is left."""
        fault = f"a worker on {worker.host} would give other last bits (engine {worker.engine})"
        if worker.address not in self._excluded:
            self._excluded.add(worker.address)
            self._counted = -math.inf
            self.notes.append(f"{fault} and computed nothing; {SAME_ENGINE}")
        if not self.workers():
            raise UserError(f"{fault}, and no other worker is left; {SAME_ENGINE}")


def _no_workers(address: str) -> None:
    fault = f"executor = {address!r}: the scheduler has had no workers for {WORKER_SECONDS} s"
    raise UserError(f"{fault}; start some (dask worker {address}), and run again: finished batches are stored")


def dask_executor(
    executor: str | Jobs, workers: int | None, reserve: Callable[[float, int], None]
) -> contextlib.AbstractContextManager[DaskExecutor]:
    """Return the context manager of an executor of Dask; Slurm jobs call ``reserve`` before they are submitted."""
    if isinstance(executor, Jobs):
        return job_cluster(executor, reserve)
    if executor == "processes":
        return local_cluster({str(number): {} for number in range(workers or cores())}, 1)
    if executor != "cuda":
        return remote_cluster(executor)
    from simstudy.kernels.devices import cuda_problem, cuda_simulated, visible_gpus

    if problem := cuda_problem():
        raise UserError(f"executor = 'cuda': {problem}, or choose another executor")
    gpus = visible_gpus()
    if workers is not None and workers > len(gpus):
        raise UserError(f"workers = {workers}: more than the GPUs that can be used ({len(gpus)}); leave it out for all")
    # Each process sees one GPU.  One batch is prepared while another waits for the GPU; the simulator runs only one
    # kernel at a time.
    n_threads = 1 if cuda_simulated() else 2
    return local_cluster({name: {"CUDA_VISIBLE_DEVICES": name} for name in gpus[:workers]}, n_threads, "cuda")


@contextlib.contextmanager
def local_cluster(
    environments: dict[str, dict[str, str]], n_threads: int, device: str = "cpu"
) -> Iterator[DaskExecutor]:
    """Start a worker process on this machine for each environment, by name, with this number of threads."""
    local = {"host": "127.0.0.1", "protocol": "tls://", "security": Security.temporary()}
    worker = {
        **local, "worker_class": PrivateWorker, "nthreads": n_threads, "silence_logs": logging.CRITICAL,
        "memory_limit": MEMORY_LIMIT // len(environments),
    }  # fmt: skip
    nannies = {name: {"cls": PrivateNanny, "options": {**worker, "env": env}} for name, env in environments.items()}
    scheduler = {"cls": PrivateScheduler, "options": {**local, "dashboard_address": None}}
    env = mock.patch.dict(os.environ, CHILDREN)  # before Python starts its own process for semaphores
    config = {"distributed.nanny.pre-spawn-environ": CHILDREN}
    with env, tempfile.TemporaryDirectory(prefix="simstudy-") as own, dask.config.set(config, temporary_directory=own):
        cluster = SpecCluster(nannies, scheduler, security=local["security"], silence_logs=logging.CRITICAL)
        with cluster, Client(cluster) as client:
            yield DaskExecutor(client, device)


@contextlib.contextmanager
def remote_cluster(address: str) -> Iterator[DaskExecutor]:
    """Connect to a running scheduler that has a worker; across a network by TLS, with the certificates of Dask."""
    security = Security()
    if address.startswith("tls://"):
        own = security.get_tls_config_for_role("client")
        if not (own["ca_file"] and own["cert"]):
            remedy = "set distributed.comm.tls.ca-file and distributed.comm.tls.client.cert (and .key)"
            raise UserError(f"executor = {address!r}: certificates are missing; {remedy} in Dask's configuration")
    elif not re.fullmatch(_LOCAL, address):
        fault = f"executor = {address!r}: without TLS anybody on the network can run code as you; use tls:// with "
        raise UserError(f"{fault}certificates in Dask's configuration, or give simstudy.run a Client of your own")
    # A lost scheduler is reported once, by the UserError.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = NoReconnectClient(address, security=security, timeout=BUSY_SECONDS)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        remedy = "start one, or fix the certificates" if address.startswith("tls://") else "start one"
        raise UserError(f"executor = {address!r}: no Dask scheduler answers there ({reason}); {remedy}") from None
    with client:
        client.rpc.timeout = BUSY_SECONDS
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            _no_workers(address)
        yield DaskExecutor(client)


@contextlib.contextmanager
def job_cluster(jobs: Jobs, reserve: Callable[[float, int], None]) -> Iterator[DaskExecutor]:
    """Submit Slurm jobs and replace lost ones; UserError if no job is left."""
    kind, job, options = _slurm(jobs)
    if shutil.which(kind.job_cls.submit_command) is None:
        remedy = "submit from a login node of the cluster, or run --share in jobs of your own"
        raise UserError(f"{kind.job_cls.submit_command}: not found on the PATH; {remedy}")

    # Up to ten workers may be lost during one task, as jobs end for many reasons.
    config = {"distributed.comm.timeouts.tcp": TCP_TIMEOUT, "distributed.scheduler.allowed-failures": 10}
    scheduler = {"scheduler_cls": PrivateScheduler, "scheduler_options": {"dashboard_address": None}}
    reserve(dask.utils.parse_bytes(options["memory"]), options["cores"])
    with (
        tempfile.TemporaryDirectory(prefix="simstudy-") as own,  # readable by the user only
        _key_file(Folder(jobs.folder)) as security,
        dask.config.set(config | {"temporary-directory": own}),
        kind(job_cls=job, security=security, **scheduler, **options) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=jobs.n_jobs)
        cluster.sync(lambda: cluster)  # until all are submitted
        if not job.accepted:
            reason = "; ".join(line.strip() for line in job.refusal.splitlines() if line.strip())
            raise UserError(f"slurm refuses the job: {reason}; fix jobqueue.slurm in the configuration of Dask")
        # `scale` would not replace lost jobs.  The number of jobs is fixed: only few tasks are submitted at once, from
        # which the scheduler would infer that few workers are needed.
        cluster.adapt(minimum_jobs=jobs.n_jobs, maximum_jobs=jobs.n_jobs, interval="1s")
        yield DaskExecutor(client, without_workers=lambda: _require_live(jobs, cluster))


def job_script(jobs: Jobs) -> str:
    """Return the script of a job, with placeholders for the scheduler's address, the worker's name and the key file."""
    _, job, options = _slurm(jobs)
    options["security"] = _shared_by_all(str(jobs.folder / PARTIAL / "KEY"))
    with Folder(jobs.folder).reporting("logs", "written"):  # Dask makes this folder
        return str(job("tls://SCHEDULER", name="WORKER", protocol="tls://", **options).job_script())


def _slurm(jobs: Jobs) -> tuple[Any, Any, dict[str, Any]]:
    """Return the classes of a cluster and of its jobs, and arguments that complete the configuration of Dask."""
    handler = signal.getsignal(signal.SIGINT)
    from dask_jobqueue import SLURMCluster  # replaces the handler of Ctrl-C

    signal.signal(signal.SIGINT, handler)
    checks: dict[str, tuple[Callable[[Any], bool], str]] = {
        "cores": (lambda n: type(n) is int and n > 0, "a whole number from 1"),
        "memory": (lambda size: dask.utils.parse_bytes(size) >= 1 << 20, "a size such as 8GB"),
        "interface": (lambda name: name in psutil.net_if_addrs(), f"one of {', '.join(psutil.net_if_addrs())}"),
    }
    names = *checks, "local-directory", "job-script-prologue", "worker-extra-args"
    stated = {name: dask.config.get(f"jobqueue.slurm.{name}") for name in names}
    for name, (valid, expected) in checks.items():
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            if stated[name] is None or valid(stated[name]):
                continue
        raise UserError(f"jobqueue.slurm.{name} = {stated[name]!r} in the configuration of Dask: give {expected}")
    if re.search(r"[^\w@+=:,./-]", str(jobs.folder)):  # sbatch and shells would read it differently
        raise UserError(f"{jobs.folder}: slurm cannot write logs to such a name; choose another --output")
    prologue = [
        f"export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP={TCP_TIMEOUT}",
        *(f"export {name}={value}" for name, value in CHILDREN.items()),
        *(stated["job-script-prologue"] or ()),
        # A new folder that only the user can read.
        f'scratch=$(mktemp -d "{stated["local-directory"] or "${TMPDIR:-/tmp}"}/simstudy-XXXXXXXXXX") || exit 1',
        "trap 'rm -rf \"$scratch\"' EXIT",
    ]
    page = ["--no-dashboard", "--worker-class", f"{__name__}.{PrivateWorker.__name__}"]
    options = {
        "job_name": "simstudy",
        "python": shlex.quote(sys.executable),
        "cores": stated["cores"] or 1,
        "processes": 1,
        "memory": stated["memory"] or "2GB",
        "local_directory": '"$scratch"',
        "log_directory": str(jobs.folder / "logs"),
        "job_script_prologue": prologue,
        "worker_extra_args": [*(stated["worker-extra-args"] or ()), *page],
    }
    return SLURMCluster, _resubmitting(SLURMCluster.job_cls), options


def _resubmitting(job_class: Any) -> Any:
    """Return a class of jobs that submits a job again if the batch system fails after it accepted one."""

    class ResubmittedJob(job_class):
        accepted = False
        refusal = ""

        async def start(self) -> None:
            for _ in range(SUBMIT_RETRIES):
                try:
                    await super().start()
                    ResubmittedJob.accepted = True
                    return
                except RuntimeError as error:
                    ResubmittedJob.refusal = str(error).split("stderr:")[-1]
                    if not ResubmittedJob.accepted:
                        break
                    await asyncio.sleep(SUBMIT_SECONDS)
            self.status = Status.running  # as Dask requires

    return ResubmittedJob


@contextlib.contextmanager
def _key_file(folder: Folder) -> Iterator[Security]:
    """Write a certificate and its key to a file that only the user can read, and delete it at the end."""
    made, name = Security.temporary(), f"{PARTIAL}/tls-{uuid.uuid4().hex}.pem"
    content = (made.tls_ca_file + made.tls_worker_key).encode()
    try:
        yield _shared_by_all(str(folder.write(name, content, flush=False, mode=0o600)))
    finally:
        folder.delete(name)


def _shared_by_all(file: str) -> Security:
    """Return the security of a cluster whose processes share one self-signed certificate."""
    roles = [f"tls_{role}_{part}" for role in ("client", "scheduler", "worker") for part in ("cert", "key")]
    return Security(require_encryption=True, tls_ca_file=file, **dict.fromkeys(roles, file))


def _require_live(jobs: Jobs, cluster: Any) -> None:
    """Raise UserError if Slurm no longer knows any of the jobs; jobs may wait in the queue for days."""
    numbers = ",".join(job.job_id for job in cluster.workers.values() if job.job_id)
    command = ["squeue", "--noheader", "--format=%A", f"--jobs={numbers or 0}"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if cluster.workers and not asked.stdout.strip() and (not asked.returncode or "Invalid job id" in asked.stderr):
        fault = f"slurm jobs {numbers}: ended without becoming workers; {jobs.folder / 'logs'} has their logs; fix "
        raise UserError(f"{fault}jobqueue.slurm in the configuration of Dask, and submit again: batches are stored")
