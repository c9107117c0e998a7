"""A design file to a design: read, profile applied, validated once, cells made, claims and figures referred to them."""

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from simstudy.design.answerable import require_answerable
from simstudy.design.cells import cells_of, require_few_cells
from simstudy.design.confirmation import confirmatory
from simstudy.design.document import NAME, Declared, Design, Document, Grid, PlannedCell, Precision
from simstudy.design.domain import Domain
from simstudy.design.mistakes import DesignError, Problem, Steps, mistake, validated
from simstudy.design.own_code import OwnFiles, trusted_texts
from simstudy.design.references import PlannedGrid
from simstudy.design.settings.cell import TABLES
from simstudy.design.written import Source, is_shipped, parse, read_design


def load_design(
    design: Source, profile: str = "quick", trust: Iterable[str | Path] = (), confirm: str | None = None
) -> Design:
    """Return a design under one profile; `DesignError` tells its mistakes. Code that is not trusted is never run.

    With ``confirm``, a text, seeds and the settings that are drawn from domains follow from the design and that text.
    """
    written = read_design(design)
    shipped = written.path is not None and is_shipped(written.path)
    named = [trust] if isinstance(trust, str | Path) else trust
    # Functions of shipped studies are trusted, and not on trial: tests have tried them, and some load models.
    trusted = trusted_texts([*named, *(sorted(written.folder.glob("*.py")) if shipped else [])])
    files = OwnFiles(written.folder, trusted, trial=not shipped)
    try:
        raw = _under_profile(written.tables, profile)
        document = validated(Document, raw, context=files)
        require_few_cells(document)
        drawn_from = None if confirm is None else [written.text, confirm]
        grids = {}
        for name, grid in document.grids.items():
            precision = _precision_of(document, name, grid)
            cells = cells_of(document, name, grid, files, drawn_from)
            drawn = tuple(grid.domain)
            grids[name] = PlannedGrid(name, grid.all_factors, cells, grid.exact, grid.by_query, precision, drawn)
        require_answerable(document, grids)
    except DesignError as error:
        placed = [_in_profile(each, written.tables, profile) for each in error.problems]
        raise DesignError(written.place, placed) from None
    smooth = {name for name, told in document.measures.items() if not told.counted}
    planned = (
        PlannedCell(
            grid=name, cell=cell, precision=grid.precision, by_query=grid.by_query, exact=grid.exact,
            # Numbers or shares of events, for all that is known of functions.
            counted=frozenset(() if cell.functions is None else {*cell.statistics} - smooth),
        )
        for name, grid in grids.items() for cell in grid.cells
    )  # fmt: skip
    loaded = Design(
        **{name: getattr(document, name) for name in Declared.model_fields},
        profile=profile,
        cells=tuple(planned),
        factors={name: grid.all_factors for name, grid in document.grids.items()},
        titles={name: grid.title for name, grid in document.grids.items()},
        domains={n: Domain(laws=grid.domain, cells=grid.cells) for n, grid in document.grids.items() if grid.domain},
        text=written.text,
        path=written.path,
    )
    return loaded if confirm is None else confirmatory(loaded, confirm)


def _precision_of(document: Document, name: str, grid: Grid) -> Precision:
    stated = document.precision.model_dump() | grid.precision
    prefix: Steps = ["grids", name]
    return validated(Precision, stated, lambda at: [*(prefix if at[0] in grid.precision else []), "precision", *at])


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
        As by `load_design`, under the first profile with a mistake.
    """
    return {profile: load_design(design, profile, trust) for profile in profiles_of(design) or ("quick",)}


def declared(text: str, profile: str) -> Document:
    """Return what a design declares, from its text as results hold it: valid, or there were none.

    Functions of the study are not run: numbers of claims that they give are 1.
    """
    context = SimpleNamespace(number=lambda function, parameters: 1.0)
    return Document.model_validate(_under_profile(parse("design", text), profile), context=context)


def profiles_of(design: Source) -> tuple[str, ...]:
    """Return the names of the profiles of a design."""
    profiles = read_design(design).tables.get("profiles", {})
    return tuple(profiles) if isinstance(profiles, dict) else ()


def _under_profile(tables: dict[str, Any], profile: str) -> dict[str, Any]:
    profiles = tables.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
        raise mistake("profiles", profiles, "write each profile as a table [profiles.NAME]")
    if tables and tables.keys() <= {"claims", "numbers"}:
        raise mistake("", None, "claims about numbers of your own, and no design; give them to simstudy judge")
    if profile not in profiles:
        known = (*Document.model_fields, "profiles")
        for name in (name for name in tables if name not in known):
            raise DesignError("", [Problem.unknown(name, None, known)])
        remedy = f"no such profile; the design has: {', '.join(profiles) or 'none; add [profiles.' + profile + ']'}"
        raise mistake("profiles", profile, remedy)
    if not re.fullmatch(NAME, profile):
        raise mistake("profiles", profile, "lower-case letters, digits and single hyphens only")
    return _overlay({name: table for name, table in tables.items() if name != "profiles"}, profiles[profile])


def _overlay(base: dict[str, Any], changes: dict[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Overlay ``changes`` on ``base``, table by table; a factor list or a composite setting is replaced whole."""
    merged = dict(base)
    holds_settings = (path[:1] and path[0] in TABLES) or (path[:1] == ("grids",) and path[2:] == ("settings",))
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(base.get(key), dict) and not holds_settings
        merged[key] = _overlay(base[key], value, (*path, key)) if nested else value
    return merged


def _in_profile(problem: Problem, tables: dict[str, Any], profile: str) -> Problem:
    """Return a problem with the place of its entry in the file: in the profile if that states it."""
    stated: Any = tables.get("profiles", {})
    stated = stated.get(profile, {}) if isinstance(stated, dict) else {}
    for step in re.split(r"[.\[]", problem.path):
        if isinstance(stated, dict) and step not in stated:
            return problem
        stated = stated[step] if isinstance(stated, dict) else None
    return Problem(f"profiles.{profile}.{problem.path}", problem.value, problem.remedy)
