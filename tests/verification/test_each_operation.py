"""A failing disk, or a kill, costs one line or nothing."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from faults import UNFOLDED, Calm

pytestmark = pytest.mark.rare

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
