"""A design read once, strictly: what it states, its cells, what claims refer to, and the mistakes in it."""

import copy
import dataclasses
import functools
import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simstudy.design.contents import read_contents
from simstudy.design.document import MAX_CELLS, NAME, Design, Document, Grid, PlannedCell, Precision
from simstudy.design.feasibility import impossibilities
from simstudy.design.figures import Figure
from simstudy.design.measures import COUNTED, RESERVED
from simstudy.design.mistakes import DesignError, Problem, from_validation, validated
from simstudy.design.own_code import texts_of, value_of
from simstudy.design.references import Entry, PlannedGrid, refer
from simstudy.design.rules import notes, unanswerable
from simstudy.design.settings.cell import OF_FUNCTIONS, TABLE_OF, TABLES, Cell
from simstudy.design.settings.levels import by_levels, label, level, setting_of
from simstudy.design.written import Source, Written, is_shipped, read_design
from simstudy.errors import UserError


def load_design(design: Source, profile: str = "quick", trust: Iterable[str | Path] = ()) -> Design:
    """Return a design under one profile, or raise every mistake; code that is not trusted is never run."""
    written = read_design(design)
    trusted = texts_of([*([trust] if isinstance(trust, str | Path) else trust), *_shipped_code(written)])
    raw = _with_values(_under_profile(written, profile), written, trusted)
    document, problems = _validate(raw)
    for other in written.tables["profiles"].keys() - {profile}:
        found = [
            _in_profile(each, written, other)
            for each in _validate(_with_values(_under_profile(written, other), written, trusted))[1]
        ]
        problems += [problem for problem in found if problem.within(f"profiles.{other}")]
    if document is not None:
        grids, found = _plan_grids(raw, document, written.folder, trusted, problems)
        problems = _with_first(problems, found)
        entries: dict[str, Entry] = {f"claims.{name}": claim for name, claim in document.claims.items()}
        entries |= {f"figures.{name}": figure for name, figure in document.figures.items()}
        complete = not any(problem.within(place) for problem in problems for place in ("grids", *TABLES))
        references, unknown = refer(grids, entries, complete)
        problems += unknown
        problems = problems or list(unanswerable(document, grids, references))
    if document is None or written.problems or problems:
        placed = [_in_profile(problem, written, profile) for problem in problems]
        raise DesignError(written.place, _with_first(written.problems, placed))
    return Design(
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
        factors={name: tuple(grid.factors) for name, grid in document.grids.items()},
        claims=document.claims,
        figures=document.figures,
        measures=document.measures,
        titles={name: grid.title for name, grid in document.grids.items()},
        text=written.text,
        path=written.path,
        budget=document.budget,
        notes=tuple(map(str, notes(grids.values(), references))),
    )


def _counted(cell: Cell, document: Document) -> frozenset[str]:
    """Measures of a cell that are numbers or shares of events, for all that is known of functions."""
    smooth = {name for name, told in document.measures.items() if not told.counted}
    return frozenset(COUNTED if cell.functions is None else {*cell.statistics} - smooth)


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


def _shipped_code(written: Written) -> list[Path]:
    """Python files of a shipped study, which are the package's own code."""
    shipped = written.path is not None and is_shipped(written.path)
    return sorted(written.folder.glob("*.py")) if shipped else []


def _in_profile(problem: Problem, written: Written, profile: str) -> Problem:
    """Return a problem with the place of its entry in the file: in the profile if that states it."""
    stated: Any = written.tables["profiles"][profile]
    for step in re.split(r"[.\[]", problem.path):
        if not isinstance(stated, dict):
            break
        if step not in stated:
            return problem
        stated = stated[step]
    return dataclasses.replace(problem, path=f"profiles.{profile}.{problem.path}")


def _with_first(first: list[Problem], further: list[Problem]) -> list[Problem]:
    """Return problems, and those further ones that are not about the same entries."""
    return first + [problem for problem in further if not any(problem.within(each.path) for each in first)]


def check(design: Source, trust: Iterable[str | Path] = ()) -> dict[str, Design]:
    """Check a design under every profile.

    Parameters
    ----------
    design, trust
        As for `load_design`; code that may run is tried.

    Returns
    -------
    dict of Design
        By profile: cells, claims, figures and notes, which `simstudy.run` takes as well.

    Raises
    ------
    DesignError, UserError
        As by `load_design`, with every mistake found under any profile.
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
    return Document.model_validate(_under_profile(read_design(tomllib.loads(text)), profile)).figures


def profiles_of(design: Source) -> tuple[str, ...]:
    """Return the names of the profiles of a design."""
    profiles = read_design(design).tables.get("profiles", {})
    return tuple(profiles) if isinstance(profiles, dict) else ()


# ---------------------------------------------------------------- what the design states


def _under_profile(written: Written, profile: str) -> dict[str, Any]:
    profiles = written.tables.get("profiles", {})
    problems: list[Problem] = []
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
        problems = [Problem("profiles", profiles, "write each profile as a table [profiles.NAME]")]
    elif written.tables and written.tables.keys() <= {"claims", "numbers"}:
        problems = [Problem("", None, "claims about numbers of your own, and no design; give them to simstudy judge")]
    elif profile not in profiles:
        tables = (*Document.model_fields, "profiles")
        problems = [Problem.unknown(name, None, tables) for name in written.tables if name not in tables]
        known = ", ".join(profiles) or f"none; add [profiles.{profile}]"
        problems = problems or [Problem("profiles", profile, f"no such profile; the design has: {known}")]
    elif not re.fullmatch(NAME, profile):
        problems = [Problem("profiles", profile, "lower-case letters, digits and single hyphens only")]
    if problems:
        raise DesignError(written.place, problems)
    return _merge({name: table for name, table in written.tables.items() if name != "profiles"}, profiles[profile])


def _merge(base: dict[str, Any], changes: dict[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Overlay ``changes`` on ``base``, table by table; a factor list or a composite setting is replaced whole."""
    merged = dict(base)
    holds_settings = (path[:1] and path[0] in TABLES) or (path[:1] == ("grids",) and path[2:] == ("settings",))
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(base.get(key), dict) and not holds_settings
        merged[key] = _merge(base[key], value, (*path, key)) if nested else value
    return merged


def _validate(raw: dict[str, Any]) -> tuple[Document | None, list[Problem]]:
    """Validate the document, after a mistake without the faulty entries; and tables whose entries grids replace."""
    in_tables: list[Problem] = []
    for table, model in TABLES.items():
        if isinstance(content := raw.get(table), dict):
            found = validated(model, content, prefix=table)[1]
            # Whether an entry is missing shows in the cells.
            in_tables += [problem for problem in found if problem.value is not None]
    problems: list[Problem] = []
    while True:
        try:
            return Document.model_validate(raw), _with_first(problems, in_tables)
        except ValidationError as error:
            problems += [problem for problem in from_validation(error, raw, Document) if problem not in problems]
            sound = _without(raw, error)
        if sound == raw or not sound.get("grids"):
            return None, _with_first(problems, in_tables)
        raw = sound


def _without(raw: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """Remove each faulty entry: a claim or figure whole, elsewhere the innermost key; no cell rests on [study]."""
    sound = copy.deepcopy(raw) | {"study": {"name": "unnamed", "title": "untitled", "aim": "unstated"}}
    for loc in (detail["loc"] for detail in error.errors() if detail["loc"][0] != "study"):
        node: Any = sound
        parent: dict[Any, Any] = {}
        key: Any = None
        for step in loc[:2] if loc[0] in ("claims", "figures") else loc:
            if not isinstance(node, dict) or step not in node:
                break
            parent, key, node = node, step, node[step]
        parent.pop(key, None)
        if loc == ("precision", "min_replicates"):
            parent[key] = 1  # below any ceiling, as the default may not be
    return sound


# ---------------------------------------------------------------- cells


def _plan_grids(
    raw: dict[str, Any], document: Document, folder: Path, trusted: frozenset[str], earlier: list[Problem]
) -> tuple[dict[str, PlannedGrid], list[Problem]]:
    """Plan every grid that the file writes, also faulty ones; what one lacks by an earlier problem is no new one."""
    # A wrong name may stand for any factor, so that no claim names an unknown one.
    grids = {name: PlannedGrid(name, None, [], exact=True) for name in raw["grids"]}
    problems: list[Problem] = []
    sizes = {name: math.prod(map(len, grid.factors.values())) for name, grid in document.grids.items()}
    if (total := sum(sizes.values())) > MAX_CELLS:
        largest = max(sizes, key=lambda name: sizes[name])
        remedy = f"brings the design to {total} cells, more than {MAX_CELLS}; use fewer values"
        return grids, [Problem(f"grids.{largest}.factors", sizes[largest], remedy)]
    for name, grid in document.grids.items():
        faulty = any(problem.within(f"grids.{name}") for problem in earlier)
        stated = document.precision.model_dump() | grid.precision
        precision, found = validated(Precision, stated, prefix=f"grids.{name}.precision")
        precision = precision or document.precision
        cells, of_cells = _crossed(document, name, grid, folder, trusted)
        found += of_cells or _equal_cells(name, grid, cells)
        problems += [problem for problem in found if not (faulty and problem.value is None)]
        if not faulty and (cells or not of_cells):
            chosen = _of_one_estimator(cells, precision)
            grids[name] = PlannedGrid(name, tuple(grid.factors), chosen, grid.exact, grid.by_query, precision)
    if not (earlier or problems):
        cells = [cell for grid in grids.values() for cell in grid.cells]
        idle = TABLE_OF.keys() - {name for cell in cells for name in cell.meaningful}
        if document.functions and all(cell.functions is None for cell in cells):
            problems.append(Problem("functions", None, "no grid has a method; state it here or in a grid"))
        for table in TABLES:
            stated = {name: value for name, value in getattr(document, table).items() if name in idle}
            remedy = "is used by none of the instances; remove it"
            problems += [Problem(f"{table}.{name}", value, remedy) for name, value in stated.items()]
    return grids, list({(problem.path, problem.remedy): problem for problem in reversed(problems)}.values())[::-1]


def _crossed(
    document: Document, name: str, grid: Grid, folder: Path, trusted: frozenset[str]
) -> tuple[list[Cell], list[Problem]]:
    """Return the valid cells of a grid, the last factor running fastest, and the problems of all."""
    of_functions = "method" in {*document.functions, *grid.settings, *grid.factors}
    if unknown := [*_unknown_settings(name, grid, of_functions)]:
        return [], unknown
    base: dict[str, dict[str, Any]] = {
        table: {key: value for key, value in getattr(document, table).items() if key in model.model_fields}
        for table, model in TABLES.items()
    }
    if of_functions:
        parameters = document.functions.get("parameters", {})
        base = {"simulation": base["simulation"], "functions": document.functions | {"parameters": parameters}}
    for setting, value in grid.settings.items():
        _assign(base, setting, value)
    cells: list[Cell] = []
    problems: list[Problem] = []
    for indices in itertools.product(*(range(len(values)) for values in grid.factors.values())):
        levels = dict(zip(grid.factors, indices, strict=True))
        tables = {table: dict(content) for table, content in base.items()}
        for factor, index in levels.items():
            _assign(tables, factor, grid.factors[factor][index])
        place = functools.partial(_place, name, grid, levels)
        cell, found = validated(Cell, tables, place=place)
        problems += found
        if cell is None:
            continue
        cell, broken = read_contents(cell, folder, trusted)
        for setting, remedy in broken or impossibilities(cell):
            table = getattr(cell, TABLE_OF.get(setting, ""), None)
            value = cell.coordinates.get(setting) if table is None else getattr(table, setting)
            problems.append(Problem(place(setting), None if value is None else label(value), remedy))
        for section, stated in () if of_functions else (("settings", grid.settings), ("factors", grid.factors)):
            for key in (key for key in stated if setting_of(key) not in cell.meaningful):
                instance, knows = getattr(cell.instance, "kind", ""), ", ".join(sorted(cell.meaningful))
                remedy = f"is not used by instance = {instance!r}, which uses {knows}; remove it"
                problems.append(Problem(f"grids.{name}.{section}.{key}", stated[key], remedy))
        cells.append(cell)
    return cells, problems


def _unknown_settings(name: str, grid: Grid, of_functions: bool) -> Iterator[Problem]:
    """Yield names of no setting, and levels that equal no level; parameters of functions may have nearly any name."""
    for section, stated in (("settings", grid.settings), ("factors", grid.factors)):
        for key, value in stated.items():
            setting, dot, parameter = key.partition(".")
            if section == "factors":
                undefined = (place for place, each in enumerate(value) if isinstance(each, float) and math.isnan(each))
                for place in undefined:
                    remedy = "is no level, as it does not equal itself; remove it, or give a number or a text"
                    yield Problem(f"grids.{name}.factors.{key}[{place}]", math.nan, remedy)
            if of_functions:
                if not key.isidentifier():
                    yield Problem(f"grids.{name}.{section}.{key}", value, "no name that a function can take; change it")
                elif section == "factors" and key in RESERVED:
                    yield Problem(f"grids.{name}.factors.{key}", value, "is a name of results; give it another name")
            elif setting not in TABLE_OF or (dot and not parameter):
                yield Problem.unknown(f"grids.{name}.{section}.{key}", value, TABLE_OF)


def _place(name: str, grid: Grid, levels: dict[str, int], setting: str) -> str:
    """Where the file states a setting of a cell; empty for a parameter that it does not state apart."""
    setting = setting.removeprefix("parameters.")
    if setting in levels:
        return f"grids.{name}.factors.{setting}[{levels[setting]}]"
    if setting in grid.settings:
        return f"grids.{name}.settings.{setting}"
    if setting.partition(".")[0] not in TABLE_OF:
        inside = "" if setting in ("functions", *OF_FUNCTIONS) else ".parameters"
        return f"functions{inside}.{setting}" if setting != "functions" else setting
    return "" if "." in setting else f"{TABLE_OF[setting]}.{setting}"


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


def _equal_cells(name: str, grid: Grid, cells: list[Cell]) -> list[Problem]:
    coordinates = [cell.coordinates for cell in cells]
    strata = by_levels(coordinates, grid.factors, range(len(cells)))
    twice = [tuple(level(coordinates[first], factor) for factor in grid.factors) for first, *more in strata if more]
    remedy = "two cells have these values; remove one, or label it otherwise"
    return [Problem(f"grids.{name}.factors", levels, remedy) for levels in twice[:1]]


def _of_one_estimator(cells: list[Cell], precision: Precision) -> list[Cell]:
    """Choose the control of a grid that states none: plain if one of its cells, all paired, has no closed forms."""
    known = all(cell.controlled and cell.has_closed_forms and not cell.population for cell in cells)
    control = "expansion" if known else "none"
    chosen = [cell.simulation.model_copy(update={"control": control}) for cell in cells]
    return [
        cell if "control" in cell.simulation.model_fields_set else cell.model_copy(update={"simulation": simulation})
        for cell, simulation in zip(cells, chosen, strict=True)
    ]
