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
    clock, said = iter([0.0, 0.0, 300.0, 305.0, 310.0]), []
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(progress, "say", said.append)
    account = SimpleNamespace(finished=False, target=8, missing=8, batch_size=16)
    ledger = SimpleNamespace(accounts=[account], work_done=0.0, work_expected=400.0, work_known=looked_at)
    display = ProgressDisplay()
    # Five minutes go by before the first batch, as on a slow machine that compiles; then each takes five seconds.
    for account.missing, ledger.work_done in ((8, 0.0), (8, 0.0), (7, 50.0), (6, 100.0)):
        display(ledger)
    assert said == ["0/1 cells, 0 replicates, time left unknown", told]
