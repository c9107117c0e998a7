"""How far a study is, as its run tells and as its batches say."""

import json

import pytest
from builders import DESIGN, edited, write_design
from stored import remove, rows

from simstudy.design.load import load_design
from simstudy.execution import status
from simstudy.execution.ledger import Ledger
from simstudy.execution.status import FILE, Status, Teller, counted, status_of, told
from simstudy.execution.store import Store, store_of
from simstudy.report.progress import status_line
from simstudy.study import open_ledger, run


@pytest.fixture
def finished(tmp_path):
    """A design, and the store of its run."""
    design = load_design(write_design(tmp_path))
    run(design, output=tmp_path, executor="serial")
    return design, store_of(design, tmp_path)


def test_status_told__is_that_of_all_batches(finished):
    design, store = finished
    ledger = open_ledger(design, store)
    ledger.first_tasks()
    found, wanted = told(design, store), status_of(ledger, "x")
    assert found.finished == 6 and found.as_of <= wanted.as_of
    assert found.cells == wanted.cells and found.cells[0].mcse > 0.0
    (store.folder / FILE).unlink()
    assert [(cell.identity, cell.stored) for cell in counted(design, store).cells] == [
        (cell.identity, cell.stored) for cell in wanted.cells
    ]
    empty = Store(store.folder / "nothing")
    assert f"{empty.folder} holds no batches" in status_line(counted(design, empty), empty)


def test_status_of_a_run_that_goes_on__counts_batches_that_came_since(tmp_path, monkeypatch):
    """Told once, at the beginning; each batch is counted all the same, and errors are those that were told."""
    monkeypatch.setattr(status, "TELL_SECONDS", 1e9)
    design = load_design(write_design(tmp_path))
    store = store_of(design, tmp_path)
    seen = []

    def watch(ledger, predicted=None):
        ledger._store.flush()
        seen.append((told(design, store), sum(account.target - account.missing for account in ledger.accounts)))

    run(design, output=tmp_path, executor="serial", observer=watch)
    during = [found for found, _ in seen if predicted_nothing(found)]
    assert len(during) > 3
    counts = [sum(cell.stored for cell in found.cells) for found in during]
    assert counts[0] == 0 and counts == sorted(counts) and counts[-1] > counts[1]
    assert told(design, store).finished == 6


def predicted_nothing(found: Status) -> bool:
    """Whether this is what was told before the first batch."""
    return not any(cell.looked for cell in found.cells)


@pytest.mark.parametrize("change", ["design", "code", "batch gone", "damaged", "missing"])
def test_status_that_does_not_hold__is_not_told(finished, change, monkeypatch, tmp_path):
    design, store = finished
    assert told(design, store) is not None
    if change == "design":
        design = load_design(write_design(tmp_path, edited(DESIGN, "mse = 0.05", "mse = 0.04")))
    elif change == "code":
        monkeypatch.setattr(status, "installation", lambda: "another")
    elif change == "batch gone":
        remove(store.folder / min(rows(store.folder)))
    elif change == "damaged":
        (store.folder / FILE).write_text(json.dumps({"origin": "x"}))
    else:
        (store.folder / FILE).unlink()
    assert told(design, store) is None


def test_telling__takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    design = load_design(write_design(tmp_path))
    store = store_of(design, tmp_path)
    now, times = [0.0], []
    monkeypatch.setattr(status.time, "monotonic", lambda: now[0])

    def slow(*_):
        times.append(now[0])
        now[0] += 1.0

    teller = Teller(store, design)
    monkeypatch.setattr(teller, "tell", slow)
    ledger = Ledger(design, store)
    while now[0] < 500.0:
        teller(ledger)
        now[0] += 0.25
    assert len(times) == 10 and times[1] - times[0] >= 1.0 / status.TELL_SHARE


def test_design_by_another_path__has_the_status_that_was_told(finished, monkeypatch):
    design, store = finished
    monkeypatch.chdir(design.path.parent)
    assert told(load_design(design.path.name), store).finished == 6
