"""Cells of a grid that hold the same numbers by construction: factors that do nothing, claims that compare nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from simstudy.design.mistakes import Problem
from simstudy.design.references import PlannedGrid, Reference
from simstudy.design.settings import TABLE_OF
from simstudy.design.settings.cell import Cell, level
from simstudy.design.settings.idle import idle_settings
from simstudy.design.settings.records import Choice

OF_WEIGHTS = ("squared_bias", "ensemble_variance", "mse", "equivalent_heads")
"""Measures that the weights of heads enter; all others are those of the heads, whatever combines them."""


def idle_factors(grid: PlannedGrid) -> Iterator[Problem]:
    """Yield the factors of which no level changes any number of any cell."""
    numbers = [_of_ensemble(cell) for cell in grid.cells]
    for factor in grid.factors or () if len(set(numbers)) < len(numbers) else ():
        strata = grid.strata((factor,), [*range(len(numbers))])
        if len(strata[0]) > 1 and all(len({numbers[cell] for cell in stratum}) == 1 for stratum in strata):
            levels = tuple(level(grid.cells[cell].coordinates, factor) for cell in strata[0])
            why = _reasons(*(grid.cells[cell] for cell in strata[0][:2]))
            yield Problem(
                f"grids.{grid.name}.factors.{factor}", levels, f"decides no number of any cell ({why}); remove it"
            )


def compares_equals(reference: Reference) -> Iterator[Problem]:
    """Yield why an entry compares what cannot differ."""
    measure, grid = getattr(reference.entry, "measure", None), reference.grid
    if measure is None:
        return
    numbers_of = _of_ensemble if measure in OF_WEIGHTS else _of_heads
    for group in reference.compared:
        seen: dict[Hashable, Cell] = {}
        for cell in (grid.cells[number] for number in group):
            first = seen.setdefault(numbers_of(cell), cell)
            if first is not cell:
                remedy = f"compares cells that hold the same numbers: {_named(grid, first, cell)}; leave such cells out"
                yield Problem(f"{reference.path}.measure", measure, remedy)
                return


def _of_heads(cell: Cell) -> Hashable:
    return cell.identity(engine="")


def _of_ensemble(cell: Cell) -> Hashable:
    return cell.identity(engine=""), cell.weights or cell.estimator.combination.model_dump_json()


def _named(grid: PlannedGrid, first: Cell, second: Cell) -> str:
    """Two cells by the factors in which they differ, those that they share, and why that makes no difference."""
    here, there = ({n: level(cell.coordinates, n) for n in grid.factors or ()} for cell in (first, second))
    apart = [name for name in here if here[name] != there[name]]
    one, other = (", ".join(f"{name} = {levels[name]}" for name in apart) for levels in (here, there))
    same = ", ".join(f"{name} = {here[name]}" for name in here if name not in apart)
    return f"{one} and {other}{f' at {same}' if same else ''} ({_reasons(first, second)})"


def _reasons(first: Cell, second: Cell) -> str:
    """Why the settings in which two cells differ decide nothing."""
    idle = idle_settings(first) | idle_settings(second)
    differing = [name for name in TABLE_OF if first.coordinates[name] != second.coordinates[name]]
    reasons = {f"{name}: {idle[name]}": None for name in differing if name in idle}
    for name in differing:
        for choice in (getattr(getattr(cell, TABLE_OF[name]), name) for cell in (first, second)):
            if isinstance(choice, Choice):
                reasons |= {f"{name}.{parameter}: {why}": None for parameter, why in choice.idle.items()}
    return "; ".join(reasons) or f"{', '.join(differing)}: does not enter"
