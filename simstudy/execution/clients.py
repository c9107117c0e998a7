"""Dask clients of all kinds: on this machine, on its GPUs, on a running scheduler, on jobs of a batch system.

Whoever reaches a scheduler or a worker of Dask can run code as its user.  So what is started here talks over TLS, with
certificates of its own that end with it.
"""

import contextlib
import ipaddress
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from simstudy.errors import UserError, require_extra, require_plain
from simstudy.execution.folder import ASIDE, Folder
from simstudy.kernels.devices import cuda_problem, visible_gpus

WORKER_SECONDS = 30
"""How long to wait for a scheduler without workers to get some."""
BUSY_SECONDS = 60.0
"""How long a scheduler may be too busy to answer: importing us on a full machine takes it seconds."""
SUBMIT_RETRIES, SUBMIT_SECONDS = 60, 5.0
"""How often a job is submitted again to a batch system that fails, and seconds between."""
LOOPBACK = "127.0.0.1"
# What decides where the sources are and which bits they compute; only some batch systems pass the environment on.
_PASSED_ON = (
    "PYTHONPATH",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
    "NPY_DISABLE_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
)
LOST_WORKERS = 10
"""Workers that may be lost with one task before it counts as deadly: jobs are ended for many a reason."""
SUBMIT_COMMANDS = {"slurm": "sbatch", "pbs": "qsub", "sge": "qsub", "lsf": "bsub"}
TCP_TIMEOUT = "11s"
"""Silence after which a connection counts as broken; Dask refuses less, and by default takes a minute to notice."""
# Kernels are serial and release the GIL; numerical libraries must not start threads of their own.  Numba has none to
# start, and a variable of its own that changes makes it forget for which features of the processor it compiles.
# Python looks for no module in the current folder.
CHILDREN = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONSAFEPATH")}
"""Environment of all processes that are started here."""
_QUOTED = r"[^\w%@+=:,./-]"
"""Characters that mean something in a directive of a batch system."""


@dataclass(frozen=True)
class Jobs:
    """Equal jobs on a batch system, of which what is impossible is refused; ``keys`` is the folder of the study."""

    system: str = "slurm"
    jobs: int = 2
    threads: int = 1
    memory: str = "2GB"
    walltime: str = "01:00:00"
    queue: str | None = None
    interface: str | None = None
    scratch: str = "${TMPDIR:-/tmp}"
    directives: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    logs: Path = Path("logs")
    keys: Folder = field(default_factory=lambda: Folder(Path()))

    def __post_init__(self) -> None:
        import psutil

        for name in ("queue", "interface", "scratch", "directives", "setup", "logs"):
            value = getattr(self, name)
            require_plain(name, " ".join(value) if isinstance(value, tuple) else str(value))
        if self.system not in SUBMIT_COMMANDS:
            raise UserError(f"system = {self.system!r}: unknown; choose {', '.join(SUBMIT_COMMANDS)}")
        if min(self.jobs, self.threads) < 1:
            raise UserError(f"jobs = {self.jobs}, threads = {self.threads}: must be at least 1")
        if not re.fullmatch(r"[0-9]+[MG]B", self.memory):
            raise UserError(f"memory = {self.memory!r}: must be a whole number of MB or GB, such as 4GB")
        if not re.fullmatch(r"[0-9]+:[0-5][0-9]:[0-5][0-9]", self.walltime) or self.seconds < 60:
            raise UserError(
                f"walltime = {self.walltime!r}: must be hours:minutes:seconds, a minute or more, such as 01:30:00"
            )
        if self.interface is not None and self.interface not in psutil.net_if_addrs():
            known = ", ".join(psutil.net_if_addrs())
            raise UserError(f"interface = {self.interface!r}: this machine has none of that name; choose from {known}")
        # sbatch ends an argument at a space, also after a backslash, but not between quotes.  The others know none.
        if re.search(r'[\\"]' if self.system == "slurm" else rf"{_QUOTED}|%", str(self.logs)):
            raise UserError(f"{self.logs}: {self.system} cannot write logs to such a name; choose another --output")

    def __str__(self) -> str:
        return f"{self.jobs} {self.system} jobs of {self.threads} threads"

    @property
    def seconds(self) -> int:
        """Walltime in seconds."""
        hours, minutes, seconds = map(int, self.walltime.split(":"))
        return (hours * 60 + minutes) * 60 + seconds


def no_workers(address: str, seconds: float) -> UserError:
    """Return what to tell of a scheduler at an address that had no workers for so long."""
    return UserError(
        f"executor = {address!r}: the scheduler has had no workers for {seconds:g} s; start some (dask worker "
        f"{address}), and run again: finished batches are stored"
    )


def gpu_environments(workers: int | None) -> dict[str, dict[str, str]]:
    """Return the environments of processes that each see one GPU alone, by its name."""
    if problem := cuda_problem():
        raise UserError(f"executor = 'cuda': {problem}, or choose another executor")
    gpus = visible_gpus()
    if workers is not None and workers > len(gpus):
        raise UserError(f"workers = {workers}: more than the GPUs that can be used ({len(gpus)}); leave it out for all")
    return {name: {"CUDA_VISIBLE_DEVICES": name} for name in gpus[:workers]}


@contextlib.contextmanager
def local_client(environments: dict[str, dict[str, str]]) -> Iterator[Any]:
    """Start a process on this machine for each name, with an environment of its own and one thread."""
    import dask
    from distributed import Client, Security, SpecCluster
    from distributed.system import MEMORY_LIMIT

    from simstudy.execution.nodes import PagelessScheduler, PagelessWorker, PathlessNanny

    place = {"host": LOOPBACK, "protocol": "tls://", "security": Security.temporary()}
    # One thread: a task keeps its GPU busy, and the simulator runs one kernel at a time.
    worker = {
        **place, "worker_class": PagelessWorker, "nthreads": 1, "memory_limit": MEMORY_LIMIT // len(environments),
        "silence_logs": logging.CRITICAL,
    }  # fmt: skip
    nannies = {name: {"cls": PathlessNanny, "options": {**worker, "env": env}} for name, env in environments.items()}
    scheduler = {"cls": PagelessScheduler, "options": {**place, "dashboard_address": None}}
    os.environ |= CHILDREN  # before any child: Python starts one of its own for its semaphores
    with _scratch(), dask.config.set({"distributed.nanny.pre-spawn-environ": CHILDREN}):
        cluster = SpecCluster(nannies, scheduler, security=place["security"], silence_logs=logging.CRITICAL)
        with cluster, Client(cluster) as client:
            yield client


@contextlib.contextmanager
def _scratch() -> Iterator[None]:
    """Let what Dask starts work in a new folder that nobody else may enter; Dask takes a folder that is there."""
    import dask

    with tempfile.TemporaryDirectory(prefix="simstudy-") as folder, dask.config.set({"temporary-directory": folder}):
        yield


@contextlib.contextmanager
def remote_client(address: str, trust_network: bool) -> Iterator[Any]:
    """Connect to a running scheduler that has a worker."""
    from simstudy.execution.nodes import FirmClient

    security = _credentials(address, trust_network)
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
            raise no_workers(address, WORKER_SECONDS) from None
        yield client


def _credentials(address: str, trust_network: bool) -> Any:
    """Return the user's certificates, which an address on a network has to take."""
    from distributed import Security

    security = Security()
    try:
        host = urlsplit(address).hostname or ""
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if address.startswith("tls://"):
        own = security.get_tls_config_for_role("client")
        if not (own["ca_file"] and own["cert"]):
            raise UserError(
                f"executor = {address!r}: certificates are missing; set distributed.comm.tls.ca-file and "
                "distributed.comm.tls.client.cert (and .key) in Dask's configuration"
            )
    elif not (trust_network or address.startswith("inproc://") or here):
        raise UserError(
            f"executor = {address!r}: without TLS anybody on the network can run code as you; use tls:// with "
            "certificates in Dask's configuration, or --trust-network if nobody else is on it"
        )
    return security


@contextlib.contextmanager
def job_cluster(jobs: Jobs, claim: Callable[[], None]) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Keep jobs running that are workers of a scheduler in this process."""
    import dask
    from distributed import Client

    from simstudy.execution.nodes import PagelessScheduler

    if shutil.which(command := SUBMIT_COMMANDS[jobs.system]) is None:
        remedy = "submit from a login node of the cluster, or choose another --system"
        raise UserError(f"{command}: not found on the PATH; {remedy}")

    async def started() -> None:
        await cluster

    kind = _cluster_class(jobs)
    config = {"distributed.comm.timeouts.tcp": TCP_TIMEOUT, "distributed.scheduler.allowed-failures": LOST_WORKERS}
    submissions = _patient(kind.job_cls)
    scheduler = {"scheduler_cls": PagelessScheduler, "scheduler_options": {"dashboard_address": None}}
    claim()
    with (
        _scratch(),
        _key_file(jobs.keys) as security,
        dask.config.set(config),
        kind(job_cls=submissions, security=security, **scheduler, **_asked(jobs)) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=jobs.jobs)
        cluster.sync(started)
        if not submissions.accepted:
            reason = "; ".join(line.strip() for line in submissions.refusal.splitlines() if line.strip())
            raise UserError(
                f"{jobs.system} refuses the job: {reason}; mend --queue, --walltime, --memory or --directive"
            )
        # `scale` alone would not replace a job that is lost.  As many as wanted whatever the load: the queue hands
        # out few tasks at a time, from which the scheduler would infer that few workers are needed.
        cluster.adapt(minimum_jobs=jobs.jobs, maximum_jobs=jobs.jobs, interval="1s")
        yield client, lambda: _require_live(jobs, cluster)


@contextlib.contextmanager
def _key_file(folder: Folder) -> Iterator[Any]:
    """Make a certificate, and its key, in a file that the user alone can read, from its first byte to its end."""
    from distributed import Security

    made, name = Security.temporary(), f"{ASIDE}/tls-{uuid.uuid4().hex}.pem"
    try:
        content = made.tls_ca_file + made.tls_worker_key
        yield _shared_by_all(str(folder.write(name, content.encode(), flush=False, mode=0o600)))
    finally:
        folder.delete(name)


def _shared_by_all(file: str) -> Any:
    """Return the security of a cluster in which everybody shows the certificate of one file, its own authority."""
    from distributed import Security

    roles = [f"tls_{role}_{part}" for role in ("client", "scheduler", "worker") for part in ("cert", "key")]
    return Security(require_encryption=True, tls_ca_file=file, **dict.fromkeys(roles, file))


def _patient(job_class: Any) -> Any:
    """Return a class of jobs that are submitted again if the batch system fails, once it has taken the first."""
    import asyncio

    class PatientJob(job_class):
        accepted = False
        refusal = ""

        def __init__(self, *arguments: Any, security: Any, **options: Any) -> None:
            super().__init__(*arguments, security=_shared_by_all(shlex.quote(security.tls_ca_file)), **options)

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
    """Return the script of a job, as submitted apart from the scheduler's address, the worker's name and key file."""
    security = _shared_by_all(str(jobs.keys.path / ASIDE / "KEY"))
    job = _patient(_cluster_class(jobs).job_cls)
    options = {**_asked(jobs), "protocol": "tls://", "security": security}
    script: str = job("tls://SCHEDULER", name="WORKER", **options).job_script()
    return script


def _cluster_class(jobs: Jobs) -> Any:
    require_extra(f"system = {jobs.system!r}", "dask_jobqueue", "cluster", ", or run --share in jobs of your own")
    handler = signal.getsignal(signal.SIGINT)
    import dask_jobqueue  # takes Ctrl-C for itself

    signal.signal(signal.SIGINT, handler)
    return getattr(dask_jobqueue, f"{jobs.system.upper()}Cluster")


def _asked(jobs: Jobs) -> dict[str, Any]:
    """Return what dask-jobqueue is told about a job."""
    # Workers leave in order, a little apart, before the batch system ends them.
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # A directive by which Slurm writes a log for each job, whatever their folder.
    log = [f'--output="{str(jobs.logs).replace("%", "%%")}/%j.log"'] if jobs.system == "slurm" else []
    lifetime = ["--lifetime", f"{0.9 * jobs.seconds:.0f}s", "--lifetime-stagger", f"{0.05 * jobs.seconds:.0f}s"]
    return {
        "python": shlex.quote(sys.executable),
        "cores": jobs.threads,
        "processes": 1,
        "memory": jobs.memory,
        # LSF counts hours and minutes.
        "walltime": jobs.walltime[:-3] if jobs.system == "lsf" else jobs.walltime,
        "queue": jobs.queue,
        "interface": jobs.interface,
        "local_directory": '"$scratch"',
        "log_directory": str(jobs.logs),
        # Paths of logs are quoted by us; dask-jobqueue writes them as they are.
        **({"job_directives_skip": ["#SBATCH -e ", "#SBATCH -o "]} if log else {}),
        "job_extra_directives": [*log, *jobs.directives],
        "job_script_prologue": [
            f"export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP={TCP_TIMEOUT}",
            *(f"export {name}={shlex.quote(value)}" for name, value in (CHILDREN | passed).items()),
            *jobs.setup,
            # Nobody else may enter it, or have made it before.
            f'scratch=$(mktemp -d "{jobs.scratch}/simstudy-XXXXXXXXXX") || exit 1',
            "trap 'rm -rf \"$scratch\"' EXIT",
        ],
        "worker_extra_args": [*lifetime, "--no-dashboard", "--worker-class", "simstudy.execution.nodes.PagelessWorker"],
        "job_name": "simstudy",
    }
