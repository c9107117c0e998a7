"""A design read once, strictly, into an immutable `Design`; the mistakes in it reported together."""

from __future__ import annotations

import copy
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simstudy.design.claims import BaseClaim
from simstudy.design.contents import Reader, reader
from simstudy.design.document import MAX_CELLS, NAME, Design, Document, Grid, PlannedCell, Precision
from simstudy.design.feasibility import impossibilities, too_many_batches
from simstudy.design.figures import Figure
from simstudy.design.generality import generality_notes, generality_problems
from simstudy.design.mistakes import DesignError, Problem, from_validation
from simstudy.design.moments_needed import ORDER, order_of, tail, without_error, without_value
from simstudy.design.possible import absent, impossible, unknown_measures
from simstudy.design.references import PlannedGrid, reference_problems
from simstudy.design.settings import TABLE_OF, TABLES
from simstudy.design.settings.cell import Cell, assign, cross, label, selected, setting_of
from simstudy.design.spending import never_judged, not_spent, precision_problems
from simstudy.design.ties import Ties
from simstudy.design.written import Source, Written, read_design


def load_design(design: Source, profile: str = "quick", trust: Iterable[str | Path] = ()) -> Design:
    """Read and check a design.

    Parameters
    ----------
    design
        Path of its file, name of a shipped one, or its tables: a `simstudy.Study`, or a dict as TOML parses it.
    profile
        Name of a table under ``[profiles]``; its entries replace those of the file.
    trust
        Python files whose code may run; that of others is read, but neither tried nor ever run.

    Raises
    ------
    DesignError
        With every mistake found, each with its path in the file, the value, and what to do.
    UserError
        If it is a name that no design has, or two have.
    """
    written = read_design(design)
    merged = _under_profile(written, profile)
    document, problems = _validate(merged)
    problems += _table_problems(merged)
    if document is None:
        raise DesignError(written.place, _with_first(written.problems, problems))
    cells, found = _plan(document, reader(written.folder, trust), problems)
    problems = _with_first(unknown_measures(problems, merged, cells), found)
    grids = _planned_grids(merged, cells, problems)
    problems += _idle_settings(document, cells)
    problems += precision_problems(merged, grids)
    problems += reference_problems(grids, document.claims, document.figures)
    problems = problems or list(_empty_questions(document, cells, grids))
    problems = problems or list(generality_problems(document.claims, cells))
    notes = () if problems else tuple(map(str, _notes(document, cells)))
    if problems := _with_first(written.problems, problems):
        raise DesignError(written.place, problems)
    return Design(
        study=document.study,
        profile=profile,
        cells=tuple(cells),
        factors={name: tuple(grid.factors) for name, grid in document.grids.items()},
        claims=document.claims,
        figures=document.figures,
        titles={name: grid.title for name, grid in document.grids.items()},
        text=written.text,
        path=written.path,
        notes=notes,
    )


def _with_first(first: list[Problem], further: list[Problem]) -> list[Problem]:
    """Return problems, and those further ones that are not about the same entries."""
    return first + [problem for problem in further if not any(_within(problem.path, each.path) for each in first)]


def check(design: Source, trust: Iterable[str | Path] = ()) -> dict[str, Design]:
    """Check a design under every profile, and return what it is under each.

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


def _under_profile(written: Written, profile: str) -> dict[str, Any]:
    """Return the tables of a design as a profile wants them."""
    place, profiles = written.place, written.tables.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
        raise DesignError(place, [Problem("profiles", profiles, "write each profile as a table [profiles.NAME]")])
    if profile not in profiles:
        known = ", ".join(profiles) or "none"
        raise DesignError(place, [Problem("profiles", profile, f"no such profile; the design has: {known}")])
    if not re.fullmatch(NAME, profile):
        raise DesignError(place, [Problem("profiles", profile, "lower-case letters, digits and single hyphens only")])
    return _merge({name: table for name, table in written.tables.items() if name != "profiles"}, profiles[profile])


def _merge(base: dict[str, Any], changes: dict[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Overlay ``changes`` on ``base``, table by table; a factor list or a composite setting is replaced whole."""
    merged = dict(base)
    holds_settings = path[:1] in {(table,) for table in TABLES} or (
        path[:1] == ("grids",) and path[2:] == ("settings",)
    )
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(base.get(key), dict) and not holds_settings
        merged[key] = _merge(base[key], value, (*path, key)) if nested else value
    return merged


def _validate(raw: dict[str, Any]) -> tuple[Document | None, list[Problem]]:
    """Validate the document; after a mistake, also what is left without the faulty entries, so that all are found."""
    problems: list[Problem] = []
    while True:
        try:
            return Document.model_validate(raw), problems
        except ValidationError as error:
            problems += [problem for problem in from_validation(error, raw, Document) if problem not in problems]
            sound = _without(raw, error)
        if sound == raw or not sound.get("grids"):
            return None, problems
        raw = sound


def _without(raw: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """Remove each faulty entry: a claim or figure whole, elsewhere the innermost key; a faulty [study] is replaced."""
    sound = copy.deepcopy(raw)
    for detail in error.errors():
        steps = list(detail["loc"])
        if steps[0] == "study":
            sound["study"] = {"name": "unnamed", "title": "untitled", "aim": "unstated"}
            continue
        depth = 2 if steps[0] in ("claims", "figures") else len(steps)
        node, parent = sound, None
        for step in steps[:depth]:
            if not isinstance(node, dict) or step not in node:
                break
            parent, key, node = node, step, node[step]
        if parent is not None:
            parent.pop(key, None)
    return sound


def _table_problems(raw: dict[str, Any]) -> list[Problem]:
    """Faulty entries of the setting tables, also those that every grid replaces; unknown settings of a grid."""
    problems = []
    for table, model in TABLES.items():
        content = raw.get(table)
        content = content if isinstance(content, dict) else {}
        known = {key: value for key, value in content.items() if key in model.model_fields}
        problems += [Problem.unknown(f"{table}.{k}", content[k], model.model_fields) for k in content if k not in known]
        try:
            model.model_validate(known)
        except ValidationError as error:
            problems += [
                problem for problem in from_validation(error, known, model, prefix=table) if problem.value is not None
            ]
    grids = raw.get("grids")
    for name, grid in grids.items() if isinstance(grids, dict) else ():
        for section in ("settings", "factors") if isinstance(grid, dict) else ():
            content = grid.get(section)
            for key in content if isinstance(content, dict) else ():
                if setting_of(key) not in TABLE_OF:
                    problems.append(Problem.unknown(f"grids.{name}.{section}.{key}", content[key], TABLE_OF))
    return problems


def _plan(document: Document, read: Reader, earlier: list[Problem]) -> tuple[list[PlannedCell], list[Problem]]:
    """Plan the cells of all grids; what a grid lacks because of an earlier problem is no problem of its own."""
    planned: list[PlannedCell] = []
    problems: dict[tuple[str, str], Problem] = {}
    total = 0
    for name, grid in document.grids.items():
        size = math.prod(len(values) for values in grid.factors.values())
        if total + size > MAX_CELLS:
            path = f"grids.{name}.factors"
            remedy = f"brings the design to {total + size} cells, more than {MAX_CELLS}; use fewer values"
            problems[path, ""] = Problem(path, size, remedy)
            continue
        total += size
        stripped = any(_within(problem.path, f"grids.{name}") for problem in earlier)
        precision = _grid_precision(document, grid, f"grids.{name}.precision", problems)
        for cell, found in _grid_cells(document, name, grid, precision, read):
            for problem in found:
                if not (stripped and problem.value is None):
                    problems.setdefault((problem.path, problem.remedy), problem)
            if cell is not None:
                planned.append(
                    PlannedCell(grid=name, cell=cell, precision=precision, by_query=grid.by_query, exact=grid.exact)
                )
    return planned, list(problems.values())


def _grid_precision(document: Document, grid: Grid, path: str, problems: dict) -> Precision:
    try:
        return Precision.model_validate(document.precision.model_dump() | grid.precision)
    except ValidationError as error:
        for problem in from_validation(error, grid.precision, Precision, prefix=path):
            problems[problem.path, problem.remedy] = problem
        return document.precision


def _grid_cells(
    document: Document, name: str, grid: Grid, precision: Precision, read: Reader
) -> Iterator[tuple[Cell | None, list[Problem]]]:
    """Yield each cell of a grid, or None with the problems that prevent it."""
    base = {table: dict(getattr(document, table)) for table in TABLES}
    for key, value in grid.settings.items():
        if setting_of(key) in TABLE_OF:
            assign(base, key, value)
    factors = {key: values for key, values in grid.factors.items() if setting_of(key) in TABLE_OF}
    for levels, tables in cross(base, factors):

        def place(setting: str, levels: dict[str, int] = levels) -> str:
            if setting in levels:
                return f"grids.{name}.factors.{setting}[{levels[setting]}]"
            if setting in grid.settings:
                return f"grids.{name}.settings.{setting}"
            return "" if "." in setting else f"{TABLE_OF[setting]}.{setting}"

        known = {t: {k: v for k, v in c.items() if k in TABLES[t].model_fields} for t, c in tables.items()}
        try:
            cell = Cell.model_validate(known)
        except ValidationError as error:
            yield None, from_validation(error, known, Cell, place=place)
            continue
        cell, found = read(cell)
        found = found or [*impossibilities(cell), *too_many_batches(cell, precision.max_replicates)]
        problems = [Problem(place(setting), _raw_value(cell, setting), remedy) for setting, remedy in found]
        # Its levels would make equal cells: no further problem.
        split = all(setting_of(factor) in cell.meaningful for factor in factors)
        yield (
            (cell if split else None),
            [*problems, *_idle_in_grid(cell, {"settings": grid.settings, "factors": factors}, f"grids.{name}")],
        )


def _idle_in_grid(cell: Cell, sections: dict[str, dict[str, Any]], path: str) -> Iterator[Problem]:
    """Settings of a grid that mean nothing for the instance of one of its cells."""
    if cell.instance is None:
        return
    for section, content in sections.items():
        for name in content:
            if setting_of(name) in TABLE_OF.keys() - cell.meaningful:
                knows = ", ".join(sorted(cell.meaningful))
                remedy = f"means nothing for instance = {cell.instance.kind!r}, which knows {knows}; remove it"
                yield Problem(f"{path}.{section}.{name}", content[name], remedy)


def _idle_settings(document: Document, planned: list[PlannedCell]) -> Iterator[Problem]:
    """Settings of the tables that mean nothing for any cell, if all cells are known."""
    size = sum(math.prod(map(len, grid.factors.values())) for grid in document.grids.values())
    known = frozenset[str]().union(*(each.cell.meaningful for each in planned))
    for table in TABLES if len(planned) == size else ():
        for setting, value in getattr(document, table).items():
            if setting in TABLE_OF.keys() - known:
                yield Problem(f"{table}.{setting}", value, "means nothing for any of the instances measured; remove it")


def _empty_questions(
    document: Document, planned: list[PlannedCell], grids: dict[str, PlannedGrid]
) -> Iterator[Problem]:
    """Factors, claims, figures and errors wanted whose answer no replicate can change."""
    ties = {}
    for name, grid in document.grids.items():
        cells = [each.cell for each in planned if each.grid == name]
        ties[name] = Ties(cells, grids[name].coordinates, tuple(grid.factors))
        yield from ties[name].idle_factors(f"grids.{name}.factors")
    heavy = _heavy(planned)
    for name, claim in document.claims.items():
        yield from ties[claim.grid].compared(f"claims.{name}.measure", claim)
        yield from impossible(f"claims.{name}.measure", claim.measure, _spoken_of(claim, planned))
        yield from without_value(f"claims.{name}.measure", claim, _spoken_of(claim, heavy))
    yield from absent(document, planned)


def _heavy(planned: list[PlannedCell]) -> list[PlannedCell]:
    """Cells of the grids in which some estimates lack moments."""
    grids = {each.grid for each in planned if tail(each.cell).limit < math.inf}
    return [each for each in planned if each.grid in grids]


def _notes(document: Document, planned: list[PlannedCell]) -> Iterator[Problem]:
    """Claims in general terms on draws that are fixed, measures without errors, replicates not spent or not enough."""
    yield from generality_notes(document.claims, planned)
    yield from _without_errors(document, _heavy(planned))
    yield from (*not_spent(document.claims, planned), *never_judged(document.claims, planned))


def _without_errors(document: Document, planned: list[PlannedCell]) -> Iterator[Problem]:
    """Measures that have no Monte Carlo error: those that a claim speaks of, and those that replicates are spent on."""
    for name, claim in document.claims.items():
        cells = _spoken_of(claim, planned)
        yield from without_error(f"claims.{name}.measure", claim.measure, order_of(claim), cells)
    for name in dict.fromkeys(each.grid for each in planned):
        inside = [each for each in planned if each.grid == name]
        for measure in inside[0].precision.relative_mcse | inside[0].precision.absolute_mcse:
            cells = [each.cell for each in inside]
            yield from without_error(f"grids.{name}.precision", measure, ORDER.get(measure, 0), cells)


def _spoken_of(claim: BaseClaim, planned: list[PlannedCell]) -> list[Cell]:
    """Cells that a claim selects, and those that it compares them with."""
    inside = [each.cell for each in planned if each.grid == claim.grid]
    selections = [claim.where, *([claim.where | versus] if (versus := getattr(claim, "versus", None)) else [])]
    return [cell for cell in inside if any(selected(cell.coordinates, each) for each in selections)]


def _raw_value(cell: Cell, setting: str) -> Any:
    value = getattr(getattr(cell, TABLE_OF[setting]), setting)
    return None if value is None else label(value)


def _planned_grids(raw: dict[str, Any], cells: list[PlannedCell], problems: list[Problem]) -> dict[str, PlannedGrid]:
    """Every grid that the file writes, be it faulty."""
    coordinates: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for planned in cells:
        coordinates[planned.grid].append(planned.cell.coordinates)
    grids = {}
    for name, grid in raw["grids"].items():
        factors = grid.get("factors", {}) if isinstance(grid, dict) else None
        places = [*TABLES, f"grids.{name}"]
        faulty = any(_within(problem.path, place) for problem in problems for place in places)
        grids[name] = PlannedGrid(
            tuple(factors) if isinstance(factors, dict) else None, coordinates[name], complete=not faulty,
            exact=isinstance(grid, dict) and bool(grid.get("exact")),
        )  # fmt: skip
    return grids


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))
