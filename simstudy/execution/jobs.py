"""Jobs of a batch system that are workers of a scheduler in this process, over TLS, by dask-jobqueue."""

import asyncio
import contextlib
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simstudy.errors import UserError, require_extra, require_plain
from simstudy.execution.folder import ASIDE, Folder

SUBMIT_COMMANDS = {"slurm": "sbatch", "pbs": "qsub", "sge": "qsub", "lsf": "bsub"}
SUBMIT_RETRIES, SUBMIT_SECONDS = 60, 5.0
"""How often a job is submitted again to a batch system that fails, and seconds between."""
# What decides where the sources are and which bits they compute; only some batch systems pass the environment on.
_PASSED_ON = (
    "PYTHONPATH", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NPY_DISABLE_CPU_FEATURES", "OPENBLAS_CORETYPE",
)  # fmt: skip
LOST_WORKERS = 10
"""Workers that may be lost with one task before it counts as deadly: jobs are ended for many a reason."""
TCP_TIMEOUT = "11s"
"""Silence after which a connection counts as broken; Dask refuses less, and by default takes a minute to notice."""
# Kernels are serial and release the GIL; numerical libraries must not start threads of their own.  Numba has none to
# start, and a variable of its own that changes makes it forget for which features of the processor it compiles.
# Python looks for no module in the current folder.
CHILDREN = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONSAFEPATH")}
"""Environment of all processes that are started here."""


@dataclass(frozen=True)
class Jobs:
    """Equal jobs on a batch system for the study in a folder; all else is in dask-jobqueue's configuration."""

    system: str = "slurm"
    jobs: int = 2
    threads: int = 1
    memory: str = "2GB"
    walltime: str = "01:00:00"
    folder: Path = Path()

    def __post_init__(self) -> None:
        require_plain("folder", str(self.folder))
        for name, pattern, wanted in (
            ("memory", "[0-9]+[MG]B", "a whole number of MB or GB, such as 4GB"),
            ("walltime", "(?!0+:00)[0-9]+:[0-5][0-9]:[0-5][0-9]", "hours:minutes:seconds, a minute or more"),
        ):
            if not re.fullmatch(pattern, str(value := getattr(self, name))):
                raise UserError(f"{name} = {value!r}: must be {wanted}")
        # sbatch ends an argument at a space, also after a backslash, but not between quotes.  The others know none.
        if re.search(r'[\\"]' if self.system == "slurm" else r"[^\w@+=:,./-]", str(self.logs)):
            raise UserError(f"{self.logs}: {self.system} cannot write logs to such a name; choose another --output")

    def __str__(self) -> str:
        return f"{self.jobs} {self.system} jobs of {self.threads} threads"

    @property
    def logs(self) -> Path:
        """Folder of logs, which the batch system writes."""
        return self.folder / "logs"

    @property
    def seconds(self) -> int:
        """Walltime in seconds."""
        hours, minutes, seconds = map(int, self.walltime.split(":"))
        return (hours * 60 + minutes) * 60 + seconds


@contextlib.contextmanager
def job_cluster(jobs: Jobs, claim: Callable[[float, int], None]) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Keep jobs running, and yield their client and what raises UserError if none of them is left."""
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
    claim(dask.utils.parse_bytes(jobs.memory), jobs.threads)
    with (
        tempfile.TemporaryDirectory(prefix="simstudy-") as own,  # which nobody else may enter
        _key_file(Folder(jobs.folder)) as security,
        dask.config.set(config | {"temporary-directory": own}),
        kind(job_cls=submissions, security=security, **scheduler, **_asked(jobs)) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=jobs.jobs)
        cluster.sync(started)
        if not submissions.accepted:
            reason = "; ".join(line.strip() for line in submissions.refusal.splitlines() if line.strip())
            remedy = f"mend --walltime or --memory, or the configuration of dask-jobqueue (jobqueue.{jobs.system})"
            raise UserError(f"{jobs.system} refuses the job: {reason}; {remedy}")
        # `scale` alone would not replace a job that is lost.  As many as wanted whatever the load: the queue hands
        # out few tasks at a time, from which the scheduler would infer that few workers are needed.
        cluster.adapt(minimum_jobs=jobs.jobs, maximum_jobs=jobs.jobs, interval="1s")
        yield client, lambda: _require_live(jobs, cluster)


@contextlib.contextmanager
def _key_file(folder: Folder) -> Iterator[Any]:
    """Make a certificate, and its key, in a file that the user alone can read, from its first byte to its end."""
    from distributed import Security

    made, name = Security.temporary(), f"{ASIDE}/tls-{uuid.uuid4().hex}.pem"
    content = (made.tls_ca_file + made.tls_worker_key).encode()
    try:
        yield _shared_by_all(str(folder.write(name, content, flush=False, mode=0o600)))
    finally:
        folder.delete(name)


def _shared_by_all(file: str) -> Any:
    """Return the security of a cluster in which everybody shows the certificate of one file, its own authority."""
    from distributed import Security

    roles = [f"tls_{role}_{part}" for role in ("client", "scheduler", "worker") for part in ("cert", "key")]
    return Security(require_encryption=True, tls_ca_file=file, **dict.fromkeys(roles, file))


def _patient(job_class: Any) -> Any:
    """Return a class of jobs that are submitted again if the batch system fails, once it has taken the first."""
    from distributed import Status

    class PatientJob(job_class):
        accepted = False
        refusal = ""

        def __init__(self, *arguments: Any, security: Any, **options: Any) -> None:
            super().__init__(*arguments, security=_shared_by_all(shlex.quote(security.tls_ca_file)), **options)

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


def _require_live(jobs: Jobs, cluster: Any) -> None:
    """Jobs may wait in the queue for days; but if Slurm knows none of them any more, none will come."""
    if jobs.system != "slurm" or not cluster.workers:
        return
    numbers = ",".join(job.job_id for job in cluster.workers.values() if job.job_id)
    command = ["squeue", "--noheader", "--format=%A", f"--jobs={numbers or 0}"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if not asked.stdout.strip() and (asked.returncode == 0 or "Invalid job id" in asked.stderr):
        said = f"slurm jobs {numbers}: ended without becoming workers; {jobs.logs} has their logs; mend --memory, or "
        raise UserError(f"{said}the configuration of dask-jobqueue, and submit again: finished batches are stored")


def job_script(jobs: Jobs) -> str:
    """Return the script of a job, as submitted apart from the scheduler's address, the worker's name and key file."""
    security = _shared_by_all(str(jobs.folder / ASIDE / "KEY"))
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
    """Arguments of dask-jobqueue for a job, with what its configuration adds."""
    import dask

    def stated(name: str) -> Any:  # by Dask, for which hyphens are underscores, as those in the environment have to be
        return dask.config.get(f"jobqueue.{jobs.system}.{name}", None)

    scratch = stated("local-directory") or "${TMPDIR:-/tmp}"
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # A directive by which Slurm writes a log for each job, whatever their folder.
    log = [f'--output="{str(jobs.logs).replace("%", "%%")}/%j.log"'] if jobs.system == "slurm" else []
    # Workers leave in order, a little apart, before the batch system ends them.
    lifetime = ["--lifetime", f"{0.9 * jobs.seconds:.0f}s", "--lifetime-stagger", f"{0.05 * jobs.seconds:.0f}s"]
    return {
        "python": shlex.quote(sys.executable),
        "cores": jobs.threads,
        "processes": 1,
        "memory": jobs.memory,
        # LSF counts hours and minutes.
        "walltime": jobs.walltime[:-3] if jobs.system == "lsf" else jobs.walltime,
        "local_directory": '"$scratch"',
        "log_directory": str(jobs.logs),
        # Paths of logs are quoted by us; dask-jobqueue writes them as they are.
        **({"job_directives_skip": ["#SBATCH -e ", "#SBATCH -o "]} if log else {}),
        "job_extra_directives": [*log, *(stated("job-extra-directives") or ())],
        "job_script_prologue": [
            f"export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP={TCP_TIMEOUT}",
            *(f"export {name}={shlex.quote(value)}" for name, value in (CHILDREN | passed).items()),
            *(stated("job-script-prologue") or ()),
            # Nobody else may enter it, or have made it before.
            f'scratch=$(mktemp -d "{scratch}/simstudy-XXXXXXXXXX") || exit 1',
            "trap 'rm -rf \"$scratch\"' EXIT",
        ],
        "worker_extra_args": [*lifetime, "--no-dashboard", "--worker-class", "simstudy.execution.nodes.PagelessWorker"],
        "job_name": "simstudy",
    }
