"""Surroundings that lack something, each as shell text around a command."""

import os
import subprocess
from collections.abc import Iterable

from kills import ROOT, environment

SURROUNDINGS = {
    "few open files": 'ulimit -n 64; exec "$@"',
    "one core": f'exec taskset --cpu-list {min(os.sched_getaffinity(0))} "$@"',
    "no home": 'export HOME=/dev/null/home; exec "$@"',
    "no place for temporary files": 'export TMPDIR=/dev/null/none; exec "$@"',
    "closed input": 'exec "$@" <&-',
    "closed output": 'exec "$@" >&-',
    "closed messages": 'exec "$@" 2>&-',
    "closed streams": 'exec "$@" <&- >&- 2>&-',
    "a clock that was set back": 'exec faketime -f -3d "$@"',
}


def inside(surroundings: Iterable[str], command: list[str]) -> subprocess.CompletedProcess:
    """Run a command in all surroundings of these names, and let it end."""
    for name in surroundings:
        command = ["bash", "-c", SURROUNDINGS[name], "bash", *command]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=280)
