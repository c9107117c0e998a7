"""The command line in processes of its own, forked from one that has imported everything: imports take seconds."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[1]
SECONDS = 600
"""After which a command hangs."""
PRINTED = {"COLUMNS": "200", "NO_COLOR": "1"}
UNDRAWN = "from simstudy.report import page; page.figure_files = lambda *_: {}\n"
"""Reports without pictures, which take longer to draw than a small study to run."""
FORKS = multiprocessing.get_context("forkserver")
"""Starts processes that have imported everything, and have seen nothing of the test."""
FORKS.set_forkserver_preload(
    [
        "simstudy.__main__",
        "simstudy.commands",
        "simstudy.study",
        "simstudy.verdicts.judge",
        "simstudy.report.page",
    ]
)


def simstudy(*arguments: object, cwd: Path = ROOT, before: str = "") -> subprocess.CompletedProcess:
    """Run a command as a user does, after some code, and return its exit code and what it printed."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, PRINTED):
        printed = [str(Path(folder) / name) for name in ("stdout", "stderr")]
        given = ["simstudy", *map(str, arguments)], str(cwd), dict(os.environ), UNDRAWN + before, printed
        process = FORKS.Process(target=run_command, args=given)
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(given[0], SECONDS)
        return subprocess.CompletedProcess(given[0], process.exitcode, *(Path(path).read_text() for path in printed))


def run_command(arguments: list[str], cwd: str, environment: dict[str, str], before: str, printed: list[str]) -> None:
    """Run a command here, after some code, with output and errors in files."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in zip((1, 2), printed, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", closefd=False) for descriptor in (1, 2))
    sys.argv = arguments
    exec(before, {})
    from simstudy.__main__ import main

    main()
