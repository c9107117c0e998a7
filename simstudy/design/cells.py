"""The cells of a grid: settings applied, settings drawn from its domain, factors crossed, each cell validated once."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simstudy.design.contents import read_contents
from simstudy.design.document import MAX_CELLS, Document, Grid
from simstudy.design.domain import Domain, drawn_cells
from simstudy.design.feasibility import impossibilities
from simstudy.design.measures import RESERVED
from simstudy.design.mistakes import DesignError, Problem, Steps, mistake, path_of, validated
from simstudy.design.own_code import OwnFiles, try_functions
from simstudy.design.settings.cell import OF_FUNCTIONS, TABLE_OF, TABLES, Cell
from simstudy.design.settings.functions import Functions
from simstudy.design.settings.records import Impossible
from simstudy.design.settings.tables import Table


def cells_of(document: Document, name: str, grid: Grid, files: OwnFiles, drawn_from: Any) -> list[Cell]:
    """Return the cells of a grid, the last factor running fastest; `DesignError` tells what is wrong with the first."""
    of_functions = "method" in {*document.functions, *grid.settings, *grid.factors}
    unknown = [*_unknown_settings(name, grid, of_functions)]
    unknown += [
        Problem(f"grids.{name}.drop[{number}]", each, f"state levels of factors: {', '.join(grid.factors)}")
        for number, each in enumerate(grid.drop)
        if not each or each.keys() - grid.factors.keys()
    ]
    if unknown:
        raise DesignError("", unknown)

    def cross(drawn: dict[str, Any]) -> list[Cell]:
        each = grid.model_copy(update={"settings": grid.settings | drawn})
        return _crossed(document, name, each, files, of_functions)

    if not grid.domain:
        return _with_one_control(cross({}))
    if twice := sorted(grid.domain.keys() & (grid.factors.keys() | grid.settings.keys())):
        raise mistake(f"grids.{name}.domain.{twice[0]}", None, "also a factor or setting of the grid; state one")
    fresh = ("seed",) if of_functions or "head_seed" in grid.all_factors else ("seed", "head_seed")
    seed = grid.settings.get("seed", document.simulation.get("seed", 0))
    domain = Domain(laws=grid.domain, cells=grid.cells)
    return _with_one_control(drawn_cells(name, domain, fresh, [seed, drawn_from], cross))


def require_few_cells(document: Document) -> None:
    """Refuse a design of too many cells, before any is made."""
    sizes = {
        name: math.prod(map(len, grid.factors.values())) * (grid.cells if grid.domain else 1)
        for name, grid in document.grids.items()
    }
    if (total := sum(sizes.values())) > MAX_CELLS:
        largest = max(sizes, key=lambda name: sizes[name])
        remedy = f"brings the design to {total} cells, more than {MAX_CELLS}; use fewer values"
        raise mistake(f"grids.{largest}.factors", sizes[largest], remedy)


def _crossed(document: Document, name: str, grid: Grid, files: OwnFiles, of_functions: bool) -> list[Cell]:
    base: dict[str, dict[str, Any]] = {table: getattr(document, table) for table in TABLES}
    if of_functions:
        parameters = document.functions.get("parameters", {})
        base = {"simulation": base["simulation"], "functions": document.functions | {"parameters": parameters}}
    # Tables by the levels that they hold: each is validated once.
    made: dict[tuple[Any, ...], Table] = {}
    changed = [TABLE_OF.get(factor.partition(".")[0]) for factor in grid.factors]
    cells = []
    for indices in itertools.product(*(range(len(values)) for values in grid.factors.values())):
        tables = {table: dict(content) for table, content in base.items()}
        levels = {factor: grid.factors[factor][index] for factor, index in zip(grid.factors, indices, strict=True)}
        if any(all(levels[factor] == value for factor, value in each.items()) for each in grid.drop):
            continue
        for setting, value in [*grid.settings.items(), *levels.items()]:
            _assign(tables, setting, value)
        at = partial(_place, name, grid, dict(zip(grid.factors, indices, strict=True)))
        held = {
            table: (table, *(index for index, of in zip(indices, changed, strict=True) if of == table))
            for table in (() if of_functions else TABLES)
        }
        known = {table: made[key] for table, key in held.items() if key in made}
        cell = validated(Cell, tables | known, at, context=files)
        made |= {key: getattr(cell, table) for table, key in held.items()}
        try:
            cell = read_contents(cell, files.folder)
            wrong = impossibilities(cell)
            if files.trial and not wrong:
                try_functions(cell)
        except Impossible as error:
            wrong = [(error.setting, error.remedy)]
        if wrong:
            raise DesignError("", [_impossible(cell, setting, remedy, at) for setting, remedy in wrong])
        cells.append(cell)
    return cells


def _unknown_settings(name: str, grid: Grid, of_functions: bool) -> Iterator[Problem]:
    """Yield names of no setting; parameters of functions may have nearly any name."""
    if name in ("settings", "verdicts", "comparisons"):
        yield Problem(f"grids.{name}", name, "is a name of results; give the grid another name")
    for section in ("settings", "factors", "domain"):
        for key, value in getattr(grid, section).items():
            (setting, dot, parameter), path = key.partition("."), f"grids.{name}.{section}.{key}"
            if not of_functions and (setting not in TABLE_OF or (dot and not parameter)):
                yield Problem.unknown(path, value, TABLE_OF)
            elif of_functions and not key.isidentifier():
                yield Problem(path, value, "no name that a function can take; change it")
            elif of_functions and section != "settings" and key in RESERVED:
                yield Problem(path, value, "is a name of results; give it another name")


def _assign(tables: dict[str, dict[str, Any]], setting: str, value: Any) -> None:
    """Set a setting, or one parameter of it or of functions, in raw tables, without changing the settings."""
    name, _, parameter = setting.partition(".")
    functions = tables.get("functions")
    # An entry of [functions] is a parameter where [functions.parameters] names it too.
    if functions is not None and name in OF_FUNCTIONS and name not in functions["parameters"]:
        functions[name] = value
    elif functions is not None and name not in ("seed", "batch_size"):
        functions["parameters"] = functions["parameters"] | {name: value}
    else:
        table = tables[TABLE_OF[name]]
        before = table.get(name)
        table[name] = {**(before if isinstance(before, dict) else {}), parameter: value} if parameter else value


def _place(name: str, grid: Grid, levels: dict[str, int], steps: Steps) -> Steps:
    """Return where the file states an entry of a cell: in a table, or as a setting or factor of the grid."""
    inside = steps[2:] if steps[:2] == ["functions", "parameters"] else steps[1:]
    for length in (2, 1):  # a parameter may be stated as a factor of its own
        setting = ".".join(map(str, inside[:length]))
        if setting in levels:
            return ["grids", name, "factors", setting, levels[setting], *inside[length:]]
        if setting in grid.settings:
            return ["grids", name, "settings", setting, *inside[length:]]
    return steps


def _impossible(cell: Cell, setting: str, remedy: str, at: Callable[[Steps], Steps]) -> Problem:
    inside = (
        [setting] if setting in Functions.model_fields else [] if setting == "functions" else ["parameters", setting]
    )
    value = cell.coordinates.get(setting, "")
    steps: Steps = [TABLE_OF[setting], setting] if setting in TABLE_OF else ["functions", *inside]
    return Problem(path_of(at(steps)), None if value == "" else value, remedy)


def _with_one_control(cells: list[Cell]) -> list[Cell]:
    """Choose the control of a grid that states none: plain if one of its cells, all paired, has no closed forms."""
    if all(cell.controlled and cell.has_closed_forms and not cell.population for cell in cells):
        return cells
    return [
        cell
        if "control" in cell.simulation.model_fields_set
        else cell.model_copy(update={"simulation": cell.simulation.model_copy(update={"control": "none"})})
        for cell in cells
    ]
