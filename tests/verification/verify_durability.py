"""Verdict of ``make verify``: a failing disk, and a loss of power, cost one line or nothing."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from faults import SMALL, Disk, failing, in_fork, outcome, ran, without_power

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
