"""Hostile input of every public function, and what must come of it: one clear error, or a right answer.

Each check takes what its strategy draws.  Whether an input is valid is judged here anew, not by asking the package;
right answers come from plain NumPy.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzzing.arrays import check_ensemble, check_geometry, ensembles
from fuzzing.designs import check_design, damaged, documents
from fuzzing.results import RUNS, changes, check_layout, check_results, check_run, edits

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
    "layout": (changes(), check_layout),
    "run": (RUNS, check_run),
}
"""Properties: what is drawn, and what is checked of it in a folder for scratch."""
