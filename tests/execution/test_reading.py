"""Nothing that is read is believed: wrong batches count as damaged, and forged ones are found by computing."""

from __future__ import annotations

import io
import json
import os
import shutil
import tracemalloc

import numpy as np
import pytest
import xarray as xr
from builders import DESIGN, edited, minimal_cell, write_design

from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.execution import verify as verification
from simstudy.execution.batch_files import Shape, Statement, sealed
from simstudy.execution.ledger import Ledger
from simstudy.execution.netcdf import read_results
from simstudy.execution.provenance import engine
from simstudy.execution.shares import Share
from simstudy.execution.store import Store, store_of
from simstudy.execution.verify import verify
from simstudy.replicates.moments import Moments
from simstudy.study import run, run_share


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


def first_batch(store: Store) -> tuple[str, Shape, Moments]:
    """Address and moments of the batch that the tests replace."""
    identity = store.stored_cells()[0]
    shape = Shape.of(store.read_statement(identity).cell)
    return identity, shape, store.read_batch(identity, 0, shape)


def changed(array, *values):
    array = array.copy()
    array.flat[: len(values)] = values
    return array


def with_failures(moments: Moments, *failed: int) -> Moments:
    """Failures of the replicates, all of which the first block seems to lack."""
    counts = changed(moments.n_defined, moments.n_defined[0] - len(failed))
    return moments._replace(n_defined=counts, failed=np.array(failed, np.int64))


WRONG = {
    "a query more": lambda m: m._replace(target=np.append(m.target, 0.0)),
    "a head less": lambda m: m._replace(error_sum=m.error_sum[..., :1], product_sum=m.product_sum[..., :1]),
    "a block less": lambda m: m._replace(n_defined=m.n_defined[1:]),
    "a flat array": lambda m: m._replace(error_sum=m.error_sum.ravel()),
    "single precision": lambda m: m._replace(error_sum=m.error_sum.astype(np.float32)),
    "complex sums": lambda m: m._replace(error_sum=m.error_sum + 0j),
    "swapped bytes": lambda m: m._replace(product_sum=m.product_sum.astype(">f8")),
    "counts as floats": lambda m: m._replace(n_defined=m.n_defined.astype(float)),
    "a count too many": lambda m: m._replace(n_defined=changed(m.n_defined, 3)),
    "a count below zero": lambda m: m._replace(n_defined=changed(m.n_defined, -1)),
    "a failure unnamed": lambda m: m._replace(n_defined=changed(m.n_defined, 1)),
    "a failure of another block": lambda m: with_failures(m, 31),
    "a failure of another batch": lambda m: with_failures(m, 32),
    "a failure below zero": lambda m: with_failures(m, -1),
    "a failure beyond all": lambda m: with_failures(m, -(2**63)),
    "a failure named twice": lambda m: with_failures(m, 0, 0),
    "failures out of order": lambda m: with_failures(m, 1, 0),
    "an infinite sum": lambda m: m._replace(error_sum=changed(m.error_sum, np.inf)),
    "an undefined sum": lambda m: m._replace(product_sum=changed(m.product_sum, np.nan)),
    "a sum whose square overflows": lambda m: m._replace(product_sum=changed(m.product_sum, 1e200)),
    "an undefined target": lambda m: m._replace(target=changed(m.target, np.nan)),
}


@pytest.mark.parametrize("forge", WRONG.values(), ids=WRONG.keys())
def test_batch_that_cannot_be__is_left_out_of_a_merge_and_computed_again(forge, store, design, tmp_path):
    identity, shape, moments = first_batch(store)
    store.write_batch(identity, 0, forge(moments))
    assert store.read_batch(identity, 0, shape) is None
    target = Store(tmp_path / "merged")
    assert target.adopt(store).damaged == 1 and not target.batch_path(identity, 0).exists()
    ledger = Ledger(design, store)
    (account,) = [account for account in ledger.accounts if account.identity == identity]
    ledger.first_tasks()
    assert account.damaged == {0} and account.missing == 1


def test_failures__that_a_batch_can_have_are_read(store):
    """The control of the test above: what it forges is refused for its contents alone."""
    identity, shape, moments = first_batch(store)
    for failed in ((), (0,), (0, 1)):
        store.write_batch(identity, 0, with_failures(moments, *failed))
        assert store.read_batch(identity, 0, shape).failed.tolist() == list(failed)
    unknown = changed(moments.statistic_sum, np.nan)  # as are statistics that have no meaning
    store.write_batch(identity, 0, moments._replace(statistic_sum=unknown))
    assert store.read_batch(identity, 0, shape) is not None


def header_only(shape: tuple[int, ...], **fields: tuple) -> bytes:
    """A sealed file that is a header without numbers; of a record with these fields, if some are given."""
    buffer = io.BytesIO()
    descr = [(name, *of) for name, of in fields.items()] or "<f8"
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return sealed(buffer.getvalue())


def test_header_that_asks_for_memory_or_objects__is_refused_before_there_are_any(store):
    identity, shape, moments = first_batch(store)
    fields = {name: (field.dtype.str, field.shape) for name, field in moments._asdict().items()}
    address = {"batch": ("<i8", ()), "identity": (f"|S{len(identity)}", ())}
    wrong = {
        "an array of a terabyte": header_only((1 << 37,)),
        "a gigabyte in a field": header_only((), **fields | {"target": ("<f8", (1 << 27,))}, **address),
        "a gigabyte of failures": header_only((), **fields | {"failed": ("<i8", (1 << 27,))}, **address),
        "many batches": header_only((1 << 20,), **fields, **address),
        "objects": header_only((), **fields | {"target": ("|O", (shape.n_queries,))}, **address),
    }
    tracemalloc.start()
    for content in wrong.values():
        store.batch_path(identity, 0).write_bytes(content)
        assert store.read_batch(identity, 0, shape) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_file_longer_than_any_batch__is_not_opened(store, monkeypatch):
    identity, shape, _ = first_batch(store)
    path = store.batch_path(identity, 0)
    os.truncate(path, shape.max_bytes)
    monkeypatch.setattr("simstudy.execution.store.unpack", lambda content, *_: len(content))
    assert store.read_batch(identity, 0, shape) == shape.max_bytes
    os.truncate(path, 1 << 40)  # of holes
    assert store.read_batch(identity, 0, shape) is None


def test_pipes_in_place_of_files__block_nobody(store, design):
    identity, shape, _ = first_batch(store)
    for name in (f"batches/{identity}/0000000.npy", "results.nc", "share.json", ".owner.json"):
        (store.folder / name).unlink(missing_ok=True)
        os.mkfifo(store.folder / name)
    assert (
        store.read_batch(identity, 0, shape) is None and store.owner() is None and store.read_json("share.json") == {}
    )
    with pytest.raises(UserError, match="no results can be read"):
        read_results(store.folder / "results.nc")


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


def test_results_that_promise_more_than_they_hold__are_refused(tmp_path):
    """A variable that nobody wrote takes no place in the file, and all of it in memory."""
    import netCDF4

    path = tmp_path / "results.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 1 << 33)
        file.createVariable("a", "f8", ("x",), zlib=True)
    content = path.read_bytes()
    assert len(content) < 1 << 20
    path.write_bytes(sealed_results(content))
    with pytest.raises(UserError, match="damaged, or not the results"):
        read_results(path)
    # One long text among many short ones: held, they take as much room as the longest each.
    texts = ["why a theory does not apply " * 9, *("" for _ in range(10_000))]
    Store(tmp_path).write_dataset("results.nc", xr.Dataset({"a": ("x", np.arange(3.0)), "b": ("y", texts)}))
    assert read_results(path).a[2] == 2.0


def sealed_results(content: bytes) -> bytes:
    from simstudy.execution.batch_files import digest

    return content + digest(content)


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b'{"engine": "x", "cell": {}}'])
def test_cell_without_its_statement__is_left_out_and_stated_by_the_next_run(content, store, design, tmp_path):
    identity, _, _ = first_batch(store)
    statement = store.read_statement(identity)
    path = store.folder / "batches" / identity / "cell.json"
    whole = path.read_bytes()
    path.write_bytes(content)
    n_batches = len(store.stored_batches(identity))
    found = Store(tmp_path / "merged").adopt(store)
    assert found.unstated == n_batches and f"{n_batches} left out" in str(found)
    store.state_cell(identity, statement)
    assert path.read_bytes() == whole and Store(tmp_path / "merged").adopt(store).unstated == 0


def test_statement__of_another_or_an_impossible_cell_is_none():
    cell = minimal_cell()
    content = Statement(engine="e", cell=cell).model_dump_json().encode()
    assert Statement.parse(content, cell.identity("e")).cell.model_dump() == cell.model_dump()
    with pytest.raises(ValueError, match="another cell"):
        Statement.parse(content, cell.identity("f"))
    vast = minimal_cell(n_keys=2**50)
    with pytest.raises(ValueError, match="impossible"):
        Statement.parse(Statement(engine="e", cell=vast).model_dump_json().encode(), vast.identity("e"))


# ---------------------------------------------------------------- verify


def forged(store: Store) -> str:
    """Change a sum of one batch: digest, shapes and counts are right."""
    identity, shape, moments = first_batch(store)
    store.write_batch(identity, 0, moments._replace(error_sum=moments.error_sum * (1 + 2e-16)))
    assert store.read_batch(identity, 0, shape) is not None
    return str(store.batch_path(identity, 0))


def test_forged_batch__passes_a_merge_and_is_caught_by_computing_it_again(store, tmp_path):
    forged(store)
    merged = Store(tmp_path / "merged")
    with merged.locked():
        assert merged.adopt(store).damaged == 0
    before = {path: path.read_bytes() for path in merged.folder.rglob("*") if path.is_file()}
    found = verify(merged.folder, 1.0, executor="serial")
    assert [path.name for path in found.different] == ["0000000.npy"] and not found.damaged
    assert str(found.different[0]) in found.lines[0] and found.compared == found.stored
    assert {path: path.read_bytes() for path in merged.folder.rglob("*") if path.is_file()} == before


def test_sample__has_a_batch_of_each_cell_and_follows_its_seed(store):
    found = verify(store.folder, executor="serial", seed=3)
    assert found.compared == 6 < found.stored and not found.different and "--seed 3" in found.lines[-1]
    chosen = [[task.batch for task in verification._sample(store, 0.01, np.random.default_rng(s))[0]] for s in range(9)]
    assert chosen[3] == [task.batch for task in verification._sample(store, 0.01, np.random.default_rng(3))[0]]
    assert len(set(map(tuple, chosen))) > 1


def test_share_and_damage__are_verified_too(design, tmp_path):
    share = run_share(design, Share(1, 1), output=tmp_path, executor="serial")
    path = next(share.folder.rglob("*.npy"))
    path.write_bytes(path.read_bytes()[:-1])
    found = verify(share.folder, 1.0, executor="serial")
    assert found.damaged == [path] and not found.different and found.compared == len(list(share.folder.rglob("*.npy")))


def test_batches_of_another_engine__are_said_to_be(store, monkeypatch, tmp_path):
    monkeypatch.setattr(verification, "engine", lambda **_: "another")
    with pytest.raises(UserError, match=rf"no batches of this engine, another, .*\(6 cells of engine {engine()}\)"):
        verify(store.folder)
    with pytest.raises(UserError, match="none stored"):
        verify(tmp_path / "nothing")


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_share_that_is_none__is_refused(share, store):
    with pytest.raises(UserError, match="above 0 and at most 1"):
        verify(store.folder, share)


# ---------------------------------------------------------------- numbers of batches


def test_millions_of_batches__cost_what_is_in_flight(tmp_path, monkeypatch):
    from simstudy.execution import ledger as module
    from simstudy.report.progress import status_line, status_table

    text = edited(DESIGN, "batch_size = 32", "batch_size = 16").replace("_replicates = 64", "_replicates = 160_000_000")
    vast = load_design(write_design(tmp_path, text.replace("_replicates = 512", "_replicates = 160_000_000")))
    made = []
    monkeypatch.setattr(module, "Task", lambda *given: made.append(given) or given)
    monkeypatch.setattr(module, "IN_FLIGHT", 100)
    store = Store(tmp_path / "study")
    ledger = Ledger(vast, store)
    tasks = ledger.first_tasks()
    assert sum(account.missing for account in ledger.accounts) == 6 * 10_000_000
    status_table(ledger, vast)
    assert "0 of 6 cells finished" in status_line(ledger, store)
    # Six cells share each batch.
    assert len(tasks) == len(made) == 17
    assert len(Ledger(vast, store).pilot_tasks(4)) == 4
