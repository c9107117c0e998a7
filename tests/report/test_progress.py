"""What a person who waits is told in a log."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from simstudy.report import progress
from simstudy.report.progress import ProgressDisplay


@pytest.mark.parametrize(
    ("looked_at", "told"),
    [
        (False, "0/1 cells, 32 replicates, 25% of the work up to the first looks, 30 s left to them"),
        (True, "0/1 cells, 32 replicates, 25% of the work, 30 s left"),
    ],
)
def test_log__tells_the_time_to_the_first_looks_and_then_to_the_end(looked_at, told, monkeypatch):
    now, said = [0.0], []
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(progress, "say", said.append)
    account = SimpleNamespace(finished=False, target=8, missing=8, batch_size=16)
    ledger = SimpleNamespace(accounts=[account], work_done=0.0, work_expected=400.0, work_known=looked_at)
    display = ProgressDisplay()
    display(ledger)
    account.missing, ledger.work_done = 6, 100.0
    now[0] = 10.0
    display(ledger)
    assert said == [told]


def test_looking__takes_a_small_share_of_the_time_whatever_it_costs(monkeypatch):
    now, looks = [0.0], []

    class Slow:
        accounts, work_done, work_known = (), 0.0, False

        @property
        def work_expected(self) -> float:
            looks.append(now[0])
            now[0] += 0.5
            return 1.0

    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    display = ProgressDisplay(quiet=True)
    for _ in range(10_000):
        display(Slow())
        now[0] += 0.01
    assert len(looks) >= 2 and 0.5 * len(looks) <= 0.06 * now[0]
