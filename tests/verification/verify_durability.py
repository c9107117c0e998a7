"""Verdict of ``make verify``: failing disks, harmed batches and poor surroundings cost one line or nothing."""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from faults import SMALL, Disk, failing, in_fork, outcome, ran, without_power
from kills import ROOT, SURROUNDINGS, WORK, Aim, Bench, environment, inside, unfolded
from stored import batches, flip, overwrite, record
from strangers import cluster

N_KILLS = 20
N_HARMED = 60


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    return Bench(tmp_path_factory.mktemp("harm"), WORK)


def harm(batch: Path, moments: random.Random) -> None:
    """Flip a bit of a stored batch, or lose its end."""
    content = record(batch)
    place = moments.randrange(len(content.rstrip(b"\0")))
    if moments.random() < 0.5:
        flip(batch, place)
    else:
        overwrite(batch, content[:place])


@pytest.mark.parametrize("executor", ["serial", "threads"])
def test_batches_harmed_between_kills__are_all_that_is_computed_again(executor, bench):
    target, moments = bench.target(f"harmed {executor}"), random.Random(executor)
    for _ in range(N_KILLS):
        target.hit(lambda: bench.start(*bench.run(target.name, "--executor", executor)), Aim(most=5, delay=0.01))
        stored = target.stored()
        # So many that the next run is killed in the midst of them, however fast the machine.
        for name in moments.sample(stored, min(len(stored), N_HARMED)):
            harm(target.folder / name, moments)
            target.forget(name)
    bench.end(target)


def test_disk_that_fills_up__is_one_message_then_the_same_bytes(bench):
    """A real file system of 300 kB; only root may make one."""
    place = bench.place / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", place], capture_output=True).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        target, arguments = bench.target("small"), unfolded(*bench.run("small"))
        result = subprocess.run(arguments, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300)
        assert result.returncode == 2 and result.stderr.count("No space left on device") == 1, result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert 0 < len(batches(place)) < len(batches(bench.place / "calm"))
        subprocess.run(["mount", "-o", "remount,size=20m", place], check=True)
        target.assert_harmless()
        bench.end(target)
    finally:
        subprocess.run(["umount", place], check=True)


SIDE_BY_SIDE = os.cpu_count() or 1
N_FAULTS = 100
"""Operations of a run that fail, one at a time."""


class Calm(NamedTuple):
    """A run that nothing happens to: its design, what it came to, and what it asked of the disk."""

    design: Path
    found: dict[str, Any]
    disk: Disk
    root: int


@pytest.fixture(scope="module")
def calm(tmp_path_factory) -> Iterator[Calm]:
    place = tmp_path_factory.mktemp("faults")
    design, disk = place / "design.toml", Disk()
    design.write_text(SMALL)
    (place / "calm").mkdir()
    assert ran(design, place / "calm", disk)[0] in (0, 5)
    yield Calm(design, outcome(place / "calm"), disk, (place / "calm").stat().st_ino)


def test_each_operation_that_fails__is_one_line_or_nothing_lost(calm, tmp_path):
    numbers = range(1, calm.disk.count + 1, max(1, calm.disk.count // N_FAULTS))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as forks:
        found = forks.map(lambda n: in_fork(lambda: failing(calm.design, tmp_path, calm.found, n)), numbers)
        wrong = [said for said in found if said]
    print(f"{len(numbers)} operations failed, {len(wrong)} of them with harm")
    assert not wrong, "\n".join(wrong[:10])


def test_each_loss_of_power__costs_no_more_than_work(calm, tmp_path):
    done = calm.disk.done
    folders = {each.file for each in done if each.kind == "mkdir"} | {calm.root}
    states: set[str] = set()

    def ended(tree: Any, number: int) -> str:
        output = tmp_path / str(number)
        digest = tree.written(calm.root, output)
        if digest in states:
            shutil.rmtree(output)
            return ""
        states.add(digest)

        def again() -> str:
            code, said = ran(calm.design, output)
            same = code in (0, 5) and outcome(output) == calm.found
            return "" if same else f"{number}: exit code {code}: {said}"

        said = in_fork(again)
        shutil.rmtree(output)
        return said

    with ThreadPoolExecutor(SIDE_BY_SIDE) as forks:
        trees = list(without_power(done, folders))
        wrong = [said for said in forks.map(ended, trees, range(len(trees))) if said]
    print(f"{len(states)} states after a loss of power, {len(wrong)} of them with harm")
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_poor_surroundings__give_the_same_bytes(surroundings, executor, bench):
    if "faketime" in SURROUNDINGS[surroundings] and (executor == "processes" or shutil.which("faketime") is None):
        pytest.skip("no faketime, or Dask, which waits by the clock that never goes back in truth, but does there")
    target = bench.target(f"{executor} with {surroundings}")
    done = inside([surroundings], unfolded(*bench.run(target.name, "--executor", executor, "--workers", "2")))
    assert done.returncode in (0, 3) and "Traceback" not in done.stderr, done.stderr
    target.assert_equal()


def refused(process: subprocess.CompletedProcess) -> str:
    """Return the one line in which a command says why it does nothing."""
    assert process.returncode == 2 and len(process.stderr.strip().splitlines()) == 1, process.stderr
    return process.stderr


def test_clock_set_back_between_runs__computes_nothing_again(bench):
    """Files are then younger than the clock, and so is the lock of a killed run."""
    if shutil.which("faketime") is None:
        pytest.skip("no faketime")
    target = bench.target("back in time")
    target.hit(lambda: bench.start(*bench.run(target.name)))
    done = inside(["a clock that was set back"], unfolded(*bench.run(target.name)))
    assert done.returncode in (0, 3), done.stderr
    target.assert_equal()


def test_folder_that_is_read_only__is_one_line(bench):
    place = bench.place / "fixed"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", place], capture_output=True).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        arguments = unfolded(*bench.run("fixed"))
        done = subprocess.run(arguments, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=280)
        assert f"{place}: cannot be written" in refused(done)
    finally:
        subprocess.run(["umount", place], check=True)


def test_worker_with_another_numpy__is_one_line_and_stores_nothing(bench, tmp_path):
    """A worker's libraries are those that its Python finds first."""
    found = tmp_path / "site" / "numpy-1.0.0.dist-info" / "METADATA"
    found.parent.mkdir(parents=True)
    found.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0.0\n")
    with cluster(tmp_path / "cluster", PYTHONPATH=f"{found.parents[1]}:{ROOT}") as others:
        arguments = unfolded(*bench.run("mixed", "--executor", others.address))
        ours = others.environment | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(arguments, cwd=ROOT, env=ours, capture_output=True, text=True, timeout=280)
    assert re.search("a worker on .* would give other bits .* and no other worker is left", refused(done))
    assert batches(bench.place / "mixed") == {}
