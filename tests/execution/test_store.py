"""Files of a study: whole or absent, checked when read."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simstudy.errors import UserError
from simstudy.execution.batch_files import Shape, sealed
from simstudy.execution.netcdf import read_results
from simstudy.execution.store import Store
from simstudy.replicates.moments import Moments, empty

SHAPE = Shape(n_queries=1, n_members=2, n_statistics=9, batch_size=32)


def some_moments() -> Moments:
    sums = np.random.default_rng(0).normal(size=(16, 1, 2))
    moments = empty(16, np.array([0.5]), 2, SHAPE.n_statistics)
    return moments._replace(n_defined=np.full(16, 2), error_sum=sums)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "study" / "quick")


def test_batch__is_read_back_to_the_bit(store):
    store.write_batch("abc", 3, some_moments())
    for written, read in zip(some_moments(), store.read_batch("abc", 3, SHAPE), strict=True):
        np.testing.assert_array_equal(written, read)
    assert store.stored_batches("abc") == {3}
    assert store.stored_batches("other") == frozenset() and store.read_batch("abc", 4, SHAPE) is None


def test_batch_of_another_address__is_not_used(store):
    store.write_batch("abc", 0, some_moments())
    for identity, batch in (("abc", 1), ("other", 0)):
        path = store.folder / "batches" / identity / f"{batch:07d}.npy"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((store.folder / "batches" / "abc" / "0000000.npy").read_bytes())
        assert store.read_batch(identity, batch, SHAPE) is None


def test_foreign_files__are_no_batches(store):
    store.write_batch("abc", 0, some_moments())
    for name in ("²².npy", "1.npy", "notes.txt", ".0000001.npy"):
        (store.folder / "batches" / "abc" / name).write_text("")
    assert store.stored_batches("abc") == {0}


def test_same_moments__give_the_same_bytes(tmp_path):
    contents = set()
    for name in ("one", "two"):
        store = Store(tmp_path / name)
        store.write_batch("abc", 0, some_moments())
        contents.add((tmp_path / name / "batches" / "abc" / "0000000.npy").read_bytes())
    assert len(contents) == 1


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_or_cut_file__is_noticed_wherever_it_lies(store, data):
    store.write_batch("abc", 0, some_moments())
    path = store.folder / "batches" / "abc" / "0000000.npy"
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[place:]
    path.write_bytes(bytes(content))
    assert store.read_batch("abc", 0, SHAPE) is None


def test_batch_without_its_digest__is_not_used(store):
    """A file that was written by another program, or under another address and sealed again."""
    store.write_batch("abc", 0, some_moments())
    path = store.batch_path("abc", 0)
    np.save(path, np.load(path))  # any reader of .npy opens it
    assert store.read_batch("abc", 0, SHAPE) is None


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"PK\x05\x06" + bytes(18)])
def test_rubbish_with_a_digest__is_not_used_and_executes_nothing(store, content):
    store.write_batch("abc", 0, some_moments())
    path = store.batch_path("abc", 0)
    path.write_bytes(content + hashlib.sha256(content).hexdigest().encode())
    assert store.read_batch("abc", 0, SHAPE) is None


def test_pickled_array__is_not_loaded(store, tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("trap").touch, ())

    store.write_batch("abc", 0, some_moments())
    path, buffer = store.batch_path("abc", 0), io.BytesIO()
    np.save(buffer, np.array([Trap()]))
    path.write_bytes(sealed(buffer.getvalue()))
    assert store.read_batch("abc", 0, SHAPE) is None and not (tmp_path / "trap").exists()
    # The control: whoever allows pickle is trapped.
    np.load(path, allow_pickle=True)
    assert (tmp_path / "trap").exists()


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_failed_write__leaves_nothing_behind(store, call, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"simstudy.execution.store.os.{call}", full)
    with pytest.raises(UserError, match="No space left"):
        store.write_text("a.txt", "text")
    assert [p for p in store.folder.rglob("*") if p.is_file()] == []


def test_batches__are_flushed_together_and_with_the_folder_that_names_them(store, monkeypatch):
    flushed: list[int] = []
    monkeypatch.setattr("simstudy.execution.store.os.fsync", lambda file: flushed.append(os.fstat(file).st_ino))
    monkeypatch.setattr("simstudy.execution.store.FLUSH_SECONDS", 1e9)
    with store.locked():
        flushed.clear()
        for batch in (0, 1):
            store.write_batch("abc", batch, some_moments())
        assert flushed == []
        paths = [store.batch_path("abc", batch) for batch in (0, 1)]
    assert flushed == [path.stat().st_ino for path in (*paths, paths[0].parent)]
    flushed.clear()
    store.flush()
    assert flushed == []
    monkeypatch.setattr("simstudy.execution.store.FLUSH_SECONDS", 0.0)
    store.write_batch("abc", 2, some_moments())
    assert len(flushed) == 2


def test_disk_that_fails_later__is_told(store, monkeypatch):
    def failing(_: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(UserError, match=r"0000000\.npy: cannot be written \(Input/output error\)"), store.locked():
        store.write_batch("abc", 0, some_moments())
        monkeypatch.setattr("simstudy.execution.store.os.fsync", failing)


@pytest.mark.parametrize("refused", [stat.S_ISDIR, stat.S_ISREG])
def test_file_system_that_flushes_no_folders__will_do_and_one_that_flushes_no_files_not(store, refused, monkeypatch):
    def flush(file: int) -> None:
        if refused(os.fstat(file).st_mode):
            raise OSError(22, "Invalid argument")

    store.write_batch("abc", 0, some_moments())
    monkeypatch.setattr("simstudy.execution.store.os.fsync", flush)
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
