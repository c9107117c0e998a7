"""Runs that are killed: a process that has everything compiled and forks the runs, so that kills fall on the work.

Imports NumPy and xarray only.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import xarray as xr

ROOT = Path(__file__).parents[1]
# Reads a line for each run, "DESIGN OUTPUT EXECUTOR PATIENCE", and answers how it ended.  Only the parent of a process
# may kill it safely: until it asks, the number is not given to another.
FORKS = """
import os, signal, sys, time
import distributed
from simstudy.design import load_design
from simstudy.study import run

def forked(design, output, executor, patience):
    child = os.fork()
    if child == 0:
        try:
            run(design, output=output, executor=executor, workers=2)
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    deadline = time.monotonic() + float(patience)
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        time.sleep(0.001)
    else:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return "killed" if os.WIFSIGNALED(status) else ("failed" if status else "finished")

run(sys.argv[1], output=sys.argv[2], executor="serial")
print("ready", flush=True)
for line in sys.stdin:
    print(forked(*line.split()), flush=True)
"""


class Forks:
    """A process that forks one run after another; use it as a context manager.

    Parameters
    ----------
    design, output
        A small study that is run first, so that everything is compiled.
    """

    def __init__(self, design: Path, output: Path) -> None:
        command = [sys.executable, "-W", "ignore", "-c", FORKS, str(design), str(output)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        assert self._answer() == "ready"

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, design: Path, output: Path, executor: str, patience: float) -> str:
        """Start a run and kill it after ``patience`` seconds; return "killed", "failed", or "finished" before that."""
        print(design, output, executor, patience, file=self._process.stdin, flush=True)
        return self._answer()


def numbers(results: Path) -> dict[str, str]:
    """Digest of every variable and attribute of a file of results, apart from what tells how its run went."""
    with xr.open_dataset(results) as opened:
        content = {str(name): values.values for name, values in opened.variables.items()}
        content |= {f"attribute {name}": np.asarray(text) for name, text in opened.attrs.items() if name != "run"}
    return {name: hashlib.sha256(_bytes(values)).hexdigest() for name, values in content.items()}


def _bytes(values: np.ndarray) -> bytes:
    return repr(values.tolist()).encode() if values.dtype == object else values.tobytes()


def batches(output: Path) -> dict[str, bytes]:
    """Contents of every stored batch."""
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in sorted(output.rglob("*.npz"))}
