"""The cells of a design: the factors of every grid crossed, and each cell checked with the files that it names."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simstudy.design.contents import read_contents
from simstudy.design.document import MAX_CELLS, Document, Grid, Precision
from simstudy.design.feasibility import impossibilities, too_many_batches
from simstudy.design.mistakes import Problem, from_validation
from simstudy.design.own_code import texts_of
from simstudy.design.references import PlannedGrid
from simstudy.design.settings.cell import TABLE_OF, TABLES, Cell
from simstudy.design.settings.known_means import MIN_THIRD_ORDER, have_closed_forms
from simstudy.design.settings.levels import by_levels, label, level, setting_of
from simstudy.design.settings.records import Impossibility

Reader = Callable[[Cell], tuple[Cell, list[Impossibility]]]


def plan_grids(
    raw: dict[str, Any], document: Document, folder: Path, trust: Iterable[str | Path], earlier: list[Problem]
) -> tuple[dict[str, PlannedGrid], list[Problem]]:
    """Plan every grid that the file writes, also faulty ones; what one lacks by an earlier problem is no new one."""
    read: Reader = functools.partial(read_contents, folder=folder, trusted=texts_of(trust))
    cells: dict[str, list[Cell]] = {}
    precision: dict[str, Precision] = {}
    problems: list[Problem] = []
    total = 0
    for name, grid in document.grids.items():
        size = _size(grid)
        if total + size > MAX_CELLS:
            remedy = f"brings the design to {total + size} cells, more than {MAX_CELLS}; use fewer values"
            problems.append(Problem(f"grids.{name}.factors", size, remedy))
            continue
        total += size
        stripped = any(problem.within(f"grids.{name}") for problem in earlier)
        try:
            precision[name] = Precision.model_validate(document.precision.model_dump() | grid.precision)
        except ValidationError as error:
            precision[name] = document.precision
            problems += from_validation(error, grid.precision, Precision, prefix=f"grids.{name}.precision")
        crossed = []
        for cell, found in _crossed(document, name, grid, precision[name], read):
            problems += [problem for problem in found if not (stripped and problem.value is None)]
            crossed += [] if cell is None else [cell]
        cells[name] = _of_one_estimator(crossed, precision[name])
    problems += _idle_in_tables(document, cells)
    problems = list({(problem.path, problem.remedy): problem for problem in reversed(problems)}.values())[::-1]
    faults = [*earlier, *problems]
    grids = {name: _planned(name, raw["grids"][name], cells, precision, faults) for name in raw["grids"]}
    return grids, [*problems, *(problem for grid in grids.values() for problem in _equal_cells(grid))]


def _size(grid: Grid) -> int:
    return math.prod(map(len, grid.factors.values()))


def _planned(
    name: str, grid: Any, cells: dict[str, list[Cell]], precision: dict[str, Precision], problems: list[Problem]
) -> PlannedGrid:
    stated = grid if isinstance(grid, dict) else {}
    known = isinstance(grid, dict) and grid.keys() <= Grid.model_fields.keys()
    factors = stated.get("factors", {}) if known else None
    # A wrong name may stand for any factor, so that no claim names an unknown one.
    names = tuple(factors) if isinstance(factors, dict) else ()
    return PlannedGrid(
        name,
        factors=names if known and all(setting_of(factor) in TABLE_OF for factor in names) else None,
        cells=cells.get(name, []),
        complete=not any(problem.within(place) for problem in problems for place in (*TABLES, f"grids.{name}")),
        exact=bool(stated.get("exact")),
        by_query=bool(stated.get("by_query")),
        precision=precision.get(name, Precision()),
    )


def _of_one_estimator(cells: list[Cell], precision: Precision) -> list[Cell]:
    """Choose the control of a grid that states none: plain if one of its cells, all paired, has no closed forms."""
    control = "third_order" if precision.min_replicates >= MIN_THIRD_ORDER else "expansion"
    if not all(cell.controlled and have_closed_forms(cell) and not cell.population for cell in cells):
        control = "none"
    chosen = [cell.simulation.model_copy(update={"control": control}) for cell in cells]
    return [
        cell if "control" in cell.simulation.model_fields_set else cell.model_copy(update={"simulation": simulation})
        for cell, simulation in zip(cells, chosen, strict=True)
    ]


def _crossed(
    document: Document, name: str, grid: Grid, precision: Precision, read: Reader
) -> Iterator[tuple[Cell | None, list[Problem]]]:
    """Yield each cell of a grid, the last factor running fastest, or None; with the problems found."""
    base = {table: dict(getattr(document, table)) for table in TABLES}
    settings = {key: value for key, value in grid.settings.items() if setting_of(key) in TABLE_OF}
    factors = {key: values for key, values in grid.factors.items() if setting_of(key) in TABLE_OF}
    for key, value in settings.items():
        _assign(base, key, value)
    for indices in itertools.product(*(range(len(values)) for values in factors.values())):
        levels = dict(zip(factors, indices, strict=True))
        tables = {t: {k: v for k, v in c.items() if k in TABLES[t].model_fields} for t, c in base.items()}
        for factor, index in levels.items():
            _assign(tables, factor, factors[factor][index])
        place = functools.partial(_place, name, grid, levels)
        try:
            cell, found = read(Cell.model_validate(tables))
        except ValidationError as error:
            yield None, from_validation(error, tables, Cell, place=place)
            continue
        found = found or [*impossibilities(cell), *too_many_batches(cell, precision.max_replicates)]
        stated = {setting: getattr(getattr(cell, TABLE_OF[setting]), setting) for setting, _ in found}
        shown = {setting: None if value is None else label(value) for setting, value in stated.items()}
        problems = [Problem(place(setting), shown[setting], remedy) for setting, remedy in found]
        problems += _idle_in_grid(cell, f"grids.{name}", {"settings": settings, "factors": factors})
        # Where a factor means nothing, its levels would make equal cells: no further problem.
        split = all(setting_of(factor) in cell.meaningful for factor in factors)
        yield (cell if split else None), problems


def _place(name: str, grid: Grid, levels: dict[str, int], setting: str) -> str:
    """Where the file states a setting of a cell; empty for a parameter that it does not state apart."""
    if setting in levels:
        return f"grids.{name}.factors.{setting}[{levels[setting]}]"
    if setting in grid.settings:
        return f"grids.{name}.settings.{setting}"
    return "" if "." in setting else f"{TABLE_OF[setting]}.{setting}"


def _assign(tables: dict[str, dict[str, Any]], factor: str, value: Any) -> None:
    """Set a setting, or one parameter of it, in raw tables, without changing the settings themselves."""
    name, _, parameter = factor.partition(".")
    table = tables[TABLE_OF[name]]
    before = table.get(name)
    table[name] = {**(before if isinstance(before, dict) else {}), parameter: value} if parameter else value


def _idle_in_grid(cell: Cell, path: str, sections: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    if cell.instance is None:
        return
    for section, content in sections.items():
        for name in content:
            if setting_of(name) not in cell.meaningful:
                knows = ", ".join(sorted(cell.meaningful))
                remedy = f"is not used by instance = {cell.instance.kind!r}, which uses {knows}; remove it"
                yield Problem(f"{path}.{section}.{name}", content[name], remedy)


def _idle_in_tables(document: Document, cells: dict[str, list[Cell]]) -> Iterator[Problem]:
    planned = [cell for of_grid in cells.values() for cell in of_grid]
    known = frozenset[str]().union(*(cell.meaningful for cell in planned))
    for table in TABLES if len(planned) == sum(map(_size, document.grids.values())) else ():
        for setting, value in getattr(document, table).items():
            if setting in TABLE_OF.keys() - known:
                yield Problem(f"{table}.{setting}", value, "is used by none of the instances; remove it")


def _equal_cells(grid: PlannedGrid) -> Iterator[Problem]:
    if grid.factors is None:
        return
    factors = [factor for factor in grid.factors if setting_of(factor) in TABLE_OF]
    known = set[str]().union(*(cell.coordinates for cell in grid.cells))
    for factor in factors if grid.cells else ():
        if factor not in known:
            remedy = f"is the kind or the label of a choice; write {setting_of(factor)} = […], of choices in whole"
            yield Problem(f"grids.{grid.name}.factors.{factor}", None, remedy)
            return
    coordinates = [cell.coordinates for cell in grid.cells]
    strata = by_levels(coordinates, factors, range(len(coordinates)))
    twice = next((stratum[0] for stratum in strata if len(stratum) > 1), None)
    if twice is not None:
        levels = tuple(level(coordinates[twice], factor) for factor in factors)
        remedy = "two cells have these values; remove one, or label it otherwise"
        yield Problem(f"grids.{grid.name}.factors", levels, remedy)
