"""What tests of clusters share: a study, the Slurm that they run it on, and patience."""

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from builders import DESIGN, edited
from commands import environment
from stored import FOLDER, batches, numbers

HERE = Path(__file__).parent
PATIENCE = 400.0

# Twelve cells, a look or more beyond the first, and some seconds of work: the control by expansion would end it there.
LONG = edited(DESIGN, "n_keys = 40\nn_features = 6\n", "n_keys = 20_000\n").replace("mse = 0.05", "mse = 0.01")
LONG = edited(LONG, "batch_size = 32", 'batch_size = 32\ncontrol = "none"')
LONG = edited(LONG, "angle = [0, 45, 90]", "n_features = [6, 7]\nangle = [0, 45, 90]")
LONG = edited(LONG, 'hue = "bandwidth"', 'hue = "bandwidth"\nwhere = { n_features = 6 }')
LONG = edited(LONG, "max_replicates = 512", "max_replicates = 4096")
# More work than any machine ends while someone tries its doors.
ENDLESS = edited(LONG, "max_replicates = 4096", "max_replicates = 1_048_576")
ENDLESS = edited(ENDLESS, "relative_mcse = { mse = 0.01 }", "relative_mcse = { mse = 0.0001 }")


class Calm(NamedTuple):
    """A study that nothing disturbed: what every other run of it must equal."""

    numbers: dict[str, str]
    batches: dict[str, bytes]  # Those that are not folded
    n_batches: int

    def assert_equals(self, output: Path) -> None:
        assert batches(output) == self.batches
        assert numbers(output / FOLDER / "results.nc") == self.numbers


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
