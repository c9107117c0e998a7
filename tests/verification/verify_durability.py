"""Verdict of ``make verify``: a failing disk, a kill and a loss of power cost one line or nothing."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from faults import UNFOLDED, Calm, without_power

SIDE_BY_SIDE = os.cpu_count() or 1
N_FAULTS = 100
"""Operations of a run at which it fails, or is killed, one at a time."""


@pytest.mark.parametrize(
    ("kills", "before", "options"),
    [
        (False, "", ()),
        (True, "", ()),
        (True, UNFOLDED, ()),
        (True, UNFOLDED, ("--executor", "threads", "--workers", 2)),
        (True, UNFOLDED, ("--executor", "serial", "--confirm", "a text")),
    ],
)
def test_each_operation_that_fails_or_kills__is_one_line_or_nothing_lost(kills, before, options, tmp_path):
    calm = Calm(tmp_path, before, *options)
    numbers = range(1, len(calm.asked) + 1, max(1, len(calm.asked) // N_FAULTS))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as forks:
        wrong = [said for said in forks.map(lambda n: calm.harmed(n, kills), numbers) if said]
    print(f"{calm.hits} operations {'killed' if kills else 'ended'} a run, {len(wrong)} of them with harm")
    assert not wrong, "\n".join(wrong[:10])


def test_each_loss_of_power__costs_no_more_than_work(tmp_path):
    calm = Calm(tmp_path)
    root = (tmp_path / "calm").stat().st_ino
    folders = {each.file for each in calm.done if each.kind == "mkdir"} | {root}
    states: set[str] = set()

    def ended(tree: Any, number: int) -> str:
        digest = tree.written(root, tmp_path / str(number))
        said = "" if digest in states else calm.ends(str(number))
        states.add(digest)
        shutil.rmtree(tmp_path / str(number))
        return said

    with ThreadPoolExecutor(SIDE_BY_SIDE) as forks:
        trees = list(without_power(calm.done, folders))
        wrong = [said for said in forks.map(ended, trees, range(len(trees))) if said]
    print(f"{len(states)} states after a loss of power, {len(wrong)} of them with harm")
    assert not wrong, "\n".join(wrong[:10])
