"""A study on a real Slurm, which loses a job and a node: the same bytes as on one undisturbed core."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from builders import write_design
from clusters import ENDLESS, PATIENCE, Calm, Slurm, wait_until
from commands import command, environment
from stored import FOLDER, rows
from strangers import Listener, answering, listeners, readable_by_others

from simstudy.execution.store import Store

pytestmark = pytest.mark.timeout(900)
LOOPBACK = {"DASK_JOBQUEUE__SLURM__INTERFACE": "lo"}
SMALL = ("--memory", "1GB", "--walltime", "00:20:00")


def lose_a_job_and_a_node(slurm: Slurm) -> None:
    """Cancel the job on one node, and take the other node down."""
    on = {node: job for job, node in slurm.running().items()}
    assert set(on) == {"n1", "n2"}
    slurm("scancel", on["n1"])
    slurm("scontrol", "update", "nodename=n2", "state=down", "reason=test")


def failing_sbatch(folder: Path, slurm: Slurm, calls: range) -> dict[str, str]:
    """Return an environment in which some calls of sbatch fail, as they do while a controller restarts."""
    script = folder / "sbatch"
    script.write_text(
        f"#!/bin/sh\necho x >>{folder}/calls; n=$(wc -l <{folder}/calls)\n"
        f"[ $n -ge {calls.start} ] && [ $n -lt {calls.stop} ] && {{ echo 'error: Socket timed out' >&2; exit 1; }}\n"
        f'exec {shutil.which("sbatch")} "$@"\n'
    )
    script.chmod(0o755)
    # By default Dask gives a worker that it lost a quarter of a minute to come back.
    lost = {"DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "1s"}
    return environment(SLURM_CONF=slurm.conf, PATH=f"{folder}:{os.environ['PATH']}", **lost, **LOOPBACK)


@pytest.mark.rare
def test_jobs_that_are_lost__are_replaced(slurm: Slurm, design: Path, calm: Calm, tmp_path: Path):
    """Both jobs are lost, so whatever was missing then was computed by jobs that took their place.

    And the first attempts to replace them fail.
    """
    output, log = tmp_path / "out", tmp_path / "log"
    arguments = command("submit", design, "--output", output, *SMALL)
    variables = failing_sbatch(tmp_path, slurm, range(3, 5))
    with log.open("w") as file, subprocess.Popen(arguments, stdout=file, stderr=file, env=variables) as process:
        try:
            wait_until(lambda: len(slurm.running()) == 2 and len(rows(output)) >= 12, process)
            lose_a_job_and_a_node(slurm)
            assert 12 <= len(rows(output)) < calm.n_batches
            assert process.wait(PATIENCE) == 0, log.read_text()
        finally:
            process.terminate()
    calm.assert_equals(output)
    assert (tmp_path / "calls").read_text().count("x") >= 5
    assert {"CANCELLED", "NODE_FAIL"} <= {state for _, state in slurm.ended()}
    wait_until(lambda: not slurm.known())  # no job outlives the study


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a second user can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="simstudy", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def of_the_jobs(output: Path) -> set[Listener]:
    """Where the workers listen, whose command names the keys of the run."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "distributed.cli.dask_worker" in words and any(word.startswith(str(output)) for word in words):
            found |= listeners(process.pid)
    return found


@pytest.mark.parametrize("end", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.rare)])
def test_submission__is_closed_to_others_and_leaves_neither_jobs_nor_keys(slurm: Slurm, open_folder, tmp_path, end):
    design, output = write_design(tmp_path, ENDLESS), open_folder / "my out"
    log = open_folder / "log"
    arguments = command("submit", design, "--output", output, *SMALL, "--jobs", "1")
    variables = environment(SLURM_CONF=slurm.conf, **LOOPBACK)
    with log.open("w") as file, subprocess.Popen(arguments, stdout=file, stderr=file, env=variables) as process:
        try:
            wait_until(lambda: len(rows(output)) >= 6, process)
            opened = listeners(process.pid) | of_the_jobs(output)
            # Scheduler, nanny and worker, and nothing that serves pages.
            assert len(opened) == 3 and {one.host for one in opened} == {"127.0.0.1"}
            assert answering(opened) == []
            readable = readable_by_others(output)
            (key,) = (output / FOLDER / ".partial").glob("tls-*")
            assert any(path.name == "run" for path in readable) and key not in readable
            assert process.poll() is None
            process.send_signal(end)
            assert process.wait(PATIENCE) == (130 if end == signal.SIGINT else -end), log.read_text()
        finally:
            process.terminate()
    wait_until(lambda: not slurm.known())
    assert "Traceback" not in log.read_text()
    if end == signal.SIGINT:
        assert "finished batches are stored" in log.read_text()
    else:
        assert key.exists()
        with Store(output / FOLDER).locked():
            pass
    assert not key.exists()


def test_refused_job__is_one_message_and_exit_code_2(slurm: Slurm, design: Path, tmp_path: Path):
    arguments = command("submit", design, "--output", tmp_path / "out")
    variables = environment(SLURM_CONF=slurm.conf, DASK_JOBQUEUE__SLURM__QUEUE="nowhere")
    done = subprocess.run(arguments, capture_output=True, text=True, env=variables)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "nvalid partition" in done.stderr and "mend --walltime" in done.stderr
    assert not slurm.known()


@pytest.mark.rare
def test_jobs_that_end_at_once__are_not_waited_for(slurm: Slurm, design: Path, tmp_path: Path):
    arguments = command("submit", design, "--output", tmp_path / "out", *SMALL)
    variables = environment(SLURM_CONF=slurm.conf, DASK_JOBQUEUE__SLURM__JOB_SCRIPT_PROLOGUE="['exit 1']")
    done = subprocess.run(arguments, capture_output=True, text=True, env=variables)
    assert done.returncode == 2 and "ended without becoming workers" in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
