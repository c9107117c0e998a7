"""Job scripts as text, and everything that a user can ask of a batch system and not get."""

import asyncio
import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest

from simstudy.errors import UserError
from simstudy.execution import jobs
from simstudy.execution.executors import open_executor
from simstudy.execution.folder import Folder
from simstudy.execution.jobs import SUBMIT_COMMANDS, Jobs, job_script

ASKED = {"jobs": 3, "threads": 4, "memory": "8GB", "walltime": "02:30:00"}
STATED = {"queue": "long", "job-extra-directives": ["-X this"], "job-script-prologue": ["module load python"]}
"""In the configuration of dask-jobqueue."""
NO_KEYS = jobs._shared_by_all("key")
DIRECTIVES = {
    "slurm": [
        "#SBATCH -p long", "#SBATCH --cpus-per-task=4", "#SBATCH --mem=8G", "#SBATCH -t 02:30:00", "#SBATCH -X this",
    ],
    "pbs": ["#PBS -q long", "#PBS -l select=1:ncpus=4:mem=7630MB", "#PBS -l walltime=02:30:00", "#PBS -X this"],
    "sge": ["#$ -q long", "#$ -l h_rt=02:30:00", "#$ -X this"],
    "lsf": ["#BSUB -q long", "#BSUB -n 4", "#BSUB -W 02:30", "#BSUB -X this"],
}  # fmt: skip


@pytest.mark.parametrize("system", SUBMIT_COMMANDS)
def test_job_script__asks_for_what_was_asked(system, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic cpu")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX2")
    job_script(Jobs(system))  # dask-jobqueue brings its defaults
    folder = tmp_path / ("a folder" if system == "slurm" else "folder")
    asked = Jobs(system, **ASKED, folder=folder)
    with dask.config.set({f"jobqueue.{system}": dask.config.get(f"jobqueue.{system}") | STATED}):
        lines = job_script(asked).splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    for expected in DIRECTIVES[system]:
        assert expected in lines
    for expected in (
        "export OMP_NUM_THREADS=1", "export PYTHONSAFEPATH=1",
        'scratch=$(mktemp -d "${TMPDIR:-/tmp}/simstudy-XXXXXXXXXX") || exit 1',
        "export NUMBA_CPU_NAME='generic cpu'", "export OPENBLAS_CORETYPE=Haswell", "module load python",
        "export NPY_DISABLE_CPU_FEATURES=AVX2",
        "export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP=11s",
    ):  # fmt: skip
        assert lines.index(expected) < len(lines) - 1
    worker = lines[-1]
    assert worker.startswith(f"{shlex.quote(sys.executable)} -m distributed.cli.dask_worker tls://SCHEDULER ")
    assert " --nthreads 4 " in worker and ' --local-directory "$scratch" ' in worker
    assert (
        " --lifetime 8100s --lifetime-stagger 450s --no-dashboard --worker-class simstudy.execution.nodes.Pageless"
        in worker
    )
    key = shlex.quote(f"{folder}/.partial/KEY")
    assert worker.endswith(f" --protocol tls:// --tls-ca-file {key} --tls-cert {key} --tls-key {key}")
    assert "BEGIN" not in "".join(lines)  # of a key


NO_LINE = "must be one line of text without control"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"memory": "4"}, "memory = '4': must be a whole number of MB or GB"),
        ({"walltime": "90"}, "walltime = '90': must be hours:minutes:seconds"),
        ({"walltime": "00:00:30"}, "a minute or more"),
        # Each would write more than one line into the script, or steer a terminal.
        *(({"folder": Path(name)}, f"folder = .*: {NO_LINE}") for name in ("a\nb", "a\x1b[2J", "caf\udce9")),
        # Names of folders that no way of quoting hands on.
        *(({"system": system, "folder": Path(name)}, f"{system} cannot write logs to such a name") for system, name in (
            ("slurm", "a\\b"), ("slurm", 'a"b'), ("pbs", "a b"), ("lsf", "%J"), ("sge", "a'b"),
        )),
    ],
)  # fmt: skip
def test_impossible_jobs__are_refused(asked, message):
    with pytest.raises(UserError, match=message) as refused:
        Jobs(**asked)
    assert str(refused.value).isprintable()


def test_folder_of_logs__is_quoted_as_slurm_reads_it(tmp_path):
    """sbatch takes what stands between double quotes as it is, but two percent signs for one."""
    folder = tmp_path / "a b%j 'c' #e é"
    quoted = f"#SBATCH --output=\"{tmp_path}/a b%%j 'c' #e é/logs/"
    script = job_script(Jobs(folder=folder))
    assert f'{quoted}%j.log"\n' in script and script.count("/logs") == 1


@pytest.mark.parametrize("system", SUBMIT_COMMANDS)
def test_no_batch_system__is_one_message(system, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    message = f"{SUBMIT_COMMANDS[system]}: not found on the PATH; submit from a login node"
    with pytest.raises(UserError, match=message), open_executor(Jobs(system)):
        raise AssertionError("opened")


def test_missing_extra__is_one_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(UserError, match=r"not installed; pip install 'simstudy\[cluster\]', or run --share in jobs"):
        job_script(Jobs())


def test_key_file__is_closed_to_others_from_the_start_and_ends_with_the_block(tmp_path):
    folder = tmp_path / ".partial"
    tmp_path.chmod(0o777)
    old = os.umask(0)
    try:
        with jobs._key_file(Folder(tmp_path)) as security:
            (path,) = folder.iterdir()
            assert path.stat().st_mode & 0o777 == 0o600
            assert {security.tls_ca_file, security.tls_worker_key} == {str(path)}
    finally:
        os.umask(old)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("accepted", "failures", "submitted"), [(False, 99, 1), (True, 3, 4), (True, 10_000, jobs.SUBMIT_RETRIES)]
)
def test_job_that_is_refused__is_submitted_again_if_another_was_taken(accepted, failures, submitted, monkeypatch):
    scripts = []

    class Job:
        def __init__(self, security):
            self.security = security

        async def start(self):
            scripts.append("script")
            if len(scripts) <= failures:
                raise RuntimeError("Command exited with code 1\nstderr:\nno such queue")

    monkeypatch.setattr(jobs, "SUBMIT_SECONDS", 0.0)
    kind = jobs._patient(Job)
    kind.accepted = accepted
    asyncio.run(kind(security=NO_KEYS).start())
    assert len(scripts) == submitted and (accepted or kind.refusal.strip() == "no such queue")


@pytest.mark.parametrize(
    ("code", "shown", "complaint", "lost"),
    [
        (0, "17\n", "", False),  # it waits, or runs
        (0, "", "", True),
        (1, "", "slurm_load_jobs error: Invalid job id specified", True),
        (1, "", "slurm_load_jobs error: Unable to contact slurm controller", False),
    ],
)
def test_jobs_that_slurm_knows_no_more__are_told(code, shown, complaint, lost, monkeypatch, tmp_path):
    asked = []

    def squeue(command, **_):
        asked.append(command)
        return subprocess.CompletedProcess(command, code, shown, complaint)

    monkeypatch.setattr(jobs.subprocess, "run", squeue)
    cluster = SimpleNamespace(workers={"a": SimpleNamespace(job_id="17"), "b": SimpleNamespace(job_id="18")})
    slurm, pbs = (Jobs(system, **ASKED, folder=tmp_path) for system in ("slurm", "pbs"))
    with pytest.raises(UserError, match="jobs 17,18: ended without") if lost else contextlib.nullcontext():
        jobs._require_live(slurm, cluster)
    assert [command[-1] for command in asked] == ["--jobs=17,18"]
    jobs._require_live(pbs, cluster)
    jobs._require_live(slurm, SimpleNamespace(workers={}))
    assert len(asked) == 1
