"""What a person who waits is told in a log."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from builders import minimal_cell

from simstudy.design.document import Precision
from simstudy.report import progress
from simstudy.report.progress import ProgressDisplay, open_lines


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
    # Five minutes go by before the first batch, as on a slow machine that compiles; then each takes five seconds.
    course = [(0.0, 8, 0.0), (300.0, 8, 0.0), (305.0, 7, 50.0), (310.0, 6, 100.0)]
    for now[0], account.missing, ledger.work_done in course:
        display(ledger)
    assert said == ["0/1 cells, 0 replicates, time left unknown", told]


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


@pytest.mark.parametrize(
    ("stop", "used", "told"),
    [
        (
            "precision",
            64,
            ['open: a: cells of g stopped at the precision asked for; state grids.g.precision.stop = "both"'],
        ),
        ("both", 64, []),
        ("precision", 512, ["open: a: cells of g stopped at max_replicates = 512; raise it"]),
        ("verdict", 512, ["open: a: cells of g stopped at max_replicates = 512; raise it"]),
    ],
)
def test_open_claims__are_told_with_what_would_decide_them(stop, used, told):
    """Of five claims the first alone: the others have a verdict, are open as declared, or can have no error."""
    precision = Precision(stop=stop, max_replicates=512)
    tails = {"regression": {"function": "quadratic"}, "key_distribution": {"distribution": "student_t", "df": 5.0}}
    cells = {"g": minimal_cell(), "heavy": minimal_cell(**tails)}
    planned = [SimpleNamespace(grid=grid, cell=cell, precision=precision) for grid, cell in cells.items()]
    grids = {"a": "g", "b": "g", "c": "g", "d": "g", "e": "heavy"}
    claims = {name: SimpleNamespace(grid=grid, measure="mse", index=None) for name, grid in grids.items()}
    along = {
        "verdict": ["inconclusive", "supported", *["inconclusive"] * 3],
        "declared_verdict": ["supported"] * 2 + ["inconclusive"] + ["supported"] * 2,
        "verdict_estimate": [1.0, 1.0, 1.0, np.nan, 1.0],
    }
    results = xr.Dataset(
        {name: ("claim", column) for name, column in along.items()}
        | {"n_replicates": ("cell", [used - 1] * 2), "n_failed": ("cell", [1, 1])},
        coords={"claim": list(claims), "grid": ("cell", list(cells))},
    )
    found = open_lines(results, SimpleNamespace(cells=planned, claims=claims))
    assert [line[: len(start)] for line, start in zip(found, told, strict=True)] == told
