"""A design file (TOML) read once, strictly, into an immutable `Design`; every mistake in it reported together.

Imports pydantic, settings, cells, claims, feasibility, problems and variables; reads the design and its head files.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from simstudy.cells import Cell, cross, label
from simstudy.claims import BaseClaim, Claim, Figure
from simstudy.feasibility import impossibilities, read_heads
from simstudy.problems import DesignError, Problem, from_validation
from simstudy.settings import TABLE_OF, TABLES, Count, Positive, Record
from simstudy.variables import MEASURES

MAX_BYTES = 1 << 20
"""Largest design file that is read; a design is written by hand."""
MAX_CELLS = 20_000
"""Largest number of cells of one grid: beyond it, a list of factor values is surely a mistake."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]


class Study(Record):
    """Name and aim of the study (the A of ADEMP)."""

    name: Name = Field(description="lower-case letters and digits, joined by single hyphens; also the output folder")
    title: str = Field(min_length=1, description="one line for the report")
    aim: str = Field(min_length=1, description="the question that the study answers")


class Precision(Record):
    """The Monte Carlo errors wanted, and the floor and ceiling of the replicates spent on them."""

    relative_mcse: dict[str, Positive] = Field(
        default_factory=dict, description="measure = largest MCSE wanted, relative to the estimate"
    )
    absolute_mcse: dict[str, Positive] = Field(default_factory=dict, description="measure = largest MCSE wanted")
    min_replicates: Count = Field(1024, description="floor on the replicates of each cell")
    max_replicates: Count = Field(65536, description="ceiling on the replicates of each cell")


class Grid(Record):
    """Factors crossed with one another over fixed settings."""

    title: str = Field("", description="what the grid is for")
    settings: dict[str, Any] = Field(default_factory=dict, description="settings that replace those of the tables")
    factors: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict, description="setting = nonempty list of values to cross"
    )
    precision: dict[str, Any] = Field(default_factory=dict, description="entries that replace those of [precision]")
    by_query: bool = Field(False, description="true: results also hold each measure at each query")


class Document(Record):
    """The design file as it is written, profile applied; tables of settings are checked cell by cell."""

    study: Study
    data: dict[str, Any] = Field(default_factory=dict)
    heads: dict[str, Any] = Field(default_factory=dict)
    estimator: dict[str, Any] = Field(default_factory=dict)
    queries: dict[str, Any] = Field(default_factory=dict)
    simulation: dict[str, Any] = Field(default_factory=dict)
    precision: Precision = Precision()
    grids: Annotated[dict[Name, Grid], Field(min_length=1, description="at least one [grids.NAME]")]
    claims: dict[Name, Claim] = Field(default_factory=dict)
    figures: dict[Name, Figure] = Field(default_factory=dict)


class PlannedCell(Record):
    """A cell with its place in the design: grid, and how precisely it is to be run."""

    grid: str
    cell: Cell
    precision: Precision
    by_query: bool


class Design(Record):
    """A valid design under one profile.

    Attributes
    ----------
    cells
        All cells of all grids, in the order of the file, the last factor of a grid running fastest.
    factors
        Names of the factors of each grid.
    text
        The design file, verbatim.
    """

    study: Study
    profile: str
    cells: tuple[PlannedCell, ...]
    factors: dict[str, tuple[str, ...]]
    claims: dict[str, Claim]
    figures: dict[str, Figure]
    titles: dict[str, str]
    text: str


def load_design(path: str | Path, profile: str = "quick") -> Design:
    """Read and check a design file.

    Parameters
    ----------
    path
        TOML file.
    profile
        Name of a table under ``[profiles]``; its entries replace those of the file.

    Raises
    ------
    DesignError
        With every mistake found, each with its path in the file, the value, and what to do.
    """
    path = Path(path)
    text = _read(path)
    raw = _parse(path, text)
    profiles = raw.pop("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
        raise DesignError(path, [Problem("profiles", profiles, "write each profile as a table [profiles.NAME]")])
    if profile not in profiles:
        known = ", ".join(profiles) or "none"
        raise DesignError(path, [Problem("profiles", profile, f"no such profile; the design has: {known}")])
    merged = _merge(raw, profiles[profile])
    document, problems = _validate(merged)
    problems += _table_problems(merged)
    if document is None:
        raise DesignError(path, problems)
    cells, found = _plan(document, path.parent)
    problems += [problem for problem in found if problem.path not in {earlier.path for earlier in problems}]
    problems += _precision_problems(document)
    if not problems:
        problems = list(_reference_problems(document, cells))
    if problems:
        raise DesignError(path, problems)
    return Design(
        study=document.study,
        profile=profile,
        cells=tuple(cells),
        factors={name: tuple(grid.factors) for name, grid in document.grids.items()},
        claims=document.claims,
        figures=document.figures,
        titles={name: grid.title for name, grid in document.grids.items()},
        text=text,
    )


def profiles_of(path: str | Path) -> tuple[str, ...]:
    """Return the names of the profiles of a design file."""
    profiles = _parse(Path(path), _read(Path(path))).get("profiles", {})
    return tuple(profiles) if isinstance(profiles, dict) else ()


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DesignError(path, [Problem("", "", f"longer than {MAX_BYTES} bytes; is it a design file?")])
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DesignError(path, [Problem("", f"byte {error.start}", "not UTF-8 text; save it as UTF-8")]) from None
    except OSError as error:
        raise DesignError(path, [Problem("", "", f"cannot be read: {error.strerror}")]) from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DesignError(path, [Problem("", "", f"not valid TOML: {error}")]) from None


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Overlay ``changes`` on ``base``, table by table; a factor list or a composite setting is replaced whole."""
    merged = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(base.get(key), dict) and key not in TABLE_OF
        merged[key] = _merge(base[key], value) if nested else value
    return merged


def _validate(raw: dict[str, Any]) -> tuple[Document | None, list[Problem]]:
    """Validate the document; after a mistake, also what is left without the faulty entries, so that all are found."""
    problems: list[Problem] = []
    while True:
        try:
            return Document.model_validate(raw), problems
        except ValidationError as error:
            problems += [problem for problem in from_validation(error, raw) if problem not in problems]
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
                problem for problem in from_validation(error, known, prefix=table) if problem.value is not None
            ]
    grids = raw.get("grids")
    for name, grid in grids.items() if isinstance(grids, dict) else ():
        for section in ("settings", "factors") if isinstance(grid, dict) else ():
            content = grid.get(section)
            for key in content if isinstance(content, dict) else ():
                if key not in TABLE_OF:
                    problems.append(Problem.unknown(f"grids.{name}.{section}.{key}", content[key], TABLE_OF))
    return problems


def _plan(document: Document, folder: Path) -> tuple[list[PlannedCell], list[Problem]]:
    planned: list[PlannedCell] = []
    problems: dict[tuple[str, str], Problem] = {}
    for name, grid in document.grids.items():
        size = 1
        for values in grid.factors.values():
            size *= len(values)
        if size > MAX_CELLS:
            path = f"grids.{name}.factors"
            problems[path, ""] = Problem(path, size, f"crosses to more than {MAX_CELLS} cells; use fewer values")
            continue
        precision = _grid_precision(document, grid, f"grids.{name}.precision", problems)
        for cell, found in _grid_cells(document, name, grid, folder):
            for problem in found:
                problems.setdefault((problem.path, problem.remedy), problem)
            if cell is not None:
                planned.append(PlannedCell(grid=name, cell=cell, precision=precision, by_query=grid.by_query))
    return planned, list(problems.values())


def _grid_precision(document: Document, grid: Grid, path: str, problems: dict) -> Precision:
    try:
        return Precision.model_validate(document.precision.model_dump() | grid.precision)
    except ValidationError as error:
        for problem in from_validation(error, grid.precision, prefix=path):
            problems[problem.path, problem.remedy] = problem
        return document.precision


def _grid_cells(document: Document, name: str, grid: Grid, folder: Path) -> Iterator[tuple[Cell | None, list[Problem]]]:
    """Yield each cell of a grid, or None with the problems that prevent it."""
    base = {table: dict(getattr(document, table)) for table in TABLES}
    for key, value in grid.settings.items():
        if key in TABLE_OF:
            base[TABLE_OF[key]][key] = value
    factors = {key: values for key, values in grid.factors.items() if key in TABLE_OF}
    for levels, tables in cross(base, factors):

        def place(setting: str, levels: dict[str, int] = levels) -> str:
            if setting in levels:
                return f"grids.{name}.factors.{setting}[{levels[setting]}]"
            return f"grids.{name}.settings.{setting}" if setting in grid.settings else f"{TABLE_OF[setting]}.{setting}"

        known = {t: {k: v for k, v in c.items() if k in TABLES[t].model_fields} for t, c in tables.items()}
        try:
            cell = Cell.model_validate(known)
        except ValidationError as error:
            yield None, from_validation(error, known, place=place)
            continue
        cell, found = read_heads(cell, folder)
        found = found or impossibilities(cell)
        yield cell, [Problem(place(setting), _raw_value(cell, setting), remedy) for setting, remedy in found]


def _raw_value(cell: Cell, setting: str) -> Any:
    return label(getattr(getattr(cell, TABLE_OF[setting]), setting))


def _precision_problems(document: Document) -> Iterator[Problem]:
    sections = {"precision": document.precision.model_dump()}
    sections |= {f"grids.{name}.precision": grid.precision for name, grid in document.grids.items()}
    for path, section in sections.items():
        for kind in ("relative_mcse", "absolute_mcse"):
            content: Any = section.get(kind)
            for measure in content if isinstance(content, dict) else ():
                if measure not in MEASURES:
                    yield Problem.unknown(f"{path}.{kind}.{measure}", content[measure], MEASURES)
        merged: dict[str, Any] = document.precision.model_dump() | section
        floor, ceiling = merged["min_replicates"], merged["max_replicates"]
        if isinstance(floor, int) and isinstance(ceiling, int) and floor > ceiling:
            yield Problem(f"{path}.min_replicates", floor, f"above max_replicates = {ceiling}; lower it or raise that")


def _reference_problems(document: Document, cells: list[PlannedCell]) -> Iterator[Problem]:
    """Grids, factors, settings and values that claims and figures name but the design does not have."""
    yield from _equal_cells(document, cells)
    entries: list[tuple[str, BaseClaim | Figure]] = [(f"claims.{n}", c) for n, c in document.claims.items()]
    entries += [(f"figures.{n}", f) for n, f in document.figures.items()]
    for path, entry in entries:
        if entry.grid not in document.grids:
            yield Problem.unknown(f"{path}.grid", entry.grid, document.grids, what="grid")
            continue
        inside = [planned.cell.coordinates for planned in cells if planned.grid == entry.grid]
        for field in ("x", "hue", "panel"):
            name = getattr(entry, field, None)
            if name is not None and name not in document.grids[entry.grid].factors:
                yield Problem.unknown(f"{path}.{field}", name, document.grids[entry.grid].factors, what="factor")
            elif name is not None and field == "x":
                yield from _numeric_problem(f"{path}.x", name, inside)
        yield from _selection_problems(path, entry, inside, tuple(document.grids[entry.grid].factors))
        if isinstance(entry, BaseClaim) and (entry.measure == "hdi") != (entry.index is not None):
            yield Problem(f"{path}.index", entry.index, 'state index for measure = "hdi", and only then')
        if isinstance(entry, Figure) and (entry.kind == "curve") != (entry.x is not None):
            yield Problem(f"{path}.x", entry.x, 'state x for kind = "curve", and only then')


def _equal_cells(document: Document, cells: list[PlannedCell]) -> Iterator[Problem]:
    """Grids in which two cells cannot be told apart by their factors."""
    for name, grid in document.grids.items():
        inside = [planned.cell.coordinates for planned in cells if planned.grid == name]
        levels = [tuple(coordinates[factor] for factor in grid.factors) for coordinates in inside]
        twice = next((level for level in levels if levels.count(level) > 1), None)
        if twice is not None:
            yield Problem(
                f"grids.{name}.factors", twice, "two cells have these values; remove one, or label it otherwise"
            )


def _numeric_problem(path: str, name: str, inside: list[dict[str, Any]]) -> Iterator[Problem]:
    if not all(isinstance(coordinates[name], (int, float)) for coordinates in inside):
        yield Problem(path, name, "is not a number in every cell; use a numeric factor")


def _selection_problems(
    path: str, entry: BaseClaim | Figure, inside: list[dict[str, Any]], factors: tuple[str, ...]
) -> Iterator[Problem]:
    for field in ("where", "versus"):
        selection = getattr(entry, field, None)
        if selection is None:
            continue
        unknown = [key for key in selection if key not in inside[0]]
        for key in unknown:
            yield Problem.unknown(f"{path}.{field}.{key}", selection[key], inside[0], what="setting")
        wanted = selection if field == "where" else {**entry.where, **selection}
        if not unknown and not any(selected(coordinates, wanted) for coordinates in inside):
            yield Problem(f"{path}.{field}", selection, "selects no cell of the grid; use values that the grid has")
        elif field == "versus" and not set(selection) <= set(factors):
            yield Problem(f"{path}.versus", selection, f"may name factors of the grid only: {', '.join(factors)}")


def selected(coordinates: dict[str, Any], selection: dict[str, Any]) -> bool:
    """Whether a cell has the values that a claim or figure selects; a list stands for its label."""
    wanted = {k: label(tuple(v)) if isinstance(v, list) else v for k, v in selection.items()}
    return all(coordinates[key] == value for key, value in wanted.items())
