"""A design as cells: profile applied, factors crossed, each record validated once by pydantic."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from simstudy.design.confirmation import confirmatory
from simstudy.design.contents import read_contents
from simstudy.design.document import MAX_CELLS, NAME, Design, Document, Grid, PlannedCell, Precision
from simstudy.design.domain import Domain, drawn_cells
from simstudy.design.feasibility import impossibilities
from simstudy.design.figures import Figure
from simstudy.design.measures import COUNTED, RESERVED
from simstudy.design.mistakes import DesignError, Problem, Steps, path_of, validated
from simstudy.design.own_code import texts_of, value_of
from simstudy.design.references import PlannedGrid, refer
from simstudy.design.rules import unanswerable
from simstudy.design.settings.cell import OF_FUNCTIONS, TABLE_OF, TABLES, Cell
from simstudy.design.settings.functions import Functions
from simstudy.design.settings.levels import by_levels, label, level
from simstudy.design.written import Source, Written, is_shipped, parse, read_design
from simstudy.errors import UserError


def load_design(
    design: Source, profile: str = "quick", trust: Iterable[str | Path] = (), confirm: str | None = None
) -> Design:
    """Return a design under one profile; `DesignError` tells its mistakes. Code that is not trusted is never run.

    With ``confirm``, a text, seeds and the settings that are drawn from domains follow from the design and that text.
    """
    written = read_design(design)
    shipped = written.path is not None and is_shipped(written.path)
    code = sorted(written.folder.glob("*.py")) if shipped else []  # the package's own
    trusted = texts_of([*([trust] if isinstance(trust, str | Path) else trust), *code])

    def refuse(problems: list[Problem]) -> None:
        if problems:
            raise DesignError(written.place, [_in_profile(each, written, profile) for each in problems])

    raw = _under_profile(written.place, written.tables, profile)
    document, problems = validated(Document, _with_values(raw, written, trusted))
    refuse(problems)
    assert document is not None  # else there were problems
    grids: dict[str, PlannedGrid] = {}
    refuse([*_too_many(document)])
    for name, grid in document.grids.items():
        stated = document.precision.model_dump() | grid.precision
        precision, wrong = validated(Precision, stated, partial(_with_grid, name, grid))
        drawn_from = None if confirm is None else [written.text, confirm]
        cells, found = _cells(document, name, grid, written.folder, trusted, drawn_from)
        problems += wrong + found
        if precision is not None and not found:
            chosen = _of_one_estimator(cells)
            grids[name] = PlannedGrid(
                name, grid.all_factors, chosen, grid.exact, grid.by_query, precision, tuple(grid.domain)
            )
    refuse(problems)
    references, unknown = refer(grids, _entries(document))
    refuse(unknown)
    refuse([*unanswerable(document, grids, references)])
    loaded = Design(
        study=document.study,
        profile=profile,
        cells=tuple(
            PlannedCell(
                grid=name,
                cell=cell,
                precision=grid.precision,
                by_query=grid.by_query,
                exact=grid.exact,
                counted=_counted(cell, document),
            )
            for name, grid in grids.items()
            for cell in grid.cells
        ),
        factors={name: grid.all_factors for name, grid in document.grids.items()},
        claims=document.claims,
        figures=document.figures,
        measures=document.measures,
        titles={name: grid.title for name, grid in document.grids.items()},
        domains={n: Domain(laws=grid.domain, cells=grid.cells) for n, grid in document.grids.items() if grid.domain},
        text=written.text,
        path=written.path,
        budget=document.budget,
    )
    return confirmatory(loaded, confirm)


def check(design: Source, trust: Iterable[str | Path] = ()) -> dict[str, Design]:
    """Check a design under every profile.

    Parameters
    ----------
    design, trust
        As for `load_design`; code that may run is tried.

    Returns
    -------
    dict of Design
        By profile: cells, claims and figures, which `simstudy.run` takes as well.

    Raises
    ------
    DesignError, UserError
        As by `load_design`, with the mistakes found under any profile.
    """
    loaded: dict[str, Design] = {}
    problems: dict[str, Problem] = {}
    for profile in profiles_of(design) or ("quick",):
        try:
            loaded[profile] = load_design(design, profile, trust)
        except DesignError as error:
            problems |= {str(problem): problem for problem in error.problems}
    if problems:
        raise DesignError(read_design(design).place, list(problems.values()))
    return loaded


def declared_figures(text: str, profile: str) -> dict[str, Figure]:
    """Return the figures that a design declares, from its text as results hold it: valid, or there were none."""
    return Document.model_validate(_under_profile("design", parse("design", text), profile)).figures


def profiles_of(design: Source) -> tuple[str, ...]:
    """Return the names of the profiles of a design."""
    profiles = read_design(design).tables.get("profiles", {})
    return tuple(profiles) if isinstance(profiles, dict) else ()


# ---------------------------------------------------------------- what the design states


def _under_profile(place: str, tables: dict[str, Any], profile: str) -> dict[str, Any]:
    profiles = tables.get("profiles", {})
    problem = None
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
        problem = Problem("profiles", profiles, "write each profile as a table [profiles.NAME]")
    elif tables and tables.keys() <= {"claims", "numbers"}:
        problem = Problem("", None, "claims about numbers of your own, and no design; give them to simstudy judge")
    elif profile not in profiles:
        known = (*Document.model_fields, "profiles")
        unknown = (Problem.unknown(name, None, known) for name in tables if name not in known)
        remedy = f"no such profile; the design has: {', '.join(profiles) or 'none; add [profiles.' + profile + ']'}"
        problem = next(unknown, Problem("profiles", profile, remedy))
    elif not re.fullmatch(NAME, profile):
        problem = Problem("profiles", profile, "lower-case letters, digits and single hyphens only")
    if problem is not None:
        raise DesignError(place, [problem])
    return _merge({name: table for name, table in tables.items() if name != "profiles"}, profiles[profile])


def _merge(base: dict[str, Any], changes: dict[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Overlay ``changes`` on ``base``, table by table; a factor list or a composite setting is replaced whole."""
    merged = dict(base)
    holds_settings = (path[:1] and path[0] in TABLES) or (path[:1] == ("grids",) and path[2:] == ("settings",))
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(base.get(key), dict) and not holds_settings
        merged[key] = _merge(base[key], value, (*path, key)) if nested else value
    return merged


def _in_profile(problem: Problem, written: Written, profile: str) -> Problem:
    """Return a problem with the place of its entry in the file: in the profile if that states it."""
    stated: Any = written.tables["profiles"][profile]
    for step in re.split(r"[.\[]", problem.path):
        if isinstance(stated, dict) and step not in stated:
            return problem
        stated = stated[step] if isinstance(stated, dict) else None
    return replace(problem, path=f"profiles.{profile}.{problem.path}") if problem.path else problem


def _with_values(raw: dict[str, Any], written: Written, trusted: frozenset[str]) -> dict[str, Any]:
    """Return what a design states with the numbers of claims that are functions of the study, evaluated."""
    claims = raw.get("claims")
    for name, claim in claims.items() if isinstance(claims, dict) else ():
        for entry in ("value", "excludes") if isinstance(claim, dict) else ():
            stated = claim.get(entry)
            if isinstance(stated, dict) and "function" in stated:
                try:
                    number = value_of(stated, written.folder, trusted)
                except UserError as error:
                    raise DesignError(written.place, [Problem(f"claims.{name}.{entry}", None, str(error))]) from None
                raw = raw | {"claims": raw["claims"] | {name: raw["claims"][name] | {entry: number}}}
    return raw


def _entries(document: Document) -> dict[str, Any]:
    claims = {f"claims.{name}": claim for name, claim in document.claims.items()}
    return claims | {f"figures.{name}": figure for name, figure in document.figures.items()}


# ---------------------------------------------------------------- cells


def _too_many(document: Document) -> Iterator[Problem]:
    sizes = {
        name: math.prod(map(len, grid.factors.values())) * (grid.cells if grid.domain else 1)
        for name, grid in document.grids.items()
    }
    if (total := sum(sizes.values())) > MAX_CELLS:
        largest = max(sizes, key=lambda name: sizes[name])
        remedy = f"brings the design to {total} cells, more than {MAX_CELLS}; use fewer values"
        yield Problem(f"grids.{largest}.factors", sizes[largest], remedy)


def _cells(
    document: Document, name: str, grid: Grid, folder: Path, trusted: frozenset[str], drawn_from: Any
) -> tuple[list[Cell], list[Problem]]:
    """Return the cells of a grid: of each setting drawn from its domain, if it has one; and what is wrong with them."""
    if not grid.domain:
        return _crossed(document, name, grid, folder, trusted)
    if twice := sorted(grid.domain.keys() & (grid.factors.keys() | grid.settings.keys())):
        return [], [Problem(f"grids.{name}.domain.{twice[0]}", None, "also a factor or setting of the grid; state one")]
    of_functions = "method" in {*document.functions, *grid.settings, *grid.factors}
    fresh = ("seed",) if of_functions or "head_seed" in grid.all_factors else ("seed", "head_seed")
    seed = grid.settings.get("seed", document.simulation.get("seed", 0))

    def cross(drawn: dict[str, Any]) -> tuple[list[Cell], list[Problem]]:
        settings = grid.settings | drawn
        return _crossed(document, name, grid.model_copy(update={"settings": settings}), folder, trusted)

    return drawn_cells(name, Domain(laws=grid.domain, cells=grid.cells), fresh, [seed, drawn_from], cross)


def _crossed(
    document: Document, name: str, grid: Grid, folder: Path, trusted: frozenset[str]
) -> tuple[list[Cell], list[Problem]]:
    """Return the cells of a grid, the last factor running fastest, and what is wrong with them."""
    of_functions = "method" in {*document.functions, *grid.settings, *grid.factors}
    if unknown := [*_unknown_settings(name, grid, of_functions)]:
        return [], unknown
    base: dict[str, dict[str, Any]] = {table: dict(getattr(document, table)) for table in TABLES}
    if of_functions:
        parameters = document.functions.get("parameters", {})
        base = {"simulation": base["simulation"], "functions": document.functions | {"parameters": parameters}}
    for setting, value in grid.settings.items():
        _assign(base, setting, value)
    cells: list[Cell] = []
    problems: dict[Problem | str, Problem] = {}
    for indices in itertools.product(*(range(len(values)) for values in grid.factors.values())):
        tables = {table: dict(content) for table, content in base.items()}
        for (factor, values), index in zip(grid.factors.items(), indices, strict=True):
            _assign(tables, factor, values[index])
        place = partial(_place, name, grid, dict(zip(grid.factors, indices, strict=True)))
        cell, found = validated(Cell, tables, place)
        if cell is not None:
            cell, broken = read_contents(cell, folder, trusted)
            cells.append(cell)
            found = [_impossible(cell, setting, remedy, place) for setting, remedy in broken or impossibilities(cell)]
        problems |= {problem.path + problem.remedy: problem for problem in found}
    coordinates = [cell.coordinates for cell in cells]
    strata = () if problems else by_levels(coordinates, grid.factors, range(len(cells)))
    for first, *_ in (stratum for stratum in strata if len(stratum) > 1):
        levels = tuple(level(coordinates[first], factor) for factor in grid.factors)
        remedy = "two cells have these values; remove one, or label it otherwise"
        return [], [Problem(f"grids.{name}.factors", levels, remedy)]
    return cells, list(problems.values())


def _impossible(cell: Cell, setting: str, remedy: str, place: Any) -> Problem:
    if setting in TABLE_OF:
        steps: Steps = [TABLE_OF[setting], setting]
    else:
        inside = [] if setting in Functions.model_fields else ["parameters"]
        steps = ["functions", *(() if setting == "functions" else (*inside, setting))]
    table = getattr(cell, TABLE_OF.get(setting, ""), None)
    value = cell.coordinates.get(setting) if table is None else getattr(table, setting)
    return Problem(path_of(place(steps)), None if value is None else label(value), remedy)


def _unknown_settings(name: str, grid: Grid, of_functions: bool) -> Iterator[Problem]:
    """Yield names of no setting; parameters of functions may have nearly any name."""
    for section, stated in (("settings", grid.settings), ("factors", grid.factors)):
        for key, value in stated.items():
            setting, dot, parameter = key.partition(".")
            if of_functions:
                if not key.isidentifier():
                    yield Problem(f"grids.{name}.{section}.{key}", value, "no name that a function can take; change it")
                elif section == "factors" and key in RESERVED:
                    yield Problem(f"grids.{name}.factors.{key}", value, "is a name of results; give it another name")
            elif setting not in TABLE_OF or (dot and not parameter):
                yield Problem.unknown(f"grids.{name}.{section}.{key}", value, TABLE_OF)


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


def _with_grid(name: str, grid: Grid, steps: Steps) -> Steps:
    """Return where the file states an entry of the precision of a grid."""
    return ["grids", name, "precision", *steps] if steps[0] in grid.precision else ["precision", *steps]


def _assign(tables: dict[str, dict[str, Any]], factor: str, value: Any) -> None:
    """Set a setting, or one parameter of it or of functions, in raw tables, without changing the settings."""
    name, _, parameter = factor.partition(".")
    if "functions" in tables and name in OF_FUNCTIONS:
        tables["functions"][name] = value
    elif "functions" in tables and name not in ("seed", "batch_size"):
        tables["functions"]["parameters"] = tables["functions"]["parameters"] | {name: value}
    else:
        table = tables[TABLE_OF[name]]
        before = table.get(name)
        table[name] = {**(before if isinstance(before, dict) else {}), parameter: value} if parameter else value


def _counted(cell: Cell, document: Document) -> frozenset[str]:
    """Measures of a cell that are numbers or shares of events, for all that is known of functions."""
    smooth = {name for name, told in document.measures.items() if not told.counted}
    return frozenset(COUNTED if cell.functions is None else {*cell.statistics} - smooth)


def _of_one_estimator(cells: list[Cell]) -> list[Cell]:
    """Choose the control of a grid that states none: plain if one of its cells, all paired, has no closed forms."""
    known = all(cell.controlled and cell.has_closed_forms and not cell.population for cell in cells)
    control = "expansion" if known else "none"
    chosen = [cell.simulation.model_copy(update={"control": control}) for cell in cells]
    return [
        cell if "control" in cell.simulation.model_fields_set else cell.model_copy(update={"simulation": simulation})
        for cell, simulation in zip(cells, chosen, strict=True)
    ]
