"""Job scripts as text, and everything that a user can ask of a batch system and not get."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from builders import write_design

from simstudy.arrays import array_scripts
from simstudy.clients import job_script
from simstudy.design import load_design
from simstudy.jobs import SUBMIT_COMMANDS, Jobs
from simstudy.problems import UserError
from simstudy.schedule import open_queue
from simstudy.study import store_of

ASKED = {
    "jobs": 3, "threads": 4, "memory": "8GB", "walltime": "02:30:00", "queue": "long", "directives": ("-X this",),
    "setup": ("module load python",),
}  # fmt: skip
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
    lines = job_script(Jobs(system, **ASKED, logs=tmp_path / "logs")).splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    for expected in DIRECTIVES[system]:
        assert expected in lines
    for expected in (
        "export OMP_NUM_THREADS=1", "export NUMBA_CPU_NAME='generic cpu'", "module load python",
        "export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP=11s",
    ):  # fmt: skip
        assert lines.index(expected) < len(lines) - 1
    worker = lines[-1]
    assert worker.startswith(f"{sys.executable} -m distributed.cli.dask_worker tcp://SCHEDULER ")
    assert " --nthreads 4 " in worker and ' --local-directory "${TMPDIR:-/tmp}" ' in worker
    assert " --lifetime 8100s --lifetime-stagger 450s" in worker


def test_array_scripts__have_a_task_for_each_share_and_a_merge(tmp_path):
    path = write_design(tmp_path)
    design = load_design(path)
    output = tmp_path / "a folder"
    store = store_of(design, output)
    task, merge = array_scripts(design, path, store, output, Jobs(**ASKED, logs=store.folder / "logs"))
    for line in ("#SBATCH --array=1-1", "#SBATCH --partition=long", "#SBATCH --requeue", "#SBATCH -X this"):
        assert line in task.splitlines()
    assert f"--output '{output}' --workers 4 --share $SLURM_ARRAY_TASK_ID/1\n" in task
    assert "--array" not in merge and f"rm -rf '{store.folder}/shares' || true" in merge
    assert merge.index("simstudy merge") < merge.index("rm -rf") < merge.index("simstudy run")
    assert not output.exists()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"system": "condor"}, "system = 'condor': unknown; choose slurm, pbs, sge, lsf"),
        ({"jobs": 0}, "must be at least 1"),
        ({"threads": -1}, "must be at least 1"),
        ({"memory": "4"}, "memory = '4': must be a whole number of MB or GB"),
        ({"walltime": "90"}, "walltime = '90': must be hours:minutes:seconds"),
        ({"walltime": "00:00:30"}, "a minute or more"),
        ({"interface": "ib99"}, "interface = 'ib99': this machine has none of that name; choose from lo"),
    ],
)
def test_impossible_jobs__are_refused(asked, message):
    with pytest.raises(UserError, match=message):
        Jobs(**asked)


@pytest.mark.parametrize("system", SUBMIT_COMMANDS)
def test_no_batch_system__is_one_message(system, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    message = f"{SUBMIT_COMMANDS[system]}: not found on the PATH; submit from a login node"
    with pytest.raises(UserError, match=message), open_queue(Jobs(system)):
        raise AssertionError("opened")


def test_missing_extra__is_one_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(UserError, match=r"not installed; pip install 'simstudy\[cluster\]', or use --array"):
        job_script(Jobs())


def test_array_elsewhere__is_one_message(tmp_path):
    path = write_design(tmp_path)
    design = load_design(path)
    with pytest.raises(UserError, match="written for slurm only; leave out --array"):
        array_scripts(design, path, store_of(design, tmp_path), tmp_path, Jobs("pbs", logs=Path("logs")))
