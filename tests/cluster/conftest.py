"""A Slurm of two nodes, and hosts of their own network, on this machine; what cannot be had here is skipped.

SIMSTUDY_REQUIRE_SLURM=1 and SIMSTUDY_REQUIRE_NETNS=1 turn the skips into failures, for machines that must have both.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from builders import DESIGN, edited
from kills import ROOT, batches, numbers

from simstudy.study import run

HERE = Path(__file__).parent
FOLDER = Path("tiny") / "quick"
PATIENCE = 400.0

# Two shares of six cells, a look or more beyond the first, and some ten seconds of work.
WORK = edited(DESIGN, "n_keys = 40", "n_keys = 20_000")
WORK = edited(WORK, "n_features = 6\n", "")
WORK = edited(WORK, "relative_mcse = { mse = 0.05 }", "relative_mcse = { mse = 0.006 }")
WORK = edited(WORK, "max_replicates = 512", "max_replicates = 4096")
WORK = edited(WORK, "angle = [0, 45, 90]", "n_features = [6, 7]\nangle = [0, 45, 90]")
WORK = edited(WORK, 'hue = "bandwidth"', 'hue = "bandwidth"\nwhere = { n_features = 6 }')


class Calm(NamedTuple):
    """A study that nothing disturbed: what every other run of it must equal."""

    design: Path
    numbers: dict[str, str]
    batches: dict[str, bytes]

    def assert_equals(self, output: Path) -> None:
        assert batches(output) == self.batches
        assert numbers(output / FOLDER / "results.nc") == self.numbers


@pytest.fixture(scope="package")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    folder = tmp_path_factory.mktemp("calm")
    design = folder / "design.toml"
    design.write_text(WORK)
    run(design, output=folder, executor="serial")
    return Calm(design, numbers(folder / FOLDER / "results.nc"), batches(folder))


def stored(folder: Path) -> int:
    """How many batches are stored below a folder."""
    return sum(1 for _ in folder.rglob("*.npz"))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "simstudy", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"} | more


def wait_until(condition: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        assert process is None or process.poll() is None, f"ended with {process.returncode}"
        time.sleep(0.02)


def skip_without(variable: str, missing: list[str]) -> None:
    if missing and os.environ.get(variable) == "1":
        pytest.fail(f"{variable}=1, but there is no {', '.join(missing)}")
    if missing:
        pytest.skip(f"no {', '.join(missing)}")


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


@pytest.fixture(scope="package")
def slurm_daemons() -> Iterator[Slurm]:
    missing = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
    skip_without("SIMSTUDY_REQUIRE_SLURM", missing if os.geteuid() == 0 else ["root, whom slurmd serves"])
    # The path of a socket may not be long.
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp", ignore_cleanup_errors=True) as folder:
        script = str(HERE / "slurm.sh")
        try:
            subprocess.run([script, "start", folder], check=True, timeout=60, stdout=subprocess.DEVNULL)
            yield Slurm(Path(folder))
        finally:
            subprocess.run([script, "stop", folder], timeout=60)


@pytest.fixture
def slurm(slurm_daemons: Slurm) -> Iterator[Slurm]:
    yield slurm_daemons
    slurm_daemons("scancel", "--user=root")
    for node in slurm_daemons("sinfo", "--noheader", "--Node", "--states=down", "--format=%N").split():
        slurm_daemons("scontrol", "update", f"nodename={node}", "state=resume")
    wait_until(lambda: not slurm_daemons.known())
