"""Hostile input of every public function, and what must come of it: one clear error, or a right answer.

Each check takes what its strategy draws.  Whether an input is valid is judged here anew, not by asking the package;
right answers come from plain NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzzing.arrays import check_ensemble, check_geometry, ensembles
from fuzzing.designs import check_design, damaged, documents
from fuzzing.results import RUNS, changes, check_layout, check_results, check_run, edits


class Fuzz(NamedTuple):
    """One property: what is drawn, and what is checked of it in a folder for scratch."""

    strategy: st.SearchStrategy
    check: Callable[[Any, Path], None]


def fuzz(subject: Fuzz, folder: Path, n_cases: int) -> int:
    """Check so many cases; return how many were checked."""
    n = 0

    # A case that hangs is a matter of the limit for whole tests: on a busy machine, time says nothing of a case.
    @settings(max_examples=n_cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(subject.strategy)
    def examine(case: Any) -> None:
        nonlocal n
        n += 1
        subject.check(case, folder)

    examine()
    return n


FUZZ: dict[str, Fuzz] = {
    "nw_ensemble": Fuzz(ensembles(), check_ensemble),
    "geometry": Fuzz(ensembles(), check_geometry),
    "design entries": Fuzz(documents(), check_design),
    "design bytes": Fuzz(damaged(), check_design),
    "results": Fuzz(edits(), check_results),
    "layout": Fuzz(changes(), check_layout),
    "run": Fuzz(RUNS, check_run),
}
