"""Nothing that happens to a run changes its results or wastes what is stored, whose identity is what computes it."""

import errno
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numba
import numpy as np
import pytest
from builders import DESIGN, UNCLAIMED, edited, loaded, minimal_cell, refuses, run, varied, write_design
from commands import ROOT, python
from faults import UNFOLDED, Calm
from stored import FOLDER, batches, overwrite, remove

from simstudy import details, plan
from simstudy.errors import UserError
from simstudy.execution import executors, provenance
from simstudy.execution.provenance import PACKAGE, engine, identity_of
from simstudy.execution.state import RunState
from simstudy.execution.store import Store, entry_of, payloads, store_of
from simstudy.kernels.compiled import digest
from simstudy.kernels.settings import processor


def computed(monkeypatch) -> list[tuple]:
    """List the batches that are computed from now on, by cell and number."""
    calls: list[tuple] = []
    original = executors.simulate_batch

    def counted(cells, batch, device, count):
        calls.extend((cell, batch + k) for k in range(count) for cell in cells)
        return original(cells, batch, device, count)

    monkeypatch.setattr(executors, "simulate_batch", counted)
    return calls


def test_damaged_batches__are_told_and_all_that_is_computed_again(tiny, tmp_path, monkeypatch, in_process):
    wanted = batches(tiny.copied(tmp_path))
    cut, flipped, another, doubled, removed, *_ = sorted(wanted)
    overwrite(tmp_path, cut, bytes(len(wanted[cut]) - 1000), 1000)
    overwrite(tmp_path, flipped, bytes([wanted[flipped][0] ^ 1]))
    overwrite(tmp_path, another, wanted[doubled])
    remove(tmp_path, removed)
    calls = computed(monkeypatch)
    ran = in_process("run", write_design(tmp_path / "design"), "--output", tmp_path, "--executor", "serial")
    assert len(calls) == 4 and batches(tmp_path) == wanted
    assert ran.returncode in (0, 3) and "3 stored batches were damaged" in ran.stderr


def holder(folder: Path, before: str = "pass") -> subprocess.Popen:
    """A process that holds the lock of a folder until it is told to end."""
    code = (
        f"{before}; import sys; from pathlib import Path; from simstudy.execution.store import Store\n"
        "with Store(Path(sys.argv[1])).locked(): print('held', flush=True); sys.stdin.read()"
    )
    command, pipe = [sys.executable, "-c", code, folder], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.filterwarnings("ignore:.*fork")  # of JAX, if another test has imported it
def test_lock__ends_before_processes_that_a_pool_of_the_caller_has_forked_meanwhile(tmp_path):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    with Store(tmp_path).locked():
        child.start()
    with Store(tmp_path).locked():
        child.kill()


def test_second_run_in_a_folder__is_refused_and_harmless(tiny, tmp_path, monkeypatch):
    design, store = tiny.design, store_of(tiny.design, tiny.copied(tmp_path))
    before = batches(tmp_path)
    with holder(store.folder) as process:
        with pytest.raises(UserError, match=rf"in use by process {process.pid} on .* since .*; wait for it, or choose"):
            run(design, output=tmp_path, executor="serial")
        assert store.owner().alive and store.owner().pid == process.pid
        RunState(design, store).first_tasks()  # who only reads is not in anybody's way
        process.kill()
        process.communicate()
    assert store.owner().alive is False
    calls = computed(monkeypatch)
    run(design, output=tmp_path, executor="serial")
    assert calls == [] and batches(tmp_path) == before and store.owner() is None


def test_two_hosts_that_have_lost_their_locks__do_not_both_write_and_without_locks_none(tiny, tmp_path, monkeypatch):
    design, others = loaded(tmp_path), []
    path = store_of(design, tmp_path).folder / "batches" / "run"
    elsewhere = "import fcntl, platform; fcntl.flock = lambda *_: None; platform.node = lambda: 'another host'"

    def begin_elsewhere(*_):
        if path.exists() and not others:
            others.append(holder(path.parents[1], elsewhere))

    monkeypatch.setattr("simstudy.execution.folder.fcntl.flock", Mock())
    told = refuses("lock is lost", run, design, output=tmp_path, executor="serial", observer=begin_elsewhere)
    assert f"the lock is lost to process {others[0].pid} on another host; wait for it, and run again" in told
    others[0].communicate()
    monkeypatch.undo()
    assert run(design, output=tmp_path, executor="serial").equals(tiny.results)
    lacking = Mock(side_effect=OSError(errno.ENOLCK, "No locks available"))
    monkeypatch.setattr("simstudy.execution.folder.fcntl.flock", lacking)
    refuses(r"\(No locks available\); mount it with", run, design, output=tmp_path / "new", executor="serial")
    assert not (tmp_path / "new" / FOLDER / "batches").exists()  # nothing was written


def test_edited_design_and_code__use_no_batch_of_before(tiny, tmp_path, monkeypatch):
    design, first, before = loaded(tmp_path), tiny.results, batches(tiny.copied(tmp_path))
    calls = computed(monkeypatch)
    second = run(loaded(tmp_path, varied(seed=8)), output=tmp_path, executor="serial")
    n_new = len(calls)
    assert n_new == int(second.n_batches.sum()) and not (first.mse == second.mse).sel(source="empirical").any()
    run(design, output=tmp_path, executor="serial")
    assert len(calls) == n_new  # back to the first design: all its batches are there
    monkeypatch.setattr("simstudy.execution.provenance.engine", lambda *_: "another engine")
    (tmp_path / FOLDER / "results.nc").unlink()
    run(design, output=tmp_path, executor="serial")
    assert len(calls) == n_new + int(first.n_batches.sum()) and before.items() < batches(tmp_path).items()


EXTENSIONS = {
    "another claim": ("[figures.mse]", '[claims.two]\nstatement = "S."\nkind = "monotone"\ngrid = "angles"\n'
                      'measure = "mse"\nx = "angle"\ndirection = "increasing"\n\n[figures.mse]'),
    "more cells": ("angle = [0, 45, 90]", "angle = [0, 30, 45, 90]"),
    "a tighter precision": ("mse = 0.05", "mse = 0.01"),
}  # fmt: skip


@pytest.mark.parametrize("extension", EXTENSIONS.values(), ids=EXTENSIONS)
def test_extended_study__computes_only_what_is_missing(tiny, tmp_path, monkeypatch, extension):
    monkeypatch.setattr(RunState, "fold", lambda _: None)
    stored = batches(tiny.copied(tmp_path / "grown"))
    wider = loaded(tmp_path, edited(DESIGN, *extension))
    calls = computed(monkeypatch)
    results = run(wider, output=tmp_path / "grown", executor="serial")
    n_computed = len(calls)
    calm = run(wider, output=tmp_path / "fresh", executor="serial")
    assert results.assign_attrs(run="").identical(calm.assign_attrs(run=""))
    fresh = batches(tmp_path / "fresh")
    assert len(calls) - n_computed == len(fresh) and n_computed == len(fresh.keys() - stored.keys())
    assert not any(task.cells for task in RunState(wider, store_of(wider, tmp_path / "grown")).first_tasks())
    if extension == EXTENSIONS["another claim"]:
        assert n_computed == 0 and results.sizes["claim"] == 2
    if extension == EXTENSIONS["more cells"]:
        assert n_computed == int(results.n_batches[results.angle == 30].sum()) > 0


LONG = {"mse": 0.01, "control": "none", "max_replicates": 1200, "angle": [0, 90], "bandwidth": [0.5]}
QUERIES, COMPACT = {"queries": {"kind": "gaussian", "count": 8}}, {"normaliser": {"kind": "compact", "power": 1}}
DRAWN = varied(**LONG, **QUERIES, population=("queries",))
# 189 batches, of which two make a block, so that the last is stored alone; and replicates that fail in all.
MANY = varied(**LONG | COMPACT | {"max_replicates": 3024, "mse": 1e-4, "batch_size": 16})
# A cell of two grids, which are not looked at together.
TWICE = "[grids.again.factors]\nangle = [0]\nbandwidth = [0.5]\n[grids.again.precision]\nmax_replicates = 320\n"
TWICE = varied(UNCLAIMED, **LONG | {"angle": [0]}) + TWICE
# Moments that are soon computed again, of cells that differ in what combines their heads; replicates that fail in all.
LARGE = LONG | QUERIES | COMPACT | {"n_heads": 24, "arrangement": "haar", "min_replicates": 384, "mse": 0.5}
LARGE = varied(UNCLAIMED, **LARGE | {"angle": None, "combination": ["uniform", "optimal"], "bandwidth": [1.5]})
FOLDED = {"fixed": varied(**LONG), "many": MANY, "drawn": DRAWN, "twice": TWICE, "large": LARGE}


def further(text: str) -> str:
    """The same with more replicates."""
    return re.sub(r"= (1200|2000|3024|3824)\b", lambda found: f"= {int(found[1]) + 800}", text)


@pytest.mark.parametrize("text", FOLDED.values(), ids=FOLDED)
def test_folded_study__takes_less_room_and_goes_on_as_if_nothing_had_happened(text, tmp_path, monkeypatch):
    design = loaded(tmp_path, text)
    with monkeypatch.context() as unfolded:
        unfolded.setattr(RunState, "fold", lambda _: None)
        planned, *_ = plan(design, output=tmp_path / "raw", executor="serial").grids
        wanted = run(design, output=tmp_path / "raw", executor="serial")
    found = run(design, output=tmp_path / "folded", executor="serial")
    assert found.equals(wanted) and int(found.n_batches.max()) > 8
    raw, folded = (tmp_path / name / FOLDER / "batches" / "run" for name in ("raw", "folded"))
    # What a batch of a population tells is little from the start.
    share = folded.stat().st_size / raw.stat().st_size
    assert share == 1.0 if text in (DRAWN, TWICE) else share < (0.1 if text == LARGE else 0.7)
    assert text in (TWICE, LARGE) or planned.bytes == pytest.approx(folded.stat().st_size, rel=0.35)
    calls = computed(monkeypatch)
    (folded.parents[1] / ".status.json").unlink()
    assert run(design, output=tmp_path / "folded", executor="serial").equals(wanted) and not calls
    for lacking in (b'"mse"', b'"hdi"') if text == LARGE else ():  # a file that somebody wrote
        store = store_of(design, tmp_path / "folded")
        ((entry, told),) = payloads(store.files, *(each.values() for each in store.index.values()))
        forged = told.replace(lacking, b'"x"', 1)
        store.replace([entry.identity], [(entry_of(*entry[:4], forged), forged)])
        calls.clear()
        again = run(design, output=tmp_path / "folded", executor="serial")
        assert again.equals(wanted) and len(calls) == entry.first == 12
    if text == LARGE:  # no measures at each query are kept
        at_each = loaded(tmp_path, f"{text}[grids.angles]\nby_query = true\n")
        assert details(run(at_each, output=tmp_path / "folded", executor="serial"), 0).sizes["query"] == 8
    whole = folded.read_bytes()
    calls.clear()
    # What is damaged is computed again, all that was folded with it as well.
    folded.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    assert run(design, output=tmp_path / "folded", executor="serial").equals(wanted)
    assert 0 < len(calls) < int(found.n_batches.sum())
    # More precision goes on where it stopped: only moments that were not kept are computed again, once for all.
    longer = loaded(tmp_path, tighter := further(varied(text, mse=1e-4)))
    calls.clear()
    left = sum(grid.batches for grid in plan(longer, output=tmp_path / "folded", executor="serial").grids) + len(calls)
    more = run(longer, output=tmp_path / "folded", executor="serial")
    new = more.n_batches.max() if text == LARGE else (more.n_batches - found.n_batches).sum()
    assert len(calls) == left == int(new) > 0
    plain = run(longer, output=tmp_path / "raw", executor="serial")
    assert all(more[name].identical(plain[name]) for name in ("mse", "mse_mcse", "n_batches"))
    # What a budget cuts short keeps all that was known.
    spent = loaded(tmp_path, f"{further(tighter)}\n[budget]\nwall_seconds = 1e-3\n")
    cut = run(spent, output=tmp_path / "folded", executor="serial")
    assert (cut.n_batches >= more.n_batches).all() and not cut.precision_reached.any()


def test_write_that_fails_or_kills__is_one_line_or_nothing_lost(tmp_path):
    calm = Calm(tmp_path, UNFOLDED)
    writes = [number for number, kind in enumerate(calm.asked, 1) if kind == "write"]
    for part, kills in ((0.3, True), (0.7, True), (0.9, True), (0.3, False), (0.9, False)):
        assert calm.harmed(writes[int(part * len(writes))], kills) == ""
    last = max(number for number, kind in enumerate(calm.asked, 1) if kind == "ftruncate")  # the lock is let go
    assert calm.harmed(last, False) == "" and calm.hits == 6


@pytest.mark.rare
@pytest.mark.parametrize("kills, before, options", [
    (False, "", ()),
    (True, "", ()),
    (True, UNFOLDED, ()),
    (True, UNFOLDED, ("--executor", "threads", "--workers", 2)),
    (True, UNFOLDED, ("--executor", "serial", "--confirm", "a text")),
])  # fmt: skip
def test_each_operation_that_fails_or_kills__is_one_line_or_nothing_lost(kills, before, options, tmp_path):
    calm = Calm(tmp_path, before, *options)
    numbers = range(1, len(calm.asked) + 1, max(1, len(calm.asked) // 100))
    with ThreadPoolExecutor(os.cpu_count()) as forks:
        wrong = [said for said in forks.map(lambda n: calm.harmed(n, kills), numbers) if said]
    print(f"{calm.hits} operations {'killed' if kills else 'ended'} a run, {len(wrong)} of them with harm")
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.parametrize("name, old, new, another", [
    # What computes no batch.
    ("replicates/allocation.py", "GROWTH = 4", "GROWTH = 5", False),
    # What it computes.
    ("kernels/elementary.py", "F64(1.5 * 2**52)", "F64(1.5 * 2**51)", True),
    ("data/addresses.py", "INSTANCE = 7", "INSTANCE = 8", True),
    ("replicates/batch.py", "PIECE_BYTES = 16", "PIECE_BYTES = 15", True),
    ("attention/learners/trees.py", "2**32", "2**31", True),
    ("ensemble.py", "return ", "return 2 * ", True),  # a method of a user may call it
])  # fmt: skip
def test_source_that_computes_batches__discards_those_that_it_computed(name, old, new, another, tmp_path, monkeypatch):
    before, package = identity_of(minimal_cell()), tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(provenance, "PACKAGE", package)
    monkeypatch.setattr(provenance, "engine", engine.__wrapped__)
    assert identity_of(minimal_cell()) == before
    source = package / name
    assert old in source.read_text(encoding="utf-8")
    source.write_text(source.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    assert (identity_of(minimal_cell()) != before) == another


PROBE = """
import hashlib, math, numba, numpy as np
from scipy import special
from simstudy.execution.provenance import engine, probe
x, u = np.arange(1, 20_001) / 1003.0, np.arange(1, 20_001) / 20_002
compiled = numba.vectorize(["f8(f8)"])(lambda t: np.exp(-t) + np.log(t) + np.sin(t) + np.cos(t) + math.exp2(t) + t**1.3)
functions = np.exp, np.log, np.sin, np.cos, np.expm1, np.tanh, special.gammaln, special.ndtr, compiled
values = [*(f(x) for f in functions), special.gammaincinv(x[::9], u[::9]), special.stdtrit(x[::9], u[::9])]
print(engine(), probe().hex(), hashlib.sha256(np.concatenate(values).tobytes()).hexdigest())
"""


def test_code_of_the_c_library_that_runs__is_of_the_engine():
    found = []
    for switched_off in ("-FMA,-AVX2", "-ERMS", ""):  # as another processor; the second for copies alone
        environment = os.environ | {"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={switched_off}"}
        found.append(python("-c", PROBE, env=environment).stdout.split())
    engines_of = {values: engine for engine, _, values in found}
    assert len({engine for engine, *_ in found}) == len({probe for _, probe, _ in found}) == len(engines_of)
    assert [engines_of[values] for _, _, values in found] == [engine for engine, *_ in found]
    if len(engines_of) == 1:
        pytest.skip("the C library here has one code for all processors, or no tunables")


BITS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "CPU_NAME", "CPU_FEATURES", "BOUNDSCHECK")
NONE = ("CUDA_LOG_SIZE", "NUMBA_NUM_THREADS", "CACHE_DIR", "DISABLE_PERFORMANCE_WARNINGS")


@pytest.mark.parametrize("name", BITS + NONE)
def test_settings_of_the_compiler__are_of_the_engine_and_of_the_cache_if_they_change_bits(name, monkeypatch):
    before = processor(), digest()
    monkeypatch.setattr(numba.config, name, "another")
    found = processor(), digest()  # of batches, and of compiled code
    assert [one != other for one, other in zip(before, found, strict=True)] == [name in BITS] * 2


def test_code_that_numpy_and_its_linear_algebra_run__is_of_the_engine(monkeypatch):
    asked = engine.__wrapped__
    before, loaded = asked("cpu"), provenance.threadpool_info()
    further = {"filepath": "/elsewhere/libtorch.so", "architecture": "Another"}
    monkeypatch.setattr(provenance, "threadpool_info", lambda: [*loaded, further])
    assert asked("cpu") == before
    monkeypatch.setattr(provenance, "threadpool_info", lambda: [{"filepath": np.__file__, "architecture": "Another"}])
    other = asked("cpu")
    monkeypatch.setattr(np.lib.introspect, "opt_func_info", dict)
    assert len({before, other, asked("cpu")}) == 3


def test_settings_of_the_compiler_in_the_current_folder__are_not_read(tmp_path):
    (tmp_path / ".numba_config.yaml").write_text("opt: '0'")
    said = "import simstudy.kernels, numba; numba.core.config.reload_config(); print(numba.config.OPT)"
    codes = said, "import numba; print(numba.config.OPT)"
    assert [python("-P", "-c", code, cwd=tmp_path).stdout for code in codes] == ["_OptLevel(3)\n", "_OptLevel(0)\n"]


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_commit__is_that_of_the_checkout_and_tells_of_changes(monkeypatch, tmp_path):
    git = ["git", "-C", tmp_path, "-c", "user.name=A", "-c", "user.email=a@b.c"]
    (tmp_path / "code.py").write_text("1\n")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "code"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    commit = provenance._commit.__wrapped__
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path.parent)
    assert commit() == ""  # as of an archive
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    assert len(commit()) == 12 and head.startswith(commit())
    (tmp_path / "code.py").write_text("2\n")
    assert commit() == head[:12] + "+"
