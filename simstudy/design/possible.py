"""Which measures a cell can have: claims and figures of others would cost a run and have no estimate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from simstudy.design.document import Document, PlannedCell
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.mistakes import Problem, any_of, nearest
from simstudy.design.settings.cell import Cell, selected
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


def possible_measures(cell: Cell) -> tuple[str, ...]:
    """Return the names of the measures that a cell can have: numbers of its instance, or those of an ensemble."""
    return _possible(cell.instance is None, cell.statistics)


@lru_cache(maxsize=64)
def _possible(is_ensemble: bool, statistics: tuple[str, ...]) -> tuple[str, ...]:
    if not is_ensemble:
        return (*statistics, "failure_rate")
    lacking = {*NAMES, *(name for name in _OF_LEARNERS if name not in statistics)}
    lacking |= set(_GAPS if "direct_mse" in lacking else ())
    return tuple(name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in lacking)


def impossible(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    """Yield why some of the cells that a claim speaks of cannot have its measure."""
    without = [cell for cell in cells if measure not in possible_measures(cell)]
    if without:
        whose = "an ensemble" if without[0].instance is None else f"instance = {without[0].instance.kind!r}"
        needed = _NEEDED.get(measure, "") if without[0].instance is None else ""
        what = needed or f"use {any_of(_shared(cells))}"
        yield Problem(path, measure, f"does not exist in {len(without)} of {len(cells)} cells ({whose}); {what}")


def absent(document: Document, planned: Sequence[PlannedCell]) -> Iterator[Problem]:
    """Yield why none of the cells that a figure draws, or an error is wanted of, has the measure."""
    for name, figure in document.figures.items():
        drawn = [each.cell for each in planned if each.grid == figure.grid]
        drawn = [cell for cell in drawn if selected(cell.coordinates, figure.where)]
        yield from _in_none(f"figures.{name}.y", figure.y, drawn)
    wanted = defaultdict[tuple[str, str], list[Cell]](list)
    for each in planned:
        own = document.grids[each.grid].precision
        for kind in ("relative_mcse", "absolute_mcse"):
            path = f"grids.{each.grid}.precision.{kind}" if kind in own else f"precision.{kind}"
            for measure in getattr(each.precision, kind):
                wanted[path, measure].append(each.cell)
    every = [each.cell for each in planned]
    for (path, measure), cells in wanted.items():
        # What stands for all grids is right if one of them can have it, even one that states errors of its own: under
        # another profile it may not.
        yield from _in_none(path, measure, every if path.startswith("precision.") else cells)


def _in_none(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    having = [cell for cell in cells if measure in possible_measures(cell)]
    if not having:
        yield from impossible(path, measure, cells)
    elif measure in _OF_PAIRS and all(cell.n_members == 1 for cell in having):
        yield Problem(path, measure, f"compares heads, of which each of these {len(having)} cells has one")


def unknown_measures(problems: list[Problem], raw: dict[str, Any], planned: Sequence[PlannedCell]) -> list[Problem]:
    """Return the problems, those of claims on no measure at all with the nearest and all that their cells have."""
    return [_of_cells(problem, raw, planned) for problem in problems]


def _of_cells(problem: Problem, raw: dict[str, Any], planned: Sequence[PlannedCell]) -> Problem:
    table, _, entry = problem.path.partition(".")
    name, _, field = entry.rpartition(".")
    if (table, field) != ("claims", "measure") or not isinstance(problem.value, str):
        return problem
    cells = [each.cell for each in planned if each.grid == raw["claims"][name].get("grid")]
    if not cells:
        return problem
    known = _shared(cells)
    near = f'did you mean "{found}"? ' if (found := nearest(problem.value, known)) else ""
    return Problem(problem.path, problem.value, f"{near}use {any_of(known)}")


def _shared(cells: Sequence[Cell]) -> list[str]:
    """Names of the measures that all of these cells can have."""
    shared = set.intersection(*(set(possible_measures(cell)) for cell in cells))
    return [name for name in possible_measures(cells[0]) if name in shared]
