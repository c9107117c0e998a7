"""Verdict of ``make verify``: runs killed at random moments, and harmed in between, end in the bytes of a calm run.

Imports psutil and pytest, simstudy, and its neighbours.  The name keeps this out of the ordinary test suite, which
takes a few kills.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from builders import write_design
from kills import ROOT, Forks, batches, numbers
from test_durability import FOLDER, LONG, inodes

N_KILLS = 60
WORK = LONG.replace("max_replicates = 512", "max_replicates = 8192")
"""About fifteen seconds of work in one process."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def forks(folder):
    (folder / "long.toml").write_text(WORK)
    with Forks(write_design(folder), folder / "warm") as forks:
        assert forks.run(folder / "long.toml", folder / "calm", "serial", 600) == "finished"
        yield forks


def harm(output: Path, moments: random.Random) -> set[str]:
    """Flip a byte of a stored batch, or cut one off; return which was harmed."""
    files = sorted(output.rglob("*.npz"))
    if not files or moments.random() < 0.5:
        return set()
    path = moments.choice(files)
    content = bytearray(path.read_bytes())
    place = moments.randrange(len(content))
    if moments.random() < 0.5:
        content[place] ^= 1 << moments.randrange(8)
    else:
        del content[place:]
    path.write_bytes(bytes(content))
    return {path.name + path.parent.name}


def assert_as_calm(folder: Path, output: Path) -> None:
    assert numbers(output / FOLDER / "results.nc") == numbers(folder / "calm" / FOLDER / "results.nc")
    assert batches(output) == batches(folder / "calm")


@pytest.mark.parametrize("executor", ["serial", "threads"])
def test_client_killed_and_batches_harmed__end_in_the_same_bytes(executor, forks, folder):
    moments, kills, harmed, rewritten = random.Random(executor), 0, 0, 0
    output, design = folder / executor, folder / "long.toml"
    wait = 0.25 if executor == "serial" else 0.6  # a cluster of threads takes a while to start
    ending, seen, broken = "", {}, set()
    while ending != "finished":
        patience = moments.uniform(0.02, 2 * wait) if kills < N_KILLS // 2 else 600
        ending = forks.run(design, output, executor, patience)
        assert ending != "failed"
        kills += ending == "killed"
        now = inodes(output)
        changed = {name for name, inode in seen.items() if now.get(name) != inode}
        assert changed <= broken, "a valid batch was computed again"
        rewritten += len(changed)
        broken = (broken - changed) | (harm(output, moments) if ending == "killed" else set())
        harmed += len(broken)
        seen = now
    print(f"\n{executor}: {kills} kills, {rewritten} batches harmed and computed again, then the bytes of a calm run")
    assert kills >= N_KILLS // 2 and rewritten > 0
    assert_as_calm(folder, output)


def simstudy(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "simstudy", *map(str, arguments)]


def finish(design: Path, output: Path) -> None:
    result = subprocess.run(simstudy("run", design, "--output", output), cwd=ROOT, capture_output=True, text=True)
    assert result.returncode in (0, 3) and "Traceback" not in result.stderr, result.stderr


def wait_for_batches(output: Path, n: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(output.rglob("*.npz"))) < n and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(list(output.rglob("*.npz"))) >= n


def test_worker_processes_killed__the_run_goes_on_to_the_same_bytes(forks, folder):
    """Dask's nannies start new workers; tasks of the dead are computed by others."""
    output, design, moments = folder / "processes", folder / "long.toml", random.Random(3)
    command = simstudy("run", design, "--output", output, "--executor", "processes", "--workers", "2")
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        for n in (1, 20, 40):
            wait_for_batches(output, n)
            workers = [p for p in psutil.Process(run.pid).children(recursive=True) if "spawn_main" in str(p.cmdline())]
            moments.choice(workers).kill()
        _, messages = run.communicate(timeout=300)
    assert "Traceback" not in messages, messages
    if run.returncode == 2:  # both workers hit in a row while they computed one batch: refused, and continued
        assert "workers died" in messages
        finish(design, output)
    assert_as_calm(folder, output)


@pytest.mark.parametrize("victim", ["scheduler", "client"])
def test_scheduler_or_client_killed__run_again_to_the_same_bytes(victim, forks, folder):
    output, design = folder / victim, folder / "long.toml"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    start = [sys.executable, "-W", "ignore", "-m"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": ROOT, "env": os.environ | {
        "PYTHONPATH": str(ROOT)}}  # fmt: skip
    commands = {
        "scheduler": [*start, "distributed.cli.dask_scheduler", "--host", address, "--no-dashboard"],
        "worker": [*start, "distributed.cli.dask_worker", address, "--nthreads", "2", "--no-dashboard", "--no-nanny"],
    }
    processes = {name: subprocess.Popen(command, **quiet) for name, command in commands.items()}
    command = simstudy("run", design, "--output", output, "--executor", address)
    processes["client"] = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_for_batches(output, 10)
        processes[victim].kill()
        messages = processes["client"].communicate(timeout=120)[1].decode()
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    if victim == "scheduler":
        assert processes["client"].returncode == 2 and messages.count("scheduler is lost") == 1
        assert "Traceback" not in messages
    seen = inodes(output)
    finish(design, output)
    assert seen.items() <= inodes(output).items()
    assert_as_calm(folder, output)


def test_disk_that_fills_up__is_one_message_then_the_same_bytes(forks, folder):
    """A real file system of one megabyte; only root may make one."""
    place = folder / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", place], capture_output=True).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        command = simstudy("run", folder / "long.toml", "--output", place, "--executor", "serial")
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert result.returncode == 2 and result.stderr.count("No space left on device") == 1, result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert 0 < len(batches(place)) < len(batches(folder / "calm"))
        subprocess.run(["mount", "-o", "remount,size=20m", place], check=True)
        seen = inodes(place)
        finish(folder / "long.toml", place)
        assert seen.items() <= inodes(place).items()
        assert_as_calm(folder, place)
    finally:
        subprocess.run(["umount", place], check=True)
