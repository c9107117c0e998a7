"""Which measures a cell can have: claims and figures of others would cost a run and have no estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.mistakes import Problem, any_of, nearest
from simstudy.design.references import PlannedGrid
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import NAMES

_OF_LEARNERS = ("direct_mse", "query_correlation", "discrepancy", *OCCASIONAL)
"""Statistics of replicates that only some ensembles have."""
_GAPS = ("decomposition_gap", "ambiguity_gap", "correlation_gap", "query_correlation_gap", "equivalent_heads")
"""Measures that exist only beside ``direct_mse``."""
_OF_PAIRS = {"correlation", "query_correlation", "mean_covariance", "linear_predictability", *_GAPS} - {"ambiguity_gap"}
"""Measures of two heads or more."""
_NEEDED = {
    "regret": 'it is that of ants: learner = "ant_colony"',
    "discrepancy": "it needs a reference computation; state reference",
    "own_measure": "it is what a function of your own gives; state measure_function",
}
"""What gives a measure to the ensembles that lack it."""


def possible_measures(cell: Cell) -> list[str]:
    """Return the names of the measures that a cell can have: numbers of its instance, or those of an ensemble."""
    if cell.instance is not None:
        return [*cell.statistics, "failure_rate"]
    lacking = {*NAMES, *_OF_LEARNERS} - {*cell.statistics}
    lacking |= set(_GAPS if "direct_mse" in lacking else ())
    return [name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in lacking]


def impossible_in_some(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    """Yield why some cells cannot have a measure."""
    without = [cell for cell in cells if measure not in possible_measures(cell)]
    if without:
        instance = without[0].instance
        whose = "an ensemble" if instance is None else f"instance = {instance.kind!r}"
        needed = _NEEDED.get(measure) if instance is None else None
        what = needed or f"use {any_of(_shared(cells))}"
        yield Problem(path, measure, f"does not exist in {len(without)} of {len(cells)} cells ({whose}); {what}")


def impossible_in_all(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    """Yield why none of the cells has a measure."""
    having = [cell for cell in cells if measure in possible_measures(cell)]
    if not having:
        yield from impossible_in_some(path, measure, cells)
    elif measure in _OF_PAIRS and all(cell.n_members == 1 for cell in having):
        yield Problem(path, measure, f"compares heads, of which each of these {len(having)} cells has one")


def _shared(cells: Sequence[Cell]) -> list[str]:
    """Names of the measures that all of these cells can have."""
    shared = set.intersection(*(set(possible_measures(cell)) for cell in cells))
    return [name for name in possible_measures(cells[0]) if name in shared]


def with_possible(problem: Problem, raw: Mapping[str, Any], grids: Mapping[str, PlannedGrid]) -> Problem:
    """Return a problem; that of a claim on no measure at all with the nearest and all that its cells have."""
    match problem.path.split("."):
        case ["claims", claim, "measure"] if isinstance(problem.value, str):
            grid = grids.get(str(raw["claims"][claim].get("grid")))
            if grid is None or not grid.cells:
                return problem
            known = _shared(grid.cells)
            near = f'did you mean "{found}"? ' if (found := nearest(problem.value, known)) else ""
            return Problem(problem.path, problem.value, f"{near}use {any_of(known)}")
    return problem
