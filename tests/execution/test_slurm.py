"""A study on a real Slurm, which loses a job and a node: the same bytes as on one undisturbed core.

It has two nodes, on this machine.  SIMSTUDY_REQUIRE_SLURM=1 turns its skip where there is none into a failure.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from builders import edited, rare, run, varied, write_design
from commands import command, environment
from stored import FOLDER, batches, numbers, rows
from strangers import answering, listeners, readable_by_others

from simstudy.execution.store import Store

pytestmark = pytest.mark.timeout(900)
SMALL = {f"DASK_JOBQUEUE__SLURM__{name}": value for name, value in
         {"INTERFACE": "lo", "MEMORY": "1GB", "WALLTIME": "00:20:00"}.items()}  # fmt: skip
PATIENCE = 400.0
# Twelve cells, a look or more beyond the first, and some seconds of work: the control by expansion would end it there.
LONG = varied(n_keys=20_000, n_features=[6, 7], mse=0.01, control="none", max_replicates=4096)
LONG = edited(LONG, 'hue = "bandwidth"', 'hue = "bandwidth"\nwhere = { n_features = 6 }')
ENDLESS = varied(LONG, max_replicates=1 << 20, mse=1e-4)  # more work than is done while someone tries its doors


def wait_until(condition: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        assert process is None or process.poll() is None, f"ended with {process.returncode}"
        time.sleep(0.1)


class Slurm:
    """Commands of a Slurm."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.conf = str(folder / "slurm.conf")

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment(SLURM_CONF=self.conf))
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def running(self) -> dict[str, str]:
        """Node of each running job, by its number; those of an array as 2_1."""
        lines = self("squeue", "--noheader", "--states=running", "--format=%i %N").splitlines()
        return dict(line.split() for line in lines)

    def known(self) -> set[str]:
        """Numbers of the jobs that wait, run or just ended."""
        return set(self("squeue", "--noheader", "--array", "--format=%i").split())

    def ended(self) -> list[tuple[str, str]]:
        """Name and state of the jobs that have ended, requeued ones included."""
        path = self._folder / "finished.txt"
        return re.findall(r"Name=(\S+) JobState=(\S+)", path.read_text()) if path.exists() else []


@pytest.fixture(scope="module")
def design(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_design(tmp_path_factory.mktemp("long"), LONG)


@pytest.fixture(scope="module")
def slurm_daemons() -> Iterator[Slurm]:
    missing = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
    missing += [] if os.geteuid() == 0 else ["root, whom slurmd serves"]
    if missing:
        (pytest.fail if os.environ.get("SIMSTUDY_REQUIRE_SLURM") == "1" else pytest.skip)(f"no {', '.join(missing)}")
    # The path of a socket may not be long.
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp", ignore_cleanup_errors=True) as folder:
        script = str(Path(__file__).with_name("slurm.sh"))
        try:
            subprocess.run([script, "start", folder], check=True, timeout=300, stdout=subprocess.DEVNULL)
            yield Slurm(Path(folder))
        finally:
            subprocess.run([script, "stop", folder], timeout=300)


@pytest.fixture
def slurm(slurm_daemons: Slurm) -> Iterator[Slurm]:
    yield slurm_daemons
    slurm_daemons("scancel", "--user=root")
    for node in slurm_daemons("sinfo", "--noheader", "--Node", "--states=down", "--format=%N").split():
        slurm_daemons("scontrol", "update", f"nodename={node}", "state=resume")
    wait_until(lambda: not slurm_daemons.known())


@pytest.mark.rare
def test_jobs_that_are_lost__are_replaced(slurm: Slurm, design: Path, tmp_path: Path):
    """Both jobs are lost, so whatever was missing then was computed by jobs that took their place.

    And the first attempts to replace them fail.
    """
    output, log, calm = tmp_path / "out", tmp_path / "log", tmp_path / "calm"
    n_batches = json.loads(run(design, output=calm, executor="serial").attrs["run"])["batches_computed"]
    arguments = command("submit", design, "--output", output)
    script, calls = tmp_path / "sbatch", tmp_path / "calls"  # of which two fail, as they do while a controller restarts
    script.write_text(
        f"#!/bin/sh\necho x >>{calls}; n=$(wc -l <{calls})\n"
        "[ $n -ge 3 ] && [ $n -lt 5 ] && { echo 'error: Socket timed out' >&2; exit 1; }\n"
        f'exec {shutil.which("sbatch")} "$@"\n'
    )
    script.chmod(0o755)
    # By default Dask gives a worker that it lost a quarter of a minute to come back.
    lost = {"DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "1s"}
    variables = environment(SLURM_CONF=slurm.conf, PATH=f"{tmp_path}:{os.environ['PATH']}", **lost, **SMALL)
    with log.open("w") as file, subprocess.Popen(arguments, stdout=file, stderr=file, env=variables) as process:
        try:
            wait_until(lambda: len(slurm.running()) == 2 and len(rows(output)) >= 12, process)
            on = {node: job for job, node in slurm.running().items()}
            assert set(on) == {"n1", "n2"}
            slurm("scancel", on["n1"])
            slurm("scontrol", "update", "nodename=n2", "state=down", "reason=test")
            assert 12 <= len(rows(output)) < n_batches
            assert process.wait(PATIENCE) == 0, log.read_text()
        finally:
            process.terminate()
    assert batches(output) == batches(calm)
    assert numbers(output / FOLDER / "results.nc") == numbers(calm / FOLDER / "results.nc")
    assert calls.read_text().count("x") >= 5
    assert {"CANCELLED", "NODE_FAIL"} <= {state for _, state in slurm.ended()}
    wait_until(lambda: not slurm.known())  # no job outlives the study


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a second user can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="simstudy", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("end", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.rare)])
def test_submission__is_closed_to_others_and_leaves_neither_jobs_nor_keys(slurm: Slurm, open_folder, tmp_path, end):
    design, output = write_design(tmp_path, ENDLESS), open_folder / "out"
    log = open_folder / "log"
    arguments = command("submit", design, "--output", output, "--jobs", "1")
    variables = environment(SLURM_CONF=slurm.conf, **SMALL)
    with log.open("w") as file, subprocess.Popen(arguments, stdout=file, stderr=file, env=variables) as process:
        try:
            wait_until(lambda: len(rows(output)) >= 6, process)
            opened = listeners(process.pid)
            for other in psutil.process_iter(["cmdline"]):  # workers, whose command names the keys of the run
                words = other.info["cmdline"] or []
                if "distributed.cli.dask_worker" in words and any(word.startswith(str(output)) for word in words):
                    opened |= listeners(other.pid)
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


@pytest.mark.parametrize("stated, said", [
    ({"QUEUE": "nowhere"}, r"nvalid partition.*fix jobqueue\.slurm"),
    rare({"JOB_SCRIPT_PROLOGUE": "['exit 1']"}, "ended without becoming workers"),
])  # fmt: skip
def test_jobs_that_are_refused_or_end_at_once__are_one_message_and_exit_code_2(slurm, design, tmp_path, stated, said):
    settings = SMALL | {f"DASK_JOBQUEUE__SLURM__{name}": value for name, value in stated.items()}
    arguments = command("submit", design, "--output", tmp_path / "out")
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment(SLURM_CONF=slurm.conf, **settings))
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert re.search(said, done.stderr), done.stderr
    assert "QUEUE" not in stated or not slurm.known()
