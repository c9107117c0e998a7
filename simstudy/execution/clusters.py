"""Executors by Dask: processes and GPUs of this machine, a scheduler that runs elsewhere, and jobs of Slurm.

Whoever reaches a scheduler or a worker of Dask can run code as its user.  So what is started here talks over TLS, with
certificates of its own that end with it, serves no pages, and imports nothing from its folder.
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
from simstudy.execution.executors import ONE_ENGINE, Executor, Jobs, available, cores
from simstudy.execution.folder import ASIDE, Folder

COUNT_SECONDS, WORKER_SECONDS, BUSY_SECONDS = 1.0, 30, 60.0
"""Time after which workers of a scheduler are counted again; how long it may have none, or be too busy to answer."""
SUBMIT_RETRIES, SUBMIT_SECONDS = 60, 5.0
"""How often a job is submitted again to a Slurm that fails, and seconds between."""
TCP_TIMEOUT = "11s"
"""Silence after which a connection counts as broken; Dask refuses less, and by default takes a minute to notice."""
# Kernels are serial and release the GIL; numerical libraries must not start threads of their own.  Numba has none to
# start, and a variable of its own that changes makes it forget for which features of the processor it compiles.
# Python looks for no module in the current folder.  The environment of all processes that are started here:
CHILDREN = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONSAFEPATH")}
_HERE = r"inproc://.*|tcp://(127(\.[0-9]{1,3}){3}|localhost|\[::1\])(:[0-9]+)?"
"""Addresses on this machine, to which nobody else on the network connects."""


class _Private:
    local_directory: str

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Dask puts it first; nobody else may enter it.
        sys.path[:] = [entry for entry in sys.path if entry != self.local_directory]

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Do nothing: Dask opens a web server on all interfaces whether or not a dashboard is wanted."""


class PagelessScheduler(_Private, Scheduler):
    """A scheduler without a web server."""


class PathlessNanny(_Private, Nanny):
    """Nanny that starts a worker process, and starts it again."""


class PagelessWorker(_Private, Worker):
    """A worker without a web server; jobs of Slurm name it on their command line."""


class FirmClient(Client):
    """A client that does not connect again to a lost scheduler: that may leave its TLS socket open (Python 3.11)."""

    async def _reconnect(self) -> None:
        """End all work as cancelled, in place of Dask's attempts."""
        self._handle_cancelled_keys(list(self.futures), reason="scheduler-connection-lost")
        self.scheduler_comm = None


class DaskExecutor(Executor):
    """A client of Dask; ``without_workers`` is called while it has none."""

    def __init__(self, client: Any, device: str = "cpu", without_workers: Callable[[], None] | None = None) -> None:
        super().__init__(client, 0)
        self.device, self._client, self._address = device, client, client.scheduler.address
        self._without_workers = without_workers or partial(_no_workers, self._address)
        self._counted, self._last_seen = -math.inf, time.monotonic()
        self._unlike: set[str] = set()
        self._alike: list[str] | None = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Return the future of a call."""
        task = self._client.submit(function, *arguments, pure=False, workers=self._alike)

        async def outcome() -> Any:
            return await task

        # Dask's own executor takes an outcome for an error if its worker is lost just after it was fetched.
        return asyncio.run_coroutine_threadsafe(outcome(), self._client.loop.asyncio_loop)

    def workers(self) -> int:
        """Return how many calls run at once, by the threads that the scheduler had within the last second."""
        if time.monotonic() - self._counted >= COUNT_SECONDS:
            try:
                threads = self._client.nthreads()
            except OSError:  # also a connection that is closed, or that was not taken in time
                raise self._lost() from None
            mine = {address: count for address, count in threads.items() if address not in self._unlike}
            self._alike = sorted(mine) if self._unlike and mine else self._alike
            self._count, self._counted = sum(mine.values()), time.monotonic()
        return self._count

    def memory(self) -> float:
        """Return the bytes that workers may take together, if all had the limit of the smallest."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [each["memory_limit"] / each["nthreads"] for each in workers if each["memory_limit"]]
        here = [available()] if all(each["host"] == "127.0.0.1" for each in workers) else []
        return min([*here, *(limit * self.workers() for limit in limits)], default=math.inf)

    def result(self, future: Future) -> Any:
        """Result of a call that has ended; UserError if its workers died or the scheduler is lost."""
        self._last_seen = time.monotonic()
        try:
            return future.result()
        except KilledWorker:
            remedy = "start fewer workers, give them more memory or lower batch_size, and run again: finished batches"
            said = "workers died, several in a row, while they computed one batch (out of memory?)"
            raise UserError(f"{said}; {remedy} are stored") from None
        except (CancelledError, CommClosedError):
            raise self._lost() from None

    def _lost(self) -> UserError:
        remedy = "start it again, and run again: finished batches are stored"
        return UserError(f"executor = {self._address!r}: the Dask scheduler is lost; {remedy}")

    def wait_for_workers(self) -> None:
        """Raise UserError if there have been no workers for long and none will come."""
        if self.workers():
            self._last_seen = time.monotonic()
        elif time.monotonic() - self._last_seen > WORKER_SECONDS:
            self._without_workers()
            self._last_seen = time.monotonic()

    def set_aside(self, worker: Any) -> None:
        """Submit nothing to a worker of another engine any more, and say so in ``aside``; UserError if none is left."""
        said = f"a worker on {worker.host} would give other bits (engine {worker.engine})"
        if worker.address not in self._unlike:
            self._unlike.add(worker.address)
            self._counted = -math.inf
            self.aside.append(f"{said} and computed nothing; {ONE_ENGINE}")
        if not self.workers():
            raise UserError(f"{said}, and no other worker is left; {ONE_ENGINE}")


def _no_workers(address: str) -> None:
    said = f"executor = {address!r}: the scheduler has had no workers for {WORKER_SECONDS} s"
    raise UserError(f"{said}; start some (dask worker {address}), and run again: finished batches are stored")


def dask_executor(
    executor: str | Jobs, workers: int | None, claim: Callable[[float, int], None]
) -> contextlib.AbstractContextManager[DaskExecutor]:
    """Return what opens the executor of a word, an address or jobs; these ``claim`` before there is a job or a key."""
    if isinstance(executor, Jobs):
        return job_cluster(executor, claim)
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
    # Each process sees one GPU alone, by its name.  While one batch waits for the GPU, the other is made ready; the
    # simulator runs one kernel at a time.
    n_threads = 1 if cuda_simulated() else 2
    return local_cluster({name: {"CUDA_VISIBLE_DEVICES": name} for name in gpus[:workers]}, n_threads, "cuda")


@contextlib.contextmanager
def local_cluster(
    environments: dict[str, dict[str, str]], n_threads: int, device: str = "cpu"
) -> Iterator[DaskExecutor]:
    """Start a process on this machine for each name, with an environment of its own and so many threads."""
    place = {"host": "127.0.0.1", "protocol": "tls://", "security": Security.temporary()}
    worker = {
        **place, "worker_class": PagelessWorker, "nthreads": n_threads, "silence_logs": logging.CRITICAL,
        "memory_limit": MEMORY_LIMIT // len(environments),
    }  # fmt: skip
    nannies = {name: {"cls": PathlessNanny, "options": {**worker, "env": env}} for name, env in environments.items()}
    scheduler = {"cls": PagelessScheduler, "options": {**place, "dashboard_address": None}}
    env = mock.patch.dict(os.environ, CHILDREN)  # before any child: Python starts one of its own for its semaphores
    config = {"distributed.nanny.pre-spawn-environ": CHILDREN}
    with env, tempfile.TemporaryDirectory(prefix="simstudy-") as own, dask.config.set(config, temporary_directory=own):
        cluster = SpecCluster(nannies, scheduler, security=place["security"], silence_logs=logging.CRITICAL)
        with cluster, Client(cluster) as client:
            yield DaskExecutor(client, device)


@contextlib.contextmanager
def remote_cluster(address: str) -> Iterator[DaskExecutor]:
    """Connect to a running scheduler that has a worker, with the user's certificates, which a network has to take."""
    security = Security()
    if address.startswith("tls://"):
        own = security.get_tls_config_for_role("client")
        if not (own["ca_file"] and own["cert"]):
            remedy = "set distributed.comm.tls.ca-file and distributed.comm.tls.client.cert (and .key)"
            raise UserError(f"executor = {address!r}: certificates are missing; {remedy} in Dask's configuration")
    elif not re.fullmatch(_HERE, address):
        said = f"executor = {address!r}: without TLS anybody on the network can run code as you; use tls:// with "
        raise UserError(f"{said}certificates in Dask's configuration, or give simstudy.run a Client of your own")
    # A scheduler that is lost is reported once, by us.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = FirmClient(address, security=security, timeout=BUSY_SECONDS)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        remedy = "start one, or mend the certificates" if address.startswith("tls://") else "start one"
        raise UserError(f"executor = {address!r}: no Dask scheduler answers there ({reason}); {remedy}") from None
    with client:
        client.rpc.timeout = BUSY_SECONDS
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            _no_workers(address)
        yield DaskExecutor(client)


@contextlib.contextmanager
def job_cluster(jobs: Jobs, claim: Callable[[float, int], None]) -> Iterator[DaskExecutor]:
    """Keep jobs running; UserError if none of them is left."""
    kind, job, options = _slurm(jobs)
    if shutil.which(kind.job_cls.submit_command) is None:
        remedy = "submit from a login node of the cluster, or run --share in jobs of your own"
        raise UserError(f"{kind.job_cls.submit_command}: not found on the PATH; {remedy}")

    # Ten workers may be lost with one task before it counts as deadly: jobs are ended for many a reason.
    config = {"distributed.comm.timeouts.tcp": TCP_TIMEOUT, "distributed.scheduler.allowed-failures": 10}
    scheduler = {"scheduler_cls": PagelessScheduler, "scheduler_options": {"dashboard_address": None}}
    claim(dask.utils.parse_bytes(options["memory"]), options["cores"])
    with (
        tempfile.TemporaryDirectory(prefix="simstudy-") as own,  # which nobody else may enter
        _key_file(Folder(jobs.folder)) as security,
        dask.config.set(config | {"temporary-directory": own}),
        kind(job_cls=job, security=security, **scheduler, **options) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=jobs.n_jobs)
        cluster.sync(lambda: cluster)  # until all are submitted
        if not job.accepted:
            reason = "; ".join(line.strip() for line in job.refusal.splitlines() if line.strip())
            raise UserError(f"slurm refuses the job: {reason}; mend jobqueue.slurm in the configuration of Dask")
        # `scale` alone would not replace a job that is lost.  As many as wanted whatever the load: the queue hands
        # out few tasks at a time, from which the scheduler would infer that few workers are needed.
        cluster.adapt(minimum_jobs=jobs.n_jobs, maximum_jobs=jobs.n_jobs, interval="1s")
        yield DaskExecutor(client, without_workers=lambda: _require_live(jobs, cluster))


def job_script(jobs: Jobs) -> str:
    """Return the script of a job, as submitted apart from the scheduler's address, the worker's name and key file."""
    _, job, options = _slurm(jobs)
    options["security"] = _shared_by_all(str(jobs.folder / ASIDE / "KEY"))
    with Folder(jobs.folder).told("logs", "written"):  # which Dask makes
        return str(job("tls://SCHEDULER", name="WORKER", protocol="tls://", **options).job_script())


def _slurm(jobs: Jobs) -> tuple[Any, Any, dict[str, Any]]:
    """Classes of a cluster and of its jobs, and the arguments of these that add to what its configuration states."""
    handler = signal.getsignal(signal.SIGINT)
    from dask_jobqueue import SLURMCluster  # takes Ctrl-C for itself

    signal.signal(signal.SIGINT, handler)
    checks: dict[str, tuple[Callable[[Any], bool], str]] = {
        "cores": (lambda n: type(n) is int and n > 0, "a whole number from 1"),
        "memory": (lambda size: dask.utils.parse_bytes(size) >= 1 << 20, "a size such as 8GB"),
        "interface": (lambda name: name in psutil.net_if_addrs(), f"one of {', '.join(psutil.net_if_addrs())}"),
    }
    names = *checks, "local-directory", "job-script-prologue", "worker-extra-args"
    stated = {name: dask.config.get(f"jobqueue.slurm.{name}") for name in names}
    for name, (sound, wanted) in checks.items():
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            if stated[name] is None or sound(stated[name]):
                continue
        raise UserError(f"jobqueue.slurm.{name} = {stated[name]!r} in the configuration of Dask: give {wanted}")
    if re.search(r"[^\w@+=:,./-]", str(jobs.folder)):  # sbatch and shells would each read it in their own way
        raise UserError(f"{jobs.folder}: slurm cannot write logs to such a name; choose another --output")
    prologue = [
        f"export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP={TCP_TIMEOUT}",
        *(f"export {name}={value}" for name, value in CHILDREN.items()),
        *(stated["job-script-prologue"] or ()),
        # Nobody else may enter it, or have made it before.
        f'scratch=$(mktemp -d "{stated["local-directory"] or "${TMPDIR:-/tmp}"}/simstudy-XXXXXXXXXX") || exit 1',
        "trap 'rm -rf \"$scratch\"' EXIT",
    ]
    page = ["--no-dashboard", "--worker-class", f"{__name__}.{PagelessWorker.__name__}"]
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
    return SLURMCluster, _patient(SLURMCluster.job_cls), options


def _patient(job_class: Any) -> Any:
    """Return a class of jobs that are submitted again if the batch system fails, once it has taken the first."""

    class PatientJob(job_class):
        accepted = False
        refusal = ""

        async def start(self) -> None:
            for _ in range(SUBMIT_RETRIES):
                try:
                    await super().start()
                    PatientJob.accepted = True
                    return
                except RuntimeError as error:
                    PatientJob.refusal = str(error).split("stderr:")[-1]
                    if not PatientJob.accepted:
                        break
                    await asyncio.sleep(SUBMIT_SECONDS)
            self.status = Status.running  # as Dask requires of what was started

    return PatientJob


@contextlib.contextmanager
def _key_file(folder: Folder) -> Iterator[Security]:
    """Make a certificate, and its key, in a file that the user alone can read, from its first byte to its end."""
    made, name = Security.temporary(), f"{ASIDE}/tls-{uuid.uuid4().hex}.pem"
    content = (made.tls_ca_file + made.tls_worker_key).encode()
    try:
        yield _shared_by_all(str(folder.write(name, content, flush=False, mode=0o600)))
    finally:
        folder.delete(name)


def _shared_by_all(file: str) -> Security:
    """Return the security of a cluster in which everybody shows the certificate of one file, its own authority."""
    roles = [f"tls_{role}_{part}" for role in ("client", "scheduler", "worker") for part in ("cert", "key")]
    return Security(require_encryption=True, tls_ca_file=file, **dict.fromkeys(roles, file))


def _require_live(jobs: Jobs, cluster: Any) -> None:
    """Jobs may wait in the queue for days; but if Slurm knows none of them any more, none will come."""
    numbers = ",".join(job.job_id for job in cluster.workers.values() if job.job_id)
    command = ["squeue", "--noheader", "--format=%A", f"--jobs={numbers or 0}"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if cluster.workers and not asked.stdout.strip() and (not asked.returncode or "Invalid job id" in asked.stderr):
        said = f"slurm jobs {numbers}: ended without becoming workers; {jobs.folder / 'logs'} has their logs; mend "
        raise UserError(f"{said}jobqueue.slurm in the configuration of Dask, and submit again: batches are stored")
