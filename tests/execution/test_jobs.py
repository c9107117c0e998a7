"""Job scripts as text, and everything that a user can ask of Slurm and not get."""

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
from builders import refuses, write_design

from simstudy.errors import UserError
from simstudy.execution import clusters
from simstudy.execution.clusters import job_script
from simstudy.execution.executors import Jobs, open_executor
from simstudy.execution.folder import Folder

STATED = {
    "cores": 4, "memory": "8GB", "walltime": "02:30:00", "queue": "long", "job-extra-directives": ["-X this"],
    "job-script-prologue": ["module load python"], "worker-extra-args": ["--lifetime", "2h"],
}  # fmt: skip
"""In the configuration of dask-jobqueue."""
job_script(Jobs(2, Path("a")))  # so that dask-jobqueue has brought its defaults, which a change would else undo


def test_job_script__asks_for_what_the_configuration_states(tmp_path):
    folder = tmp_path / "folder"
    assert "#SBATCH --cpus-per-task=1\n#SBATCH --mem=2G\n" in job_script(Jobs(2, folder))
    with dask.config.set({"jobqueue.slurm": dask.config.get("jobqueue.slurm") | STATED}):
        lines = job_script(Jobs(2, folder)).splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    for expected in (
        "#SBATCH -p long", "#SBATCH --cpus-per-task=4", "#SBATCH --mem=8G", "#SBATCH -t 02:30:00", "#SBATCH -X this",
        "export OMP_NUM_THREADS=1", "export PYTHONSAFEPATH=1", "module load python",
        'scratch=$(mktemp -d "${TMPDIR:-/tmp}/simstudy-XXXXXXXXXX") || exit 1',
        "export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP=11s",
    ):  # fmt: skip
        assert lines.index(expected) < len(lines) - 1
    worker = lines[-1]
    assert worker.startswith(f"{shlex.quote(sys.executable)} -m distributed.cli.dask_worker tls://SCHEDULER ")
    assert " --nthreads 4 " in worker and ' --local-directory "$scratch" ' in worker
    key = f"{folder}/.partial/KEY"
    own = "--lifetime 2h --no-dashboard --worker-class simstudy.execution.clusters.PagelessWorker"
    assert worker.endswith(f" {own} --protocol tls:// --tls-ca-file {key} --tls-cert {key} --tls-key {key}")
    assert "BEGIN" not in "".join(lines)  # of a key


@pytest.mark.parametrize("name", ["a b", 'a"b', "a\\b", "a'b", "%J", "a\nb", "a\x1b[2J", "caf\udce9"])
def test_folder_that_no_way_of_quoting_hands_on__is_refused(name):
    """Some would write more than one line into the script, or steer a terminal."""
    assert refuses("slurm cannot write logs to such a name", job_script, Jobs(2, Path(name))).isprintable()


def test_no_batch_system_and_jobs_that_nobody_can_have__are_one_message(monkeypatch, tmp_path):
    for name, stated in (("memory", "much"), ("memory", 8), ("cores", "four"), ("cores", 2.5), ("interface", "eth999")):
        refused = pytest.raises(UserError, match=rf"jobqueue\.slurm\.{name} = '?{stated}'? in the .* of Dask: give ")
        with dask.config.set({f"jobqueue.slurm.{name}": stated}), refused, open_executor(Jobs(2, tmp_path)):
            raise AssertionError("opened")
    monkeypatch.setenv("PATH", str(tmp_path))
    told = pytest.raises(UserError, match="sbatch: not found on the PATH; submit from a login node")
    with told, open_executor(Jobs(2, tmp_path)):
        raise AssertionError("opened")


def test_missing_extra__is_one_message(monkeypatch, tmp_path, in_process):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    ended = in_process("submit", write_design(tmp_path), "--show")
    assert ended.returncode == 2 and "not installed; pip install 'simstudy[cluster]', or run --share" in ended.stderr


def test_key_file__is_closed_to_others_from_the_start_and_ends_with_the_block(tmp_path):
    folder = tmp_path / ".partial"
    tmp_path.chmod(0o777)
    old = os.umask(0)
    try:
        with clusters._key_file(Folder(tmp_path)) as security:
            (path,) = folder.iterdir()
            assert path.stat().st_mode & 0o777 == 0o600
            assert {security.tls_ca_file, security.tls_worker_key} == {str(path)}
    finally:
        os.umask(old)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("accepted", "failures", "submitted"), [(False, 99, 1), (True, 3, 4), (True, 10_000, clusters.SUBMIT_RETRIES)]
)
def test_job_that_is_refused__is_submitted_again_if_another_was_taken(accepted, failures, submitted, monkeypatch):
    scripts = []

    class Job:
        async def start(self):
            scripts.append("script")
            if len(scripts) <= failures:
                raise RuntimeError("Command exited with code 1\nstderr:\nno such queue")

    monkeypatch.setattr(clusters, "SUBMIT_SECONDS", 0.0)
    kind = clusters._patient(Job)
    kind.accepted = accepted
    asyncio.run(kind().start())
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
        asked.append(command[-1])
        return subprocess.CompletedProcess(command, code, shown, complaint)

    monkeypatch.setattr(clusters.subprocess, "run", squeue)
    two = SimpleNamespace(workers={"a": SimpleNamespace(job_id="17"), "b": SimpleNamespace(job_id="18")})
    with pytest.raises(UserError, match="jobs 17,18: ended without") if lost else contextlib.nullcontext():
        clusters._require_live(Jobs(2, tmp_path), two)
    assert asked == ["--jobs=17,18"]
    clusters._require_live(Jobs(2, tmp_path), SimpleNamespace(workers={}))
