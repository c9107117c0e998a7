"""Files of a study: whole or absent, checked when read."""

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored import rows

from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.errors import UserError
from simstudy.execution import batch_files
from simstudy.execution.batch_files import LENGTH, Segment, record_of, same, segments
from simstudy.execution.folder import Folder, refused
from simstudy.execution.store import Store, read_results
from simstudy.replicates.moments import Moments, empty

CELL = SimpleNamespace(
    n_queries=1, n_members=2, statistics=("one",), controlled=True, simulation=SimpleNamespace(batch_size=32)
)  # fmt: skip


def some_moments(seed: int = 0) -> Moments:
    sums = np.random.default_rng(seed).normal(size=(16, 1, 2))
    moments = empty(16, np.array([0.5]), 2, len(GEOMETRIC_INDICES) + 1, controlled=True)
    return moments._replace(n_defined=np.full(16, 2), error_sum=sums, control_sum=np.repeat(sums, 5, axis=2)[..., :5])


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "study" / "quick")


def only(store: Store) -> Segment:
    """The segment of the only cell."""
    (segment,) = segments(store.files.at("batches", "abc"))
    return segment


def same_bits(one: dict[int, Moments], other: dict[int, Moments]) -> bool:
    return one.keys() == other.keys() and all(same(one[batch], other[batch]) for batch in one)


def test_batches__are_read_back_to_the_bit_from_any_segment_in_order_of_their_numbers(store):
    written = {batch: some_moments(batch) for batch in (3, LENGTH, 2, 0, LENGTH - 1)}
    for batch, moments in written.items():
        store.write_batch("abc", batch, moments, CELL)
    assert same_bits(store.read_batches("abc", range(2 * LENGTH), CELL), written)
    assert list(store.read_batches("abc", [LENGTH, 2], CELL)) == [2, LENGTH]
    assert store.stored_batches("abc") == written.keys()
    assert store.stored_batches("other") == frozenset() and store.read_batches("abc", [4], CELL) == {}


def test_large_segments__are_read_a_piece_at_a_time(store, monkeypatch):
    written = {batch: some_moments(batch) for batch in (5, 1, 4, 0, 3)}
    for batch, moments in written.items():
        store.write_batch("abc", batch, moments, CELL)
    asked, original = [], Folder.read
    monkeypatch.setattr("simstudy.execution.batch_files.CHUNK_BYTES", 2 * record_of(CELL).itemsize)
    monkeypatch.setattr(Folder, "read", lambda *given: asked.append(given[2:]) or original(*given))
    assert same_bits(store.read_batches("abc", range(9), CELL), written)
    size = record_of(CELL).itemsize
    assert asked[1:] == [(2 * size, 0), (2 * size, 2 * size), (size, 4 * size)]


def test_batch_of_another_address__is_not_used(store):
    """Neither under another number, nor in the folder of another cell."""
    store.write_batch("abc", 0, some_moments(), CELL)
    shutil.copytree(store.folder / "batches" / "abc", store.folder / "batches" / "other")
    assert store.stored_batches("other") == {0} and store.read_batches("other", [0], CELL) == {}
    index = store.folder / "batches" / "abc" / "0000.index"
    index.write_bytes(b"\x01" + index.read_bytes()[1:])
    assert store.stored_batches("abc") == {1} and store.read_batches("abc", [0, 1], CELL) == {}
    index.write_bytes(b"\xff" * 8 + index.read_bytes()[8:])
    assert store.stored_batches("abc") == frozenset()


def test_foreign_files__are_no_batches(store):
    store.write_batch("abc", 0, some_moments(), CELL)
    for name in ("²²²².index", "1.index", "notes.txt", ".0000.index"):
        (store.folder / "batches" / "abc" / name).write_text("")
    assert store.stored_batches("abc") == {0}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bit_or_cut_file__costs_the_batches_there_alone(store, data):
    shutil.rmtree(store.folder, ignore_errors=True)
    written = {batch: some_moments(batch) for batch in range(3)}
    for batch, moments in written.items():
        store.write_batch("abc", batch, moments, CELL)
    path, size = data.draw(
        st.sampled_from([(only(store).path("records"), record_of(CELL).itemsize), (only(store).path("index"), 48)])
    )
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    lost = range(place // size, 3)
    if data.draw(st.booleans()):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
        lost = [place // size] if path.suffix == ".records" or not 8 <= place % size < 16 else []  # but for its time
    else:
        del content[place:]
    path.write_bytes(bytes(content))
    assert same_bits(store.read_batches("abc", range(3), CELL), {b: written[b] for b in written if b not in lost})
    for batch in lost:  # and what is computed again is there, whatever the harm
        store.write_batch("abc", batch, written[batch], CELL)
    assert same_bits(store.read_batches("abc", range(3), CELL), written)


def test_record_that_is_gone__is_damaged_whatever_the_index_states(store):
    for batch in range(2):
        store.write_batch("abc", batch, some_moments(batch), CELL)
    index, records = only(store).path("index"), only(store).path("records")
    entries = np.frombuffer(index.read_bytes(), batch_files.ENTRY).copy()
    entries["digest"][1] = np.void(hashlib.sha256(b"abc/1/").digest())  # of a record that holds nothing
    index.write_bytes(entries.tobytes())
    os.truncate(records, record_of(CELL).itemsize)
    assert same_bits(store.read_batches("abc", [0, 1], CELL), {0: some_moments(0)})
    assert store.read_batches("abc", [1], CELL) == {}


@pytest.mark.parametrize("name", ["records", "index"])
def test_torn_end__is_no_batch_and_is_cut_off_by_the_next(store, name):
    store.write_batch("abc", 0, some_moments(0), CELL)
    path = only(store).path(name)
    path.write_bytes(path.read_bytes() + b"torn")
    assert store.stored_batches("abc") == {0}
    store.write_batch("abc", 1, some_moments(1), CELL)
    assert same_bits(store.read_batches("abc", [0, 1], CELL), {batch: some_moments(batch) for batch in (0, 1)})
    assert path.stat().st_size % {"records": record_of(CELL).itemsize, "index": 48}[name] == 0


def test_batch_that_is_stored_again__counts_as_it_was_stored_last(store):
    for seed in (0, 1):
        store.write_batch("abc", 0, some_moments(seed), CELL)
    assert same_bits(store.read_batches("abc", [0], CELL), {0: some_moments(1)})


def test_batches_since__counts_those_stored_later(store, monkeypatch):
    for now in (10.0, 20.0, 30.0):
        monkeypatch.setattr("simstudy.execution.batch_files.time.time", lambda now=now: now)
        store.write_batch("abc", int(now), some_moments(), CELL)
    assert [store.batches_since("abc", moment) for moment in (0.0, 15.0, 30.0)] == [3, 2, 0]
    assert Store(store.folder / "none", known=(store,)).batches_since("abc", 15.0) == 2


@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_failed_write__leaves_nothing_behind(store, call, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"simstudy.execution.folder.os.{call}", full)
    with pytest.raises(UserError, match="No space left"):
        store.write_text("a.txt", "text")
    assert [p for p in store.folder.rglob("*") if p.is_file()] == []


def test_batches__are_flushed_together_and_with_the_folders_that_name_them(store, monkeypatch):
    flushed: list[int] = []
    monkeypatch.setattr("simstudy.execution.folder.os.fsync", lambda file: flushed.append(os.fstat(file).st_ino))
    monkeypatch.setattr("simstudy.execution.store.FLUSH_SECONDS", 1e9)
    with store.locked():
        flushed.clear()
        for batch in (0, 1):
            store.write_batch("abc", batch, some_moments(), CELL)
        assert store.stored_batches("abc") == {0, 1} and flushed == []
        segment = only(store)
    paths = (segment.path("records"), segment.path("index"), segment.folder.path, segment.folder.path.parent)
    assert flushed == [path.stat().st_ino for path in paths]
    flushed.clear()
    store.flush()
    assert flushed == []
    monkeypatch.setattr("simstudy.execution.store.FLUSH_SECONDS", 0.0)
    monkeypatch.setattr("simstudy.execution.store.DISK_SHARE", 1e9)
    store.flush()
    store.write_batch("abc", 2, some_moments(), CELL)
    assert len(flushed) == 4
    monkeypatch.setattr("simstudy.execution.store.DISK_SHARE", 1e-9)
    store.flush()
    store.write_batch("abc", 3, some_moments(), CELL)
    assert len(flushed) == 4  # a slow disk is asked less often
    monkeypatch.setattr("simstudy.execution.store.FLUSH_SECONDS", 1e9)
    monkeypatch.setattr("simstudy.execution.store.GATHER_SECONDS", 1e-9)
    with store.locked():
        store.write_batch("abc", 4, some_moments(), CELL)
        assert rows(store.folder).keys() == {f"batches/abc/{batch:07d}.batch" for batch in range(4)}


def test_disk_that_fails_later__is_told(store, monkeypatch):
    def failing(_: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(UserError, match=r"0000\.records: cannot be written \(Input/output error\)"), store.locked():
        store.write_batch("abc", 0, some_moments(), CELL)
        monkeypatch.setattr("simstudy.execution.folder.os.fsync", failing)


@pytest.mark.parametrize("refused", [stat.S_ISDIR, stat.S_ISREG])
def test_file_system_that_flushes_no_folders__will_do_and_one_that_flushes_no_files_not(store, refused, monkeypatch):
    def flush(file: int) -> None:
        if refused(os.fstat(file).st_mode):
            raise OSError(22, "Invalid argument")

    store.write_batch("abc", 0, some_moments(), CELL)
    monkeypatch.setattr("simstudy.execution.folder.os.fsync", flush)
    with contextlib.nullcontext() if refused is stat.S_ISDIR else pytest.raises(UserError, match="Invalid argument"):
        store.flush()


def test_missing_results__are_one_message(tmp_path):
    with pytest.raises(UserError, match="run the study first"):
        read_results(tmp_path / "results.nc")
    (tmp_path / "results.nc").write_text("not netCDF")
    with pytest.raises(UserError, match="damaged, or not the results"):
        read_results(tmp_path / "results.nc")
    store = Store(tmp_path)
    path = store.write_dataset("results.nc", xr.Dataset({"a": ("x", [1.0])}))
    assert read_results(path).a.item() == 1.0
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])  # netCDF itself reads this without complaint, or something in it
    with pytest.raises(UserError, match="damaged, or not the results"):
        read_results(path)
    (tmp_path / "not.nc").write_bytes(b"no netCDF" + hashlib.sha256(b"no netCDF").hexdigest().encode())
    with pytest.raises(UserError, match="no results can be read"):
        read_results(tmp_path / "not.nc")


def test_batches_that_wait__are_written_for_whoever_reads_and_when_the_work_fails(store, monkeypatch):
    monkeypatch.setattr("simstudy.execution.store.GATHER_SECONDS", 3600.0)
    with pytest.raises(KeyboardInterrupt), store.locked():
        store.write_batch("abc", 0, some_moments(0), CELL)
        assert not segments(store.files.at("batches", "abc"))
        assert same(store.read_batches("abc", [0], CELL)[0], some_moments(0)) and only(store)
        store.write_batch("abc", 1, some_moments(1), CELL)
        raise KeyboardInterrupt
    assert only(store).batches() == {0: 0, 1: 1}
    store.write_batch("abc", 2, some_moments(2), CELL)  # without the lock nothing waits
    assert only(store).batches().keys() == {0, 1, 2}


@pytest.mark.parametrize("told", ["read", "written"])
def test_too_many_open_files__are_no_fault_of_the_disk(told):
    assert "allow more open files" in str(refused(Path("a"), OSError(errno.EMFILE, "Too many open files"), told))
    assert "mend" in str(refused(Path("a"), OSError(errno.EIO, "Input/output error"), told))
