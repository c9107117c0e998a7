"""The command line in processes of its own, forked from one that has imported everything: imports take seconds."""

import contextlib
import fcntl
import functools
import gc
import hashlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS = 600  # after which a command hangs
PRINTED = {"COLUMNS": "200", "NO_COLOR": "1"}
UNDRAWN = "from simstudy.report import page; page.figure_files = lambda *_: {}\n"  # pictures take longer than a run
gc.set_threshold(100_000)  # new objects, as for the command: with 700 the tests take a third longer to be imported


@functools.cache
def compile_in_turn() -> None:
    """Let one process compile a kernel that several want at the same time: the others wait, and load it."""
    from numba.core.dispatcher import Dispatcher, global_compiler_lock

    from simstudy.kernels.compiled import CompiledCode

    def compiled(kernel: Any, signature: Any, plain: Callable[..., Any] = Dispatcher.compile) -> Any:
        with global_compiler_lock, contextlib.ExitStack() as turn:
            if isinstance(kernel._cache, CompiledCode):
                name = hashlib.sha256(f"{kernel.__module__} {signature}".encode()).hexdigest()
                (place := Path(sys.prefix) / ".compiling").mkdir(exist_ok=True)
                fcntl.flock(turn.enter_context(open(place / name, "w")), fcntl.LOCK_EX)
            return plain(kernel, signature)

    Dispatcher.compile = compiled


@functools.cache
def forks() -> Any:
    """Start processes that have imported everything and run a study, and have seen nothing of the test."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["commands", "warmed"])
    with contextlib.chdir(Path(__file__).parent):  # where that is looked for
        forkserver.ensure_running()
    return context


def simstudy(*arguments: object, cwd: Path = ROOT, before: str = "") -> subprocess.CompletedProcess:
    """Run a command as a user does, after some code, and return its exit code and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        printed = [Path(folder) / name for name in ("stdout", "stderr")]
        given = [str(each) for each in ("simstudy", *arguments)], str(cwd), os.environ | PRINTED, UNDRAWN + before
        process = forks().Process(target=run_command, args=(*given, printed))
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(arguments, SECONDS)
        return subprocess.CompletedProcess(arguments, process.exitcode, *(path.read_text() for path in printed))


def run_command(arguments: list[str], cwd: str, environment: dict[str, str], before: str, printed: tuple) -> None:
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


def python(*arguments: object, **how: Any) -> subprocess.CompletedProcess:
    """Run Python in a process of its own, and return its exit code and what it printed."""
    how = {"env": environment(), "timeout": SECONDS} | how
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, **how)


def most_memory(first: Callable[[], object], job: Callable[[], object]) -> int:
    """Bytes that a job takes at most, beside what the process has after a first one; Linux alone tells them."""

    def counted(name: str) -> int:
        return int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0]) * 1024

    first()  # what is imported and compiled does not count
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = counted("VmRSS")
    job()
    return counted("VmHWM") - before


def command(*arguments: object) -> list[str]:
    """A command in a process of its own, as of another program."""
    return [sys.executable, "-W", "ignore", "-m", "simstudy", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)} | PRINTED | more
