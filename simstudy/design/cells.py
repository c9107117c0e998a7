"""The cells of a grid: settings drawn from its domain, factors crossed, and each cell validated once."""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from simstudy.design.contents import impossibilities, read_contents
from simstudy.design.document import MAX_CELLS, Document, Grid
from simstudy.design.measures import RESERVED
from simstudy.design.mistakes import DesignError, Problem, Steps, mistake, path_of, validated
from simstudy.design.own import OwnFiles, try_functions
from simstudy.design.settings.cell import OF_FUNCTIONS, TABLE_OF, TABLES, Cell, Table
from simstudy.design.settings.functions import Functions
from simstudy.design.settings.levels import by_levels, level
from simstudy.design.settings.records import Impossible

TRIES = 100
"""Draws for each setting of a domain that is asked for, beyond which too few differ and are possible."""


def cells_of(document: Document, name: str, files: OwnFiles, drawn_from: Any) -> list[Cell]:
    """Return the cells of a grid, the last factor running fastest; `DesignError` tells what is wrong with the first."""
    grid = document.grids[name]
    of_functions = "method" in {*document.functions, *grid.settings, *grid.factors}
    if misnamed := [*_misnamed(name, grid, of_functions)]:
        raise DesignError("", misnamed)
    if grid.domain:
        cells = _drawn(document, name, files, of_functions, drawn_from)
    else:
        cells = _crossed(document, name, grid, files, of_functions)
    # All cells of a grid are paired: plain if one of them has no closed forms, but where the control is stated.
    if not all(cell.controlled and cell.has_closed_forms and not cell.population for cell in cells):
        stated = ("control" in cell.simulation.model_fields_set for cell in cells)
        cells = [c if own else c.with_simulation(control="none") for c, own in zip(cells, stated, strict=True)]
    path, factors, rows = f"grids.{name}.factors", (*grid.domain, *grid.factors), [cell.coordinates for cell in cells]
    for first, *others in by_levels(rows, factors, range(len(cells))):
        if others:
            levels = tuple(level(rows[first], factor) for factor in factors)
            raise mistake(path, levels, "two cells have these values; remove or relabel one")
    shared = {(cell.simulation.seed, cell.simulation.batch_size) for cell in cells}
    if len(shared) > len({seed for seed, _ in shared}):
        raise mistake(path, None, "cells share replicates in batches of different sizes; use one batch_size")
    return cells


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


def _drawn(document: Document, name: str, files: OwnFiles, of_functions: bool, drawn_from: Any) -> list[Cell]:
    """Return the cells of so many settings drawn from the domain of a grid; `DesignError` if too few are possible.

    Each drawn setting has seeds of its own.  What is impossible is no part of the domain: it is drawn again.
    """
    grid = document.grids[name]
    stated = grid.settings.get("seed", document.simulation.get("seed", 0))
    digest = hashlib.blake2b(json.dumps([[stated, drawn_from], name]).encode(), digest_size=16).digest()
    rng = np.random.default_rng(int.from_bytes(digest))
    fresh = ("seed",) if of_functions or "head_seed" in {*grid.domain, *grid.factors} else ("seed", "head_seed")
    found: list[list[Cell]] = []
    known: set[str] = set()
    for _ in range(TRIES * grid.cells):
        drawn = {setting: law.draw(rng) for setting, law in grid.domain.items()}
        seeds = {each: int(rng.integers(1 << 62)) for each in fresh}
        if (key := repr(drawn)) in known:
            continue
        known.add(key)
        try:
            each = grid.model_copy(update={"settings": grid.settings | drawn | seeds})
            found.append(_crossed(document, name, each, files, of_functions))
        except DesignError as error:
            if not found and len(known) > TRIES:
                first = error.problems[0]
                raise mistake(first.path.replace(".settings.", ".domain."), first.value, first.remedy) from None
        if len(found) == grid.cells:
            return [cell for cells in found for cell in cells]
    remedy = f"only {len(found)} different settings of the domain are possible; widen it, or ask for fewer cells"
    raise mistake(f"grids.{name}.cells", grid.cells, remedy)


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
        levels = {factor: grid.factors[factor][index] for factor, index in zip(grid.factors, indices, strict=True)}
        if any(all(levels[factor] == value for factor, value in each.items()) for each in grid.drop):
            continue
        # Raw tables, in which a setting or a parameter of one is another; those of the document stay as they are.
        tables = {table: dict(content) for table, content in base.items()}
        for stated, value in [*grid.settings.items(), *levels.items()]:
            setting, _, parameter = stated.partition(".")
            functions = tables.get("functions")
            # An entry of [functions] is a parameter where [functions.parameters] names it too.
            if functions is not None and setting in OF_FUNCTIONS and setting not in functions["parameters"]:
                functions[setting] = value
            elif functions is not None and setting not in ("seed", "batch_size"):
                functions["parameters"] = functions["parameters"] | {setting: value}
            else:
                table = tables[TABLE_OF[setting]]
                whole = table[setting] if isinstance(table.get(setting), dict) else {}
                table[setting] = {**whole, parameter: value} if parameter else value
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
            if files.trial and cell.own and not wrong:
                try_functions(cell)
        except Impossible as error:
            wrong = [(error.setting, error.remedy)]
        if wrong:
            raise DesignError("", [_impossible(cell, setting, remedy, at) for setting, remedy in wrong])
        cells.append(cell)
    return cells


def _misnamed(name: str, grid: Grid, of_functions: bool) -> Iterator[Problem]:
    """Yield names of no setting or factor; parameters of functions may have nearly any name."""
    if name in ("settings", "verdicts", "comparisons"):
        yield Problem(f"grids.{name}", name, "is a name of results; give the grid another name")
    for section in ("settings", "factors", "domain"):
        for key, value in getattr(grid, section).items():
            (setting, dot, parameter), path = key.partition("."), f"grids.{name}.{section}.{key}"
            if not of_functions and (setting not in TABLE_OF or (dot and not parameter)):
                yield Problem.unknown(path, value, TABLE_OF)
            elif of_functions and section != "settings" and key in RESERVED:
                yield Problem(path, value, "is a name of results; give it another name")
    for number, each in enumerate(grid.drop):
        if not each or each.keys() - grid.factors.keys():
            remedy = f"state levels of factors: {', '.join(grid.factors)}"
            yield Problem(f"grids.{name}.drop[{number}]", each, remedy)
    for twice in sorted(grid.domain.keys() & (grid.factors.keys() | grid.settings.keys())):
        yield Problem(f"grids.{name}.domain.{twice}", None, "also a factor or setting of the grid; state one")


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
