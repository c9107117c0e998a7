"""What claims and figures name must exist: grids, factors, settings, and cells to compare."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simstudy.design.claims import (
    BaseClaim,
    Crossing,
    Equals,
    LargerThan,
    Monotone,
    Optimum,
    OptimumClaim,
    OptimumSlope,
    OrderingClaim,
    Printed,
    Slope,
)
from simstudy.design.figures import BaseFigure, LawFigure, OptimumFigure
from simstudy.design.mistakes import Problem
from simstudy.design.settings import TABLE_OF
from simstudy.design.settings.cell import Coordinates, by_levels, level, selected, setting_of

Entry = BaseClaim | BaseFigure

SELECTABLE = (*TABLE_OF, "bandwidth_rule")
"""Names that a selection may use: the coordinates of a cell."""


@dataclass(frozen=True)
class PlannedGrid:
    """What is known of a grid, be it faulty.

    Attributes
    ----------
    factors
        Names of its factors as written; None if they cannot be told.
    coordinates
        Coordinates of its possible cells.
    complete
        Whether these are all cells that it is meant to have: otherwise none is missed.
    exact
        Whether it asks for exact theory.
    """

    factors: tuple[str, ...] | None
    coordinates: list[Coordinates]
    complete: bool
    exact: bool


def reference_problems(
    grids: Mapping[str, PlannedGrid], claims: Mapping[str, BaseClaim], figures: Mapping[str, BaseFigure]
) -> Iterator[Problem]:
    """Yield what claims and figures name but the design does not have, and cells that cannot be told apart."""
    for name, grid in grids.items():
        yield from _equal_cells(name, grid)
    entries: list[tuple[str, Entry]] = [(f"claims.{name}", claim) for name, claim in claims.items()]
    entries += [(f"figures.{name}", figure) for name, figure in figures.items()]
    for path, entry in entries:
        yield from _entry_problems(path, entry, grids)


def _equal_cells(name: str, grid: PlannedGrid) -> Iterator[Problem]:
    factors = [factor for factor in grid.factors or () if setting_of(factor) in TABLE_OF]
    known = set[str]().union(*grid.coordinates)
    for factor in factors if grid.coordinates else ():
        if factor not in known:
            remedy = f"is the kind or the label of a choice; write {setting_of(factor)} = […], of choices in whole"
            yield Problem(f"grids.{name}.factors.{factor}", None, remedy)
            return
    strata = by_levels(grid.coordinates, factors, range(len(grid.coordinates)))
    twice = next((stratum[0] for stratum in strata if len(stratum) > 1), None)
    if twice is not None:
        levels = tuple(level(grid.coordinates[twice], factor) for factor in factors)
        yield Problem(f"grids.{name}.factors", levels, "two cells have these values; remove one, or label it otherwise")


def _entry_problems(path: str, entry: Entry, grids: Mapping[str, PlannedGrid]) -> Iterator[Problem]:
    if isinstance(entry, BaseClaim) and (entry.measure == "hdi") != (entry.index is not None):
        yield Problem(f"{path}.index", entry.index, 'state index for measure = "hdi", and only then')
    if isinstance(entry, (Equals, LargerThan, Printed)) and entry.compared == "ratio" and entry.versus is None:
        yield Problem(f"{path}.compared", "ratio", "state versus, the settings of the cell to compare with")
    if isinstance(entry, (Crossing, Optimum, OptimumSlope)) and (entry.value is None) == (entry.source is None):
        yield Problem(f"{path}.value", entry.value, "state either value or source, the theory that gives it")
    if entry.grid not in grids:
        yield Problem.unknown(f"{path}.grid", entry.grid, grids, what="grid")
        return
    if isinstance(entry, LawFigure):
        yield from _law_problems(path, entry, grids)
    grid = grids[entry.grid]
    if getattr(entry, "source", None) == "exact" and not grid.exact:
        yield Problem(f"{path}.source", "exact", f"set exact = true in [grids.{entry.grid}], which does not ask for it")
    missing = list(_factor_problems(path, entry, grid)) + list(_setting_problems(path, entry, grid))
    yield from missing
    if grid.complete and not missing:
        yield from _cell_problems(path, entry, grid)


def _law_problems(path: str, figure: LawFigure, grids: Mapping[str, PlannedGrid]) -> Iterator[Problem]:
    """A law is tested at several sizes of ensembles, in every grid."""
    for name in (figure.grid, *figure.beside):
        if name not in grids:
            yield Problem.unknown(f"{path}.beside", name, grids, what="grid")
        elif "n_heads" not in (grids[name].factors or ("n_heads",)):
            yield Problem(f"{path}.beside", name, "needs grids with n_heads among their factors")


def _factor_problems(path: str, entry: Entry, grid: PlannedGrid) -> Iterator[Problem]:
    for field in ("x", "hue", "panel", "by", "along", "over", "tune") if grid.factors is not None else ():
        stated = getattr(entry, field, None) or ()
        for name in (stated,) if isinstance(stated, str) else stated:
            if name not in (grid.factors or ()):
                yield Problem.unknown(f"{path}.{field}", name, grid.factors or (), what="factor")


def _setting_problems(path: str, entry: Entry, grid: PlannedGrid) -> Iterator[Problem]:
    for field in ("where", "versus"):
        selection = getattr(entry, field, None) or {}
        unknown = [key for key in selection if key not in (*SELECTABLE, *(grid.factors or ()))]
        for key in unknown:
            yield Problem.unknown(f"{path}.{field}.{key}", selection[key], SELECTABLE, what="setting")
        outside = grid.factors is not None and not set(selection) <= set(grid.factors)
        if field == "versus" and outside and not unknown:
            factors = ", ".join(grid.factors or ())
            yield Problem(f"{path}.versus", selection, f"may name factors of the grid only: {factors}")


def _cell_problems(path: str, entry: Entry, grid: PlannedGrid) -> Iterator[Problem]:
    """Problems of the cells that an entry selects; all that it names exists."""
    chosen = [coordinates for coordinates in grid.coordinates if selected(coordinates, entry.where)]
    if not chosen:
        yield Problem(f"{path}.where", entry.where, _nothing_selected(entry.where, grid))
    versus = getattr(entry, "versus", None)
    if versus is not None and not any(selected(c, {**entry.where, **versus}) for c in grid.coordinates):
        yield Problem(f"{path}.versus", versus, _nothing_selected(versus, grid))
    elif versus is not None and not _has_pair(chosen, versus, grid):
        remedy = "compares every selected cell with itself, or with none; select others in where"
        yield Problem(f"{path}.versus", versus, remedy)
    if isinstance(entry, OrderingClaim) and entry.over is not None:
        strata = by_levels(chosen, [name for name in (entry.by, entry.over) if name], range(len(chosen)))
        if any(len(stratum) > 1 for stratum in strata):
            yield Problem(f"{path}.over", entry.over, "several cells have one level; select in where, or state by")
    x = getattr(entry, "x", None)
    if chosen and x is not None:
        yield from _axis_problems(path, entry, x, chosen, grid.factors or ())
    if chosen and isinstance(entry, OptimumClaim):
        yield from _optimum_problems(path, entry, ("x", "along"), chosen)
    if chosen and isinstance(entry, OptimumFigure):
        yield from _optimum_problems(path, entry, ("over",), chosen)


def _nothing_selected(selection: dict[str, Any], grid: PlannedGrid) -> str:
    """Say which levels exist of what a selection names, as they must be written."""
    unknown = {
        name: dict.fromkeys(level(coordinates, name) for coordinates in grid.coordinates)
        for name, value in selection.items()
        if not any(selected(coordinates, {name: value}) for coordinates in grid.coordinates)
    }
    if not unknown:
        return "selects no cell of the grid; each of these levels exists, but no cell has all of them"
    written = {name: (json.dumps(each, ensure_ascii=False) for each in levels) for name, levels in unknown.items()}
    has = ", ".join(f"{name} = {' or '.join(levels)}" for name, levels in written.items())
    return f"selects no cell of the grid; it has {has}"


def _optimum_problems(path: str, entry: Entry, fields: tuple[str, ...], chosen: list[Coordinates]) -> Iterator[Problem]:
    """An optimum is sought among three levels or more, and followed along as many."""
    for field in fields:
        name = getattr(entry, field, None)
        levels = {coordinates.get(name) for coordinates in chosen} if name else None
        if levels is None:
            continue
        if not all(isinstance(value, (int, float)) and value > 0 for value in levels) or len(levels) < 3:
            yield Problem(f"{path}.{field}", name, "needs three or more different values, all of them positive numbers")


def _has_pair(chosen: list[Coordinates], versus: dict[str, Any], grid: PlannedGrid) -> bool:
    """Whether some selected cell has another one that differs in the factors of ``versus`` alone."""
    for coordinates in chosen:
        wanted = {name: level(coordinates, name) for name in grid.factors or ()} | versus
        if not selected(coordinates, wanted) and any(selected(other, wanted) for other in grid.coordinates):
            return True
    return False


def _axis_problems(
    path: str, entry: Entry, x: str, chosen: list[Coordinates], factors: tuple[str, ...]
) -> Iterator[Problem]:
    values: list[Any] = [coordinates.get(x) for coordinates in chosen]
    if not all(isinstance(value, (int, float)) for value in values):
        yield Problem(f"{path}.x", x, "is not a number in every cell; use a numeric factor")
        return
    logarithmic = getattr(entry, "scale", "linear") != "linear" or getattr(entry, "x_scale", "linear") == "log"
    logarithmic = logarithmic or isinstance(entry, Crossing)
    if logarithmic and min(values) <= 0:
        yield Problem(f"{path}.x", x, f"is {min(values):g} in a cell and has no logarithm; use a linear scale")
    if isinstance(entry, Crossing):
        yield from _crossing_problems(path, entry, values)
    strata = by_levels(chosen, (factor for factor in factors if factor != x), range(len(chosen)))
    lines = ([values[cell] for cell in stratum] for stratum in strata)
    flat = next((line for line in lines if len(set(line)) < max(2, len(line))), None)
    if flat is not None and isinstance(entry, (Monotone, Slope, Crossing)):
        found = ", ".join(f"{value:g}" for value in sorted(flat))
        yield Problem(f"{path}.x", x, f"needs two or more different values, other factors fixed; a line has {found}")


def _crossing_problems(path: str, claim: Crossing, values: list[float]) -> Iterator[Problem]:
    """A crossing beyond the levels cannot be told from one at their end."""
    low, high = min(values), max(values)
    if claim.value is not None and not low < claim.value / claim.ratio < claim.value * claim.ratio < high:
        yield Problem(f"{path}.value", claim.value, f"must lie with its ratio between {low:g} and {high:g}")
