"""Verdict of ``make verify``: batches harmed between kills, and a full disk, end in the bytes of a calm run."""

import random
import subprocess
from pathlib import Path

import pytest
from killed import Bench
from kills import ROOT, WORK, Aim, command, environment
from stored import batches, flip, overwrite, record

N_KILLS = 20
N_HARMED = 60


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    return Bench(tmp_path_factory.mktemp("durability"), WORK)


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
        target, arguments = bench.target("small"), command(*bench.run("small"))
        result = subprocess.run(arguments, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300)
        assert result.returncode == 2 and result.stderr.count("No space left on device") == 1, result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert 0 < len(batches(place)) < len(batches(bench.place / "calm"))
        subprocess.run(["mount", "-o", "remount,size=20m", place], check=True)
        target.assert_harmless()
        bench.end(target)
    finally:
        subprocess.run(["umount", place], check=True)
