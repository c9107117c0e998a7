"""Nothing that is read is believed: wrong batches count as damaged, and are computed again.

A look folds batches as it reads them, and comes to what all of them together would.
"""

import json
import os
import re
import shutil
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from builders import DESIGN, edited, minimal_cell, write_design
from stored import stated_cell

from simstudy.design.load import load_design
from simstudy.design.settings.cell import Cell
from simstudy.errors import UserError
from simstudy.execution import queue as queue_module
from simstudy.execution.batch_files import segments
from simstudy.execution.ledger import Ledger
from simstudy.execution.queue import Task, open_queue
from simstudy.execution.store import Store, store_of
from simstudy.replicates.moments import Moments, stack
from simstudy.replicates.performance import fold
from simstudy.study import run


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    return load_design(write_design(tmp_path_factory.mktemp("design")))


@pytest.fixture(scope="module")
def computed(design, tmp_path_factory):
    output = tmp_path_factory.mktemp("computed")
    run(design, output=output, executor="serial")
    return store_of(design, output).folder


@pytest.fixture
def store(computed, tmp_path) -> Store:
    return Store(shutil.copytree(computed, tmp_path / "study"))


def first_batch(store: Store) -> tuple[str, Cell, Moments]:
    """Address and moments of the batch that the tests replace."""
    identity = store.files.at("batches").names()[0]
    cell = stated_cell(store.folder / "batches" / identity)
    return identity, cell, store.read_batches(identity, [0], cell)[0]


def changed(array, *values):
    array = array.copy()
    array.flat[: len(values)] = values
    return array


def with_failures(moments: Moments, *failed: int) -> Moments:
    """Failures of the replicates, all of which the first block seems to lack."""
    counts = changed(moments.n_defined, moments.n_defined[0] - len(failed))
    return moments._replace(n_defined=counts, failed=np.array(failed, np.int64))


WRONG = {
    "a count too many": lambda m: m._replace(n_defined=changed(m.n_defined, 3)),
    "a count below zero": lambda m: m._replace(n_defined=changed(m.n_defined, -1)),
    "a failure unnamed": lambda m: m._replace(n_defined=changed(m.n_defined, 1)),
    "a failure of another block": lambda m: with_failures(m, 31),
    "an infinite sum": lambda m: m._replace(error_sum=changed(m.error_sum, np.inf)),
    "an undefined sum": lambda m: m._replace(product_sum=changed(m.product_sum, np.nan)),
    "a sum whose square overflows": lambda m: m._replace(product_sum=changed(m.product_sum, 1e200)),
    "an undefined target": lambda m: m._replace(target=changed(m.target, np.nan)),
}


@pytest.mark.parametrize("forge", WRONG.values(), ids=WRONG.keys())
def test_batch_that_cannot_be__is_left_out_and_computed_again(forge, store, design):
    identity, cell, moments = first_batch(store)
    whole = store.read_batches(identity, store.stored_batches(identity), cell).keys()
    store.write_batch(identity, 0, forge(moments), cell)
    assert store.read_batches(identity, whole, cell).keys() == whole - {0}
    ledger = Ledger(design, store)
    (account,) = [account for account in ledger.accounts if account.identity == identity]
    ledger.first_tasks()
    assert account.damaged == {0} and account.missing == 1


def test_failures__that_a_batch_can_have_are_read(store):
    """The control of the test above: what it forges is refused for its contents alone."""
    identity, cell, moments = first_batch(store)
    for failed in ((), (0,), (0, 1)):
        store.write_batch(identity, 0, with_failures(moments, *failed), cell)
        assert store.read_batches(identity, [0], cell)[0].failed.tolist() == list(failed)
    unknown = changed(moments.statistic_sum, np.nan)  # as are statistics that have no meaning
    store.write_batch(identity, 0, moments._replace(statistic_sum=unknown), cell)
    assert store.read_batches(identity, [0], cell)


def test_files_longer_than_they_can_be__are_not_read_whole(store):
    identity, cell, _ = first_batch(store)
    (segment,) = segments(store.files.at("batches", identity))
    tracemalloc.start()
    os.truncate(segment.path("records"), 1 << 40)  # of holes
    assert store.read_batches(identity, [0], cell)
    os.truncate(segment.path("index"), 1 << 40)
    for read in (lambda: store.read_batches(identity, [0], cell), lambda: store.stored_batches(identity)):
        with pytest.raises(UserError, match=r"0000\.index: cannot be read: longer than"):
            read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


OWNER = {"pid": 1, "host": "here", "born": 1.0, "started": 1.0}
GARBLED = [
    "", "{", "[]", "null", "[" * 200_000, json.dumps({"pid": 1}),
    *(json.dumps(OWNER | wrong) for wrong in (
        {"pid": "1"}, {"pid": True}, {"pid": -1}, {"pid": 2**70}, {"host": 1}, {"born": None}, {"born": float("nan")},
        {"started": 1e300}, {"started": "now"}, {"more": 1},
    )),
]  # fmt: skip


@pytest.mark.parametrize("text", GARBLED, ids=range(len(GARBLED)))
def test_garbled_owner__is_nobody(text, store):
    (store.folder / ".owner.json").write_text(text)
    assert store.owner() is None
    (store.folder / ".owner.json").write_text(json.dumps(OWNER))
    assert store.owner().host == "here"


def test_millions_of_batches__cost_what_is_in_flight(tmp_path, monkeypatch):
    from simstudy.execution import ledger as module
    from simstudy.execution.status import status_of
    from simstudy.report.progress import status_line, status_table

    text = edited(DESIGN, "batch_size = 32", "batch_size = 16")
    vast = load_design(write_design(tmp_path, re.sub("_replicates = [0-9]+", "_replicates = 160_000_000", text)))
    made = []
    monkeypatch.setattr(module, "Task", lambda *given: made.append(given) or Task(*given))
    monkeypatch.setattr(queue_module, "AHEAD", 10)
    store = Store(tmp_path / "study")
    ledger = Ledger(vast, store)
    with open_queue("serial") as queue:
        queue.add(ledger.first_tasks())
        next(iter(queue))
    # Three turns of one worker, and the tasks that wait: six cells share each batch.
    assert len(made) <= 3 + 2 * 10
    assert sum(account.missing for account in ledger.accounts) == 6 * 10_000_000
    status = status_of(ledger, "x")
    status_table(status, vast)
    assert "0 of 6 cells finished" in status_line(status, store)
    assert len(Ledger(vast, store).pilot_tasks(4)) == 4


def batch(number: int) -> Moments:
    rng = np.random.default_rng(number)
    sums = (rng.normal(size=(16, 1, 2)), rng.normal(size=(16, 1, 3)), rng.normal(size=(16, 7)), np.zeros((16, 1, 0)))
    return Moments(np.ones(16, np.int64), *sums, np.zeros(1), np.array([number]))


@pytest.mark.parametrize("population", [False, True])
@pytest.mark.parametrize("n", [4, 100, 149, 300])
def test_looks__are_those_of_all_batches(n, population, monkeypatch):
    """A block that is cut where a segment ends, or a damaged batch that counts, would change the sums."""
    monkeypatch.setattr("simstudy.replicates.performance.FINE_BATCHES", 8)
    monkeypatch.setattr("simstudy.execution.batch_files.LENGTH", 64)
    store = SimpleNamespace(read_batches=lambda _, numbers, __: {i: batch(i) for i in numbers if i != 150})
    cell = minimal_cell(**{"population": ["queries"], "queries": {"kind": "gaussian"}} if population else {})
    account = SimpleNamespace(identity="a", planned=SimpleNamespace(cell=cell))
    parts, lost = Ledger._read(SimpleNamespace(_store=store), account, [*range(n)])
    assert lost == {150} & {*range(n)}
    whole = [batch(number) for number in range(n) if number not in lost]
    expected = stack(whole) if population else fold(whole)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(stack(parts), expected, strict=True))
