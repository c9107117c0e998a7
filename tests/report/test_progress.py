"""What a person who waits is told in a log."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from builders import minimal_cell, write_design

from simstudy.design.document import Precision
from simstudy.design.load import load_design
from simstudy.execution.ledger import Ledger, Standing
from simstudy.execution.status import status_of
from simstudy.execution.store import Store
from simstudy.replicates.performance import Performance
from simstudy.report import progress
from simstudy.report.progress import ProgressDisplay, missed_lines, open_lines


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
    monkeypatch.setattr(progress, "due", lambda began, seconds: began + seconds)
    monkeypatch.setattr(progress, "say", said.append)
    ledger = SimpleNamespace(accounts=[None], work_known=looked_at)
    display = ProgressDisplay()
    display._bar.get_time = lambda: now[0]
    # Five minutes go by before the first batch, as on a slow machine that compiles; then each takes five seconds.
    for now[0], replicates, work in [(0.0, 0, 0), (300.0, 0, 0), (305.0, 16, 50), (310.0, 32, 100)]:
        ledger.standing = Standing(work, 400, replicates)
        display(ledger)
    assert said == ["0/1 cells, 0 replicates, time left unknown", told]


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
    precision = Precision(stop=stop, min_replicates=64, max_replicates=512)
    tails = {"regression": {"kind": "quadratic"}, "key_distribution": {"kind": "student_t", "df": 5.0}}
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


def test_precision_that_no_number_of_replicates_gives__is_told(tmp_path):
    """Where nets give known means, their error stays; else people would raise the ceiling."""
    design = load_design(write_design(tmp_path))
    account = Ledger(design, Store(tmp_path)).accounts[0]
    for error, n_nets, told in ((0.19, 1, True), (0.04, 1, False), (0.19, 0, False)):
        share = {"mse": np.array([error, 0.01])}
        account.performance = Performance({"mse": 1.0}, {"mse": 0.2}, share, {}, 64, 64, 0, n_nets=n_nets)
        head, line = missed_lines([account], design)
        stopped = "; more replicates do not lower 0.19 of it" if told else ", ceiling of 512 replicates"
        assert head.startswith("1 cell stopped") and f"wanted 0.05{stopped}" in line


def test_table_of_very_many_cells__has_those_furthest_from_what_is_wanted(tmp_path, monkeypatch):
    design = load_design(write_design(tmp_path))
    ledger = Ledger(design, Store(tmp_path))
    assert [*progress.status_table(status_of(ledger, "x"), design).columns[0].cells] == ["", *"012345"]
    monkeypatch.setattr(progress, "MOST_ROWS", 3)
    for account, ratio in zip(ledger.accounts, (0.9, 0.2, 1.4, 0.3, 0.0, 0.0), strict=True):
        account.done = account.target
        precise = Performance({"mse": 1.0}, {"mse": 0.05 * ratio}, {}, {}, 0, account.done, 64, 0)
        account.performance = precise if ratio else None
    ledger.accounts[4].done = 0
    table = progress.status_table(status_of(ledger, "x"), design)
    assert [*table.columns[0].cells] == ["", "2", "4", "5", ""]
    assert [*table.columns[1].cells][-1] == "3 cells nearer to what is wanted: see --json"
