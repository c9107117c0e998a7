"""The identity of stored batches follows what is computed, not how it is written; results say what made them."""

import os
import shutil
import subprocess

import numba
import numpy as np
import pytest
from builders import minimal_cell
from commands import python

from simstudy.execution import provenance
from simstudy.execution.provenance import PACKAGE, engine, identity_of
from simstudy.kernels.settings import processor


@pytest.mark.parametrize(
    ("name", "old", "new", "another"),
    [
        # What computes no batch.
        ("replicates/allocation.py", "GROWTH = 4", "GROWTH = 5", False),
        # What it computes.
        ("kernels/elementary.py", "1023)", "1022)", True),
        ("data/addresses.py", "INSTANCE = 7", "INSTANCE = 8", True),
        ("replicates/batch.py", "PIECE_BYTES = 16", "PIECE_BYTES = 15", True),
        ("attention/learners/trees.py", "2**32", "2**31", True),
        ("ensemble.py", "return ", "return 2 * ", True),  # a method of a user may call it
    ],
)
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
from simstudy.execution.provenance import engine, probed
x, u = np.arange(1, 20_001) / 1003.0, np.arange(1, 20_001) / 20_002
compiled = numba.vectorize(["f8(f8)"])(lambda t: np.exp(-t) + np.log(t) + np.sin(t) + np.cos(t) + math.exp2(t) + t**1.3)
functions = np.exp, np.log, np.sin, np.cos, np.expm1, np.tanh, special.gammaln, special.ndtr, compiled
values = [*(f(x) for f in functions), special.gammaincinv(x[::9], u[::9]), special.stdtrit(x[::9], u[::9])]
print(engine(), probed().hex(), hashlib.sha256(np.concatenate(values).tobytes()).hexdigest())
"""


def test_code_of_the_c_library_that_runs__is_of_the_engine():
    """Without fused products sin, exp, pow and what SciPy makes of them have other last bits, as had batches."""
    found = []
    for switched_off in ("-FMA,-AVX2", "-ERMS", ""):  # as another processor; the second for copies alone
        environment = os.environ | {"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={switched_off}"}
        ran = python("-c", PROBE, env=environment)
        found.append(ran.stdout.split())
    engines_of = {values: engine for engine, _, values in found}
    assert len({engine for engine, *_ in found}) == len({probe for _, probe, _ in found}) == len(engines_of)
    assert [engines_of[values] for _, _, values in found] == [engine for engine, *_ in found]
    if len(engines_of) == 1:
        pytest.skip("the C library here has one code for all processors, or no tunables")


BITS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "CPU_NAME", "CPU_FEATURES", "BOUNDSCHECK")
NONE = ("CUDA_LOG_SIZE", "NUMBA_NUM_THREADS", "CACHE_DIR", "DISABLE_PERFORMANCE_WARNINGS")


@pytest.mark.parametrize("name", BITS + NONE)
def test_settings_of_the_compiler__are_of_the_engine_if_they_change_bits(name, monkeypatch):
    before = processor()
    monkeypatch.setattr(numba.config, name, "another")
    assert (processor() != before) == (name in BITS)


def test_code_that_numpy_and_its_linear_algebra_run__is_of_the_engine(monkeypatch):
    """Last bits changed with OPENBLAS_CORETYPE while the engine stayed, and `verify` blamed the results."""
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
    found = [python("-P", "-c", code, cwd=tmp_path).stdout for code in codes]
    assert found == ["_OptLevel(3)\n", "_OptLevel(0)\n"]


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
