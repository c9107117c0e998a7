"""Surroundings that lack something, each as shell text around a command.

Imports its neighbours only.
"""

from __future__ import annotations

import os
import subprocess

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
    "a clock that was set back": 'export FAKETIME_DONT_FAKE_MONOTONIC=1; exec faketime -f -3d "$@"',
}


def inside(surroundings: str, command: list[str], **variables: str) -> subprocess.CompletedProcess:
    """Run a command in surroundings of this name, and let it end."""
    shell = ["bash", "-c", SURROUNDINGS[surroundings], "bash", *command]
    return subprocess.run(shell, cwd=ROOT, env=environment(**variables), capture_output=True, text=True, timeout=280)
