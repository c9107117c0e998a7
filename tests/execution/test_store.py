"""Nothing that is read is believed, nothing stored is lost, and folders that others made change and run nothing."""

import ast
import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr
from builders import loaded, refuses, varied, watched, write_design
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored import contents

from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.errors import UserError
from simstudy.execution import executors, state
from simstudy.execution.executors import open_executor, run_tasks
from simstudy.execution.folder import Folder, due
from simstudy.execution.provenance import PACKAGE
from simstudy.execution.state import RunState
from simstudy.execution.store import RUN, Store, read_tree
from simstudy.replicates.moments import Moments, empty
from simstudy.report.progress import status_line, status_table

CELL = SimpleNamespace(
    n_queries=1, n_members=2, statistics=("one",), controlled=True, population=(),
    simulation=SimpleNamespace(batch_size=32),
)  # fmt: skip
ID, OTHER = "ab" * 10, "cd" * 10


def some_moments(seed: int = 0) -> Moments:
    sums = np.random.default_rng(seed).normal(size=(16, 1, 2))
    moments = empty(16, np.array([0.5]), 2, len(GEOMETRIC_INDICES) + 1, controlled=True)
    return moments._replace(n_defined=np.full(16, 2), error_sum=sums, control_sum=np.repeat(sums, 5, axis=2)[..., :5])


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "study" / "quick")


def same_bits(*given: dict[int, Moments]) -> bool:
    one, other = ({batch: [each.tobytes() for each in of] for batch, of in moments.items()} for moments in given)
    return one == other


def put(store: Store, *numbers: int, identity: str = ID) -> dict[int, Moments]:
    written = {batch: some_moments(batch) for batch in numbers}
    for batch, moments in written.items():
        store.write_batch(identity, batch, moments)
    return written


def test_batches__are_read_back_to_the_bit_from_all_files_that_lie_there(store):
    written = put(store, 3, 4096, 2, 0)
    written |= put(Store(store.folder, "2-of-3"), 7)
    put(store, 5, identity=OTHER)
    (store.folder / "batches" / "1-of-3.lock").write_text("")
    for reader in (Store(store.folder), Store(store.folder, "1-of-3")):
        assert same_bits(reader.read_batches(ID, range(9999), CELL), written)
        assert reader.stored(ID).numbers == written.keys() and reader.stored("ef" * 10).numbers == set()
    assert same_bits(put(store, 7), store.read_batches(ID, [7], CELL))  # its own counts


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bit_or_cut_file__costs_the_batches_there_alone(store, data):
    shutil.rmtree(store.folder, ignore_errors=True)
    written = put(Store(store.folder), *range(3))
    path = store.folder / RUN
    whole = path.read_bytes()
    content = bytearray(whole)
    place = data.draw(st.integers(0, len(content) - 1))
    struck = place // (len(content) // 3)
    if flipped := data.draw(st.booleans()):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
        lost = [struck]
    else:
        del content[place:]
        lost = [*range(struck, 3)]
    path.write_bytes(bytes(content))
    found = Store(store.folder)
    assert same_bits(found.read_batches(ID, range(3), CELL), {b: written[b] for b in written if b not in lost})
    assert not found.is_whole() or len(found.stored(ID).numbers) == 3 - len(lost)
    with found.locked():  # and what is computed again is there, whatever the harm
        put(found, *lost)
    assert same_bits(Store(store.folder).read_batches(ID, range(3), CELL), written)
    assert flipped or path.read_bytes() == whole  # a torn end is cut off by the next writer


def test_endless_file__is_not_searched_without_end(store, monkeypatch):
    put(store, 0)
    monkeypatch.setattr("simstudy.execution.store.MAX_SEARCHED", 1 << 24)
    os.truncate(store.folder / RUN, 1 << 40)  # of holes
    tracemalloc.start()
    assert Store(store.folder).read_batches(ID, [0], CELL).keys() == {0}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 22
    (store.folder / ".status.json").touch()
    os.truncate(store.folder / ".status.json", 1 << 40)
    refuses(r"status\.json: cannot be read: longer than", store.files.read, ".status.json", 1 << 20)


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
    "a failure of another batch": lambda m: with_failures(m, 64),
    "a failure before the first": lambda m: with_failures(m, -1),
    "an infinite sum": lambda m: m._replace(error_sum=changed(m.error_sum, np.inf)),
    "an undefined sum": lambda m: m._replace(product_sum=changed(m.product_sum, np.nan)),
    "a sum whose square overflows": lambda m: m._replace(product_sum=changed(m.product_sum, 1e200)),
    "an undefined target": lambda m: m._replace(target=changed(m.target, np.nan)),
    "another size": lambda m: m._replace(target=np.zeros(0)),
}


@pytest.mark.parametrize("forge", WRONG.values(), ids=WRONG.keys())
def test_batch_that_cannot_be__is_damaged(forge, store):
    store.write_batch(ID, 0, forge(some_moments()))
    assert store.stored(ID).numbers == {0} and store.read_batches(ID, [0], CELL) == {}
    for failed in ((), (0,), (1, 0)):  # the control: what is forged is refused for its contents alone
        store.write_batch(ID, 0, with_failures(some_moments(), *failed))
        assert store.read_batches(ID, [0], CELL)[0].failed.tolist() == sorted(failed)
    unknown = changed(some_moments().statistic_sum, np.nan)  # as are statistics that have no meaning
    store.write_batch(ID, 0, some_moments()._replace(statistic_sum=unknown))
    assert store.read_batches(ID, [0], CELL)


@pytest.mark.parametrize("call, number, remedy", [
    ("rename", errno.ENOSPC, "free space"),
    ("fsync", errno.EIO, "free space"),
    ("fsync", errno.EMFILE, "allow more open files"),
])  # fmt: skip
def test_failed_write__leaves_nothing_behind(store, call, number, remedy, monkeypatch):
    monkeypatch.setattr(f"simstudy.execution.folder.os.{call}", Mock(side_effect=OSError(number, "as told")))
    refuses(rf"a.txt: cannot be written \(as told\); {remedy}", store.files.write, "a.txt", b"text")
    assert [p for p in store.folder.rglob("*") if p.is_file()] == []


def test_batches__are_flushed_together_with_the_folder_that_names_them_less_often_to_a_slow_disk(store, monkeypatch):
    flushed: list[int] = []
    monkeypatch.setattr("simstudy.execution.folder.os.fsync", lambda file: flushed.append(os.fstat(file).st_ino))
    monkeypatch.setattr("simstudy.execution.store.FLUSH_SECONDS", 1e9)
    with store.locked():
        put(store, 0, 1)
        assert store.stored(ID).numbers == {0, 1} and flushed == []
    path = store.folder / RUN
    assert flushed == [path.stat().st_ino, path.parent.stat().st_ino]
    written = store.files.write("a.txt", b"text")
    assert flushed[2:] == [written.stat().st_ino, store.folder.stat().st_ino]
    flushed[2:] = []
    store.flush()
    assert len(flushed) == 2
    monkeypatch.setattr("simstudy.execution.store.FLUSH_SECONDS", 0.0)
    monkeypatch.setattr("simstudy.execution.store.DISK_SHARE", 1e9)
    store.flush()
    put(store, 2)
    assert len(flushed) == 4
    # Batches are flushed to a slow disk, and the status of very many cells is written, in a share of the time.
    monkeypatch.setattr("simstudy.execution.store.time.monotonic", lambda: 10.0)
    assert due(9.0, 1.0, 0.02) == 10.0 + 50.0 and due(9.999, 1.0, 0.02) == 10.0 + 1.0


@pytest.mark.parametrize("refused_by", [None, stat.S_ISDIR, stat.S_ISREG])
def test_disk_that_fails_later__is_told_but_not_one_that_flushes_no_folders(store, refused_by, monkeypatch):
    def flush(file: int) -> None:
        if refused_by is None or refused_by(os.fstat(file).st_mode):
            raise OSError(22 if refused_by else 5, "as told")

    told = pytest.raises(UserError, match=r"run: cannot be written \(as told\)")
    with contextlib.nullcontext() if refused_by is stat.S_ISDIR else told, store.locked():
        put(store, 0)
        monkeypatch.setattr("simstudy.execution.folder.os.fsync", flush)


OWNER = {"pid": 1, "host": "here", "started": 1.0}
GARBLED = [
    "", "{", "[]", "null", "[" * 200_000, json.dumps({"pid": 1}),
    *(json.dumps(OWNER | wrong) for wrong in (
        {"pid": "1"}, {"pid": True}, {"pid": -1}, {"pid": 2**70}, {"host": 1}, {"started": None},
        {"started": float("nan")}, {"started": 1e300}, {"started": "now"}, {"more": 1},
    )),
]  # fmt: skip


@pytest.mark.parametrize("text", GARBLED, ids=range(len(GARBLED)))
def test_garbled_owner__is_nobody(text, store):
    store.folder.mkdir(parents=True)
    (store.folder / ".lock").write_text(text)
    assert store.owner() is None
    (store.folder / ".lock").write_text(json.dumps(OWNER))
    assert store.owner().host == "here"


def test_results_that_are_missing_or_damaged__are_one_message(tmp_path):
    path, store = tmp_path / "results.nc", Store(tmp_path)
    refuses("run the study first", read_tree, path)
    store.write_dataset("results.nc", xr.Dataset({"a": ("x", [1.0])}))
    assert read_tree(path).a.item() == 1.0
    content = path.read_bytes()
    # netCDF itself reads half a file without complaint, or something in it.
    for harmed in (b"not netCDF", content[: len(content) // 2]):
        path.write_bytes(harmed)
        refuses("damaged, or not the results", read_tree, path)
    path.write_bytes(b"no netCDF" + hashlib.sha256(b"no netCDF").hexdigest().encode())
    refuses("no results can be read", read_tree, path)
    # One long text among many short ones: held, they take as much room as the longest each.
    texts = ["why a theory does not apply " * 9, *("" for _ in range(10_000))]
    store.write_dataset("results.nc", xr.Dataset({"a": ("x", np.arange(3.0)), "b": ("y", texts)}))
    assert read_tree(path).a[2] == 2.0


def test_millions_of_batches__cost_what_is_in_flight(tmp_path, monkeypatch):
    vast = loaded(tmp_path, re.sub("_replicates = [0-9]+", "_replicates = 160_000_000", varied(batch_size=16)))
    made = watched(monkeypatch, state, "Task")
    monkeypatch.setattr(executors, "MAX_WAITING", 10)
    store = Store(tmp_path / "study")
    run_state = RunState(vast, store)
    with open_executor("serial") as executor:
        next(run_tasks(executor, deque([run_state.first_tasks()])))
    # Three turns of one worker, and the tasks that wait: six cells share each batch.
    assert len(made) <= 3 + 2 * 10
    assert sum(account.missing for account in run_state.cells) == 6 * 10_000_000
    status = run_state.write_status()
    status_table(status, vast)
    assert "0 of 6 cells finished" in status_line(status, store)


FILES = (
    "results.nc", "details.nc", "report.html", "verdicts.csv", "comparisons.csv", "cells.csv", "provenance.json",
    ".lock", ".status.json", ".report.json", "figures/a.png", "replays/a.nc", "batches/run", "batches/1-of-2",
    "batches/1-of-2.lock", "logs/array.sh",
)  # fmt: skip
FOLDERS = ("figures", ".partial", "logs", "replays", "batches", "confirmed")
KINDS: dict[str, Callable[[Path, Path], None]] = {
    "file": lambda place, home: place.symlink_to(home / "canary"),
    "folder": lambda place, home: place.symlink_to(home, target_is_directory=True),
    "dangling": lambda place, home: place.symlink_to(home / "new"),
    "itself": lambda place, home: place.symlink_to(place.name),
    "pipe": lambda place, home: os.mkfifo(place),
}
WALL = {
    "execution/folder.py": "opens folders of studies",
    "kernels/sealed.py": "keeps compiled code in a cache of its own, in the same way",
    "design/files.py": "reads files that the user names",
    "kernels/compiled.py": "reads sources of the package",
    "execution/provenance.py": "reads sources of the package, and what the system says of the processor",
    "execution/executors.py": "reads what the system says of memory",
    "study.py": "reads the script that calls it",
    "report/terminal.py": "opens the null device",
    "__main__.py": "opens the null device",
    "commands/__init__.py": "writes a new design into the current folder, where nothing may lie",
}
"""Modules that may open files, with the reason."""
DEPENDENCIES = (
    "numpy", "numba", "scipy", "xarray", "pandas", "netCDF4", "pydantic", "typer", "rich", "matplotlib", "jinja2",
    "dask", "distributed", "threadpoolctl", "psutil", "yaml", "PIL",
)  # fmt: skip
OPENING = {
    "open", "fdopen", "write_text", "write_bytes", "read_text", "read_bytes", "unlink", "rename", "rmtree", "rmdir",
    "mkdir", "makedirs", "copyfile", "copytree", "fromfile", "tofile", "symlink_to", "hardlink_to", "touch",
}  # fmt: skip

THROUGH = re.compile(r"(^|\.)_?(store|files|folder)\.\w+$|Store\(.*\)\.\w+$|self\.write_(text|bytes)$|^read_text$")
"""Calls that go through a store or a folder of it, or through `design.files`."""
COMMANDS = {
    "run": "run design.toml --executor serial", "share": "run design.toml --share 1/1", "plan": "plan design.toml",
    "report": "report design.toml", "gather": "report", "status": "status design.toml", "check": "check design.toml",
    "replay": "replay design.toml --cell 0 --replicate 1",
    "confirm": "run design.toml --executor serial --confirm text",
    "inspect": "inspect pipe --texts pipe --output outputs/tiny/quick",
    "submit": "submit design.toml --show",
}  # fmt: skip


@pytest.fixture
def home(tmp_path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("canary", ".profile", "0" * 32, "report.html"):
        (folder / name).write_text("mine")
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_link_or_pipe_where_a_writer_expects_its_own__is_one_line_and_changes_nothing(name, kind, home, tmp_path):
    place = tmp_path / "study" / name
    place.parent.mkdir(parents=True)
    KINDS[kind](place, home)
    before = contents(home)
    # Before anything is computed.
    told = refuses(" a (link|pipe) is in the place of a ", Store(tmp_path / "study").locked().__enter__)
    assert name.split("/")[0] in told and contents(home) == before and os.path.lexists(place)


@pytest.mark.parametrize("level", ["tiny", "tiny/quick"])
def test_study_that_is_a_link__is_refused_unless_the_command_names_it(level, home, tmp_path, tiny, in_process):
    output, path = tmp_path / "out", write_design(tmp_path)
    place = output / level
    place.parent.mkdir(parents=True)
    place.symlink_to(home, target_is_directory=True)
    before = contents(home)
    for command in ("run", "plan", "report", "status"):
        assert in_process(command, path, "--output", output).returncode in (0, 2) and contents(home) == before
    assert in_process("run", path, "--output", output, "--executor", "serial").returncode == 2
    (tmp_path / "link").symlink_to(tiny.copied(tmp_path / "scratch"), target_is_directory=True)
    assert in_process("run", path, "--output", tmp_path / "link", "--executor", "serial").returncode == 0


@pytest.fixture
def checkout(home, tmp_path, tiny, monkeypatch) -> Path:
    """A folder that somebody else has made, in which a command is run: modules of all names, and files of settings."""
    here = tmp_path / "here"
    tiny.copied(here / "outputs")
    tiny.copied(here / "whole")
    write_design(here)
    os.mkfifo(here / "pipe")
    for name in (*sys.stdlib_module_names, *DEPENDENCIES, "sitecustomize", "usercustomize"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (here / ".numba_config.yaml").write_text("opt: '0'\nloop_vectorize: 0\n")
    (here / "matplotlibrc").write_text("text.usetex: True\n")
    monkeypatch.chdir(here)
    return here


# Each kind meets every file of a writer above.
@pytest.mark.parametrize("shift", [0, *(pytest.param(k, marks=pytest.mark.rare) for k in range(1, len(KINDS)))])
def test_every_command__leaves_all_that_links_lead_to_as_it_was(shift, checkout, home, tmp_path, in_process):
    before, study = contents(home), checkout / "outputs" / "tiny" / "quick"
    names = sorted({name.split("/")[0] for name in (*FILES, *FOLDERS)} | {"heads.nc", "heads.html"})
    for name, command in COMMANDS.items():
        shutil.rmtree(study)
        study.mkdir()
        for number, place in enumerate(names, shift):
            [*KINDS.values()][number % len(KINDS)](study / place, home)
        result = in_process(*command.split())
        assert result.returncode in (0, 2, 5), (name, result.stderr)
        assert result.stderr.count("\n") <= (1 if result.returncode == 2 else 3), (name, result.stderr)
        assert contents(home) == before and not (tmp_path / "ran").exists(), name


def test_nothing_in_the_current_folder__is_imported_or_read_as_settings(checkout, home, tmp_path):
    calm = subprocess.run(
        [Path(sys.executable).with_name("simstudy"), "report", "design.toml"], capture_output=True, text=True,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert calm.returncode == 0 and not (tmp_path / "ran").exists(), calm.stderr
    assert (checkout / "outputs" / "tiny" / "quick" / "report.html").exists()


def test_only_what_the_program_makes__is_deleted(tmp_path):
    folder = Folder(tmp_path)
    (tmp_path / ".partial").mkdir()
    (tmp_path / "batches").mkdir()
    for name in ("notes.txt", ".partial/notes.txt", f".partial/{'a' * 32}", "batches/run", "batches/1-of-2"):
        (tmp_path / name).write_text("mine")
        folder.delete(name)
    assert (tmp_path / "notes.txt").exists() and os.listdir(tmp_path / ".partial") == ["notes.txt"]
    assert os.listdir(tmp_path / "batches") == ["run"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a file of a second user")
def test_file_of_another_user__is_not_written(tmp_path):
    (tmp_path / "report.html").write_text("theirs")
    shutil.chown(tmp_path / "report.html", 65534)
    refuses(r"report\.html: belongs to another user", Store(tmp_path).locked().__enter__)
    assert (tmp_path / "report.html").read_text() == "theirs"


def test_no_other_module__opens_files_of_studies():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        # What renames columns is a data frame.
        calls = [ast.unparse(node.func) for node in nodes if not any(key.arg == "columns" for key in node.keywords)]
        opening = [call for call in calls if call.split(".")[-1] in OPENING and not THROUGH.search(call)]
        if opening and not name.startswith("docs/"):
            found.add(name)
    assert found == WALL.keys()
