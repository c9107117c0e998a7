"""The identity of stored batches follows what is computed, not how it is written; results say what made them."""

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from builders import minimal_cell

from simstudy.execution import provenance
from simstudy.execution import provenance as engines
from simstudy.execution.provenance import PACKAGE, code_of, engine
from simstudy.kernels.settings import processor

CELLS = {
    "softmax heads": minimal_cell(),
    "forest": minimal_cell(learner="random_forest", noise_treatment="drawn"),
}


@pytest.fixture(scope="module")
def known() -> dict[bytes, str]:
    """What sources compute, by their bytes: to read all of them again for each edit of one takes long."""
    return {}


@pytest.fixture
def changed(tmp_path, monkeypatch, known):
    """Return what edits one source of a copy of the package, and says for which cells this makes another engine."""
    copies = iter(range(9))

    def read_once(path):
        content = path.read_bytes()
        if content not in known:
            known[content] = code_of.__wrapped__(path)
        return known[content]

    monkeypatch.setattr(engines, "code_of", read_once)

    def edit(name, old, new):
        package = tmp_path / str(next(copies)) / PACKAGE.name
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        before = identities(package)
        path = package / name
        assert old in path.read_text(encoding="utf-8")
        path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
        engines._engine.cache_clear()
        return {cell for cell, identity in identities(package).items() if identity != before[cell]}

    def identities(package):
        monkeypatch.setattr(engines, "PACKAGE", package)
        return {name: cell.identity(engine(cells=[cell])) for name, cell in CELLS.items()}

    yield edit
    engines._engine.cache_clear()


@pytest.mark.parametrize(
    ("name", "old", "new", "cells"),
    [
        # How a source is written.
        ("kernels/projection.py", '"""', '"""Other words. ', set()),
        ("data/geometry.py", '    """', '    """Other words. ', set()),
        ("kernels/few_queries.py", "\nfrom __future__", "\n# A remark.\n\n\nfrom __future__", set()),
        ("replicates/moments.py", "sum(axis=1)", "sum(\n    axis=1  # replicates\n)", set()),
        ("data/addresses.py", "INSTANCE = 7", "INSTANCE = 0x7", set()),
        # What computes no batch.
        ("replicates/stopping.py", "GROWTH = 4", "GROWTH = 5", set()),
        # What it computes.
        ("kernels/elementary.py", "1023)", "1022)", set(CELLS)),
        ("kernels/philox.py", "0xD2511F53", "0xD2511F55", set(CELLS)),
        ("replicates/batch.py", "PIECE_BYTES = 16", "PIECE_BYTES = 15", set(CELLS)),
        ("attention/members.py", "shape[1] > 2", "shape[1] > 3", set(CELLS)),
        ("attention/learners/random_forest.py", "2**32", "2**31", {"forest"}),
        ("attention/learners/trained.py", "== 0.0", "== 1.0", set()),
    ],
)
def test_what_a_source_computes__discards_the_batches_that_it_computed(changed, name, old, new, cells):
    assert changed(name, old, new) == cells


def test_cells_together__have_the_engine_of_all_their_sources():
    heads, forest = (engine(cells=[CELLS[name]]) for name in ("softmax heads", "forest"))
    assert heads == engine() != forest
    assert engine(cells=[CELLS["forest"], CELLS["softmax heads"]]) == forest


def test_threads_that_ask_at_once__wait_for_one_of_them(monkeypatch):
    """Where several parse at once, Python 3.11 loses count of its recursion, and tasks failed on workers of threads."""
    parsing, most = [0], [0]

    def watched(path):
        parsing[0] += 1
        most[0] = max(most[0], parsing[0])
        time.sleep(1e-4)
        parsing[0] -= 1
        return path.name

    engines._engine.cache_clear()
    monkeypatch.setattr(engines, "code_of", watched)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(lambda _: engine(cells=[CELLS["softmax heads"]]), range(8)))
    finally:
        engines._engine.cache_clear()
    assert len(found) == 1 and most == [1]


@pytest.mark.parametrize("name", ["OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "CPU_NAME", "CPU_FEATURES", "BOUNDSCHECK"])
def test_settings_of_the_compiler__are_of_the_engine(name, monkeypatch):
    """Each changes bits."""
    before = processor()
    monkeypatch.setattr(numba.config, name, "another")
    assert processor() != before


def test_code_that_numpy_and_its_linear_algebra_run__is_of_the_engine(monkeypatch):
    """Last bits changed with OPENBLAS_CORETYPE while the engine stayed, and `verify` blamed the results."""
    asked = engines._engine.__wrapped__
    before, loaded = asked("cpu", frozenset()), engines.threadpool_info()
    further = {"filepath": "/elsewhere/libtorch.so", "architecture": "Another"}
    monkeypatch.setattr(engines, "threadpool_info", lambda: [*loaded, further])
    assert asked("cpu", frozenset()) == before
    monkeypatch.setattr(engines, "threadpool_info", lambda: [{"filepath": np.__file__, "architecture": "Another"}])
    other = asked("cpu", frozenset())
    monkeypatch.setattr(np.lib.introspect, "opt_func_info", dict)
    assert len({before, other, asked("cpu", frozenset())}) == 3


def test_settings_that_change_no_code__are_not(monkeypatch):
    before = processor()
    for name in ("CUDA_LOG_SIZE", "NUMBA_NUM_THREADS", "CACHE_DIR", "DISABLE_PERFORMANCE_WARNINGS"):
        monkeypatch.setattr(numba.config, name, "another")
    assert processor() == before


def test_settings_of_the_compiler_in_the_current_folder__are_not_read(tmp_path):
    (tmp_path / ".numba_config.yaml").write_text("opt: '0'")
    said = "import simstudy.kernels, numba; numba.core.config.reload_config(); print(numba.config.OPT)"
    found = [subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True).stdout
             for code in (said, "import numba; print(numba.config.OPT)")]  # fmt: skip
    assert found == ["_OptLevel(3)\n", "_OptLevel(0)\n"]


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_commit__is_that_of_the_checkout_and_tells_of_changes(monkeypatch, tmp_path):
    git = ["git", "-C", tmp_path, "-c", "user.name=A", "-c", "user.email=a@b.c"]
    (tmp_path / "code.py").write_text("1\n")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "code"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    commit = provenance._commit.__wrapped__
    assert len(commit()) == 12 and head.startswith(commit())
    (tmp_path / "code.py").write_text("2\n")
    assert commit() == head[:12] + "+"


def test_commit_of_an_archive__is_empty(monkeypatch, tmp_path):
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    assert provenance._commit.__wrapped__() == ""
