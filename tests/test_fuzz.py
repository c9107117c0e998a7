"""Hostile input of every public function, and what must come of it: one clear error, or a right answer.

Each check takes what its strategy draws.  Whether an input is valid is judged here anew, not by asking the package;
right answers come from plain NumPy.  Here are some hundreds of inputs; `make verify` takes ten thousand.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import write_design
from fuzzing.arrays import check_ensemble, check_geometry, ensembles
from fuzzing.designs import (
    RUNS,
    check_design,
    check_results,
    check_run,
    damaged,
    documents,
    edits,
)  # fmt: skip
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Check = Callable[[Any, Path], None]


def fuzz(strategy: st.SearchStrategy, check: Check, folder: Path, n_cases: int) -> int:
    """Check so many cases; return how many were checked."""
    n = 0

    # A case that hangs is a matter of the limit for whole tests: on a busy machine, time says nothing of a case.
    @settings(max_examples=n_cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def examine(case: Any) -> None:
        nonlocal n
        n += 1
        check(case, folder)

    examine()
    return n


FUZZ: dict[str, tuple[st.SearchStrategy, Check]] = {
    "nw_ensemble": (ensembles(), check_ensemble),
    "geometry": (ensembles(), check_geometry),
    "design entries": (documents(), check_design),
    "design bytes": (damaged(), check_design),
    "results": (edits(), check_results),
    "run": (RUNS, check_run),
}
"""Properties: what is drawn, and what is checked of it in a folder for scratch."""

CASES = {
    "nw_ensemble": (100, 4000), "geometry": (100, 2000), "design entries": (60, 2500), "design bytes": (100, 1500),
    "results": (60, 400), "layout": (30, 500), "run": (20, 100),
}  # fmt: skip
"""Few cases of each, and many."""


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """A folder with good files, which the fuzzing damages copies of."""
    folder = tmp_path_factory.mktemp("fuzz")
    write_design(folder).rename(folder / "good.toml")
    tiny.copied(folder / "out")
    (folder / "out" / "tiny" / "quick" / "results.nc").rename(folder / "results.nc")
    (folder / "file").write_text("in the way")
    return folder


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.rare)])
@pytest.mark.parametrize("name", FUZZ)
def test_hostile_input__gets_a_clear_error_or_a_right_answer(name, many, folder):
    wanted = CASES[name][many]
    least = 0.9 if many and name != "run" else 0.5  # Hypothesis stops early if cases run out
    assert fuzz(*FUZZ[name], folder, wanted) >= least * wanted
