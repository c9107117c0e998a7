"""Verdict of ``make verify``: where something is lacking a study ends in the bytes of a calm run, or one line."""

import shutil
import subprocess

import pytest
from killed import Bench
from kills import ROOT, WORK, command, environment
from stored import batches
from surroundings import SURROUNDINGS, inside
from tls import cluster


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    return Bench(tmp_path_factory.mktemp("surroundings"), WORK)


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_poor_surroundings__give_the_same_bytes(surroundings, executor, bench):
    if "faketime" in SURROUNDINGS[surroundings] and (executor == "processes" or shutil.which("faketime") is None):
        pytest.skip("no faketime, or Dask, which waits by the clock that never goes back in truth, but does there")
    target = bench.target(f"{executor} with {surroundings}")
    done = inside([surroundings], command(*bench.run(target.name, "--executor", executor, "--workers", "2")))
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
    done = inside(["a clock that was set back"], command(*bench.run(target.name)))
    assert done.returncode in (0, 3), done.stderr
    target.assert_equal()


def test_folder_that_is_read_only__is_one_line(bench):
    place = bench.place / "fixed"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", place], capture_output=True).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        arguments = command(*bench.run("fixed"))
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
        arguments = command(*bench.run("mixed", "--executor", others.address))
        ours = others.environment | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(arguments, cwd=ROOT, env=ours, capture_output=True, text=True, timeout=280)
    assert "a worker would give other bits" in refused(done)
    assert batches(bench.place / "mixed") == {}
