"""A design read once, strictly, into an immutable `Design`; the mistakes in it reported together."""

import copy
import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simstudy.design.cells import plan_grids
from simstudy.design.document import NAME, Design, Document, PlannedCell
from simstudy.design.figures import Figure
from simstudy.design.mistakes import DesignError, Problem, from_validation
from simstudy.design.references import refer
from simstudy.design.rules import notes, unanswerable
from simstudy.design.settings.cell import TABLE_OF, TABLES
from simstudy.design.settings.levels import setting_of
from simstudy.design.written import Source, Written, read_design


def load_design(design: Source, profile: str = "quick", trust: Iterable[str | Path] = ()) -> Design:
    """Return a design under one profile, or raise every mistake; code that is not trusted is never run."""
    written = read_design(design)
    merged = _under_profile(written, profile)
    document, problems = _validate(merged)
    problems += [*_table_problems(merged), *_in_other_profiles(written, profile)]
    if document is None:
        raise _refused(written, profile, problems)
    grids, found = plan_grids(merged, document, written.folder, trust, problems)
    problems = _with_first(problems, found)
    entries = {f"claims.{name}": claim for name, claim in document.claims.items()}
    references, unknown = refer(grids, entries | {f"figures.{name}": each for name, each in document.figures.items()})
    problems += unknown
    problems = problems or list(unanswerable(document, grids, references))
    if written.problems or problems:
        raise _refused(written, profile, problems)
    return Design(
        study=document.study,
        profile=profile,
        cells=tuple(
            PlannedCell(grid=name, cell=cell, precision=grid.precision, by_query=grid.by_query, exact=grid.exact)
            for name, grid in grids.items()
            for cell in grid.cells
        ),
        factors={name: tuple(grid.factors) for name, grid in document.grids.items()},
        claims=document.claims,
        figures=document.figures,
        titles={name: grid.title for name, grid in document.grids.items()},
        text=written.text,
        path=written.path,
        budget=document.budget,
        notes=tuple(map(str, notes(grids.values(), references))),
    )


def _refused(written: Written, profile: str, problems: list[Problem]) -> DesignError:
    placed = [_in_profile(problem, written, profile) for problem in problems]
    return DesignError(written.place, _with_first(written.problems, placed))


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


def _in_other_profiles(written: Written, profile: str) -> Iterator[Problem]:
    """Yield the wrong entries of profiles that are not used, as far as they show without the cells."""
    for other in written.tables["profiles"].keys() - {profile}:
        found = (_in_profile(each, written, other) for each in _validate(_under_profile(written, other))[1])
        yield from (problem for problem in found if problem.within(f"profiles.{other}"))


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


def _under_profile(written: Written, profile: str) -> dict[str, Any]:
    profiles = written.tables.get("profiles", {})
    problem = None
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
        problem = Problem("profiles", profiles, "write each profile as a table [profiles.NAME]")
    elif written.tables and written.tables.keys() <= {"claims", "numbers"}:
        problem = Problem("", None, "claims about numbers of your own, and no design; give them to simstudy judge")
    elif profile not in profiles:
        known = ", ".join(profiles) or f"none; add [profiles.{profile}]"
        problem = Problem("profiles", profile, f"no such profile; the design has: {known}")
        tables = (*Document.model_fields, "profiles")
        unknown = [Problem.unknown(name, None, tables) for name in written.tables if name not in tables]
        if unknown:
            raise DesignError(written.place, unknown)
    elif not re.fullmatch(NAME, profile):
        problem = Problem("profiles", profile, "lower-case letters, digits and single hyphens only")
    if problem is not None:
        raise DesignError(written.place, [problem])
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
        if parent is not None and steps == ["precision", "min_replicates"]:
            parent["min_replicates"] = 1  # below any ceiling, as the default may not be
    return sound


def _table_problems(raw: dict[str, Any]) -> Iterator[Problem]:
    """Faulty entries of the setting tables, also those that every grid replaces; unknown settings of a grid."""
    for table, model in TABLES.items():
        content = _table(raw, table)
        try:
            model.model_validate(content)
        except ValidationError as error:
            found = from_validation(error, content, model, prefix=table)
            yield from (problem for problem in found if problem.value is not None)
    for name in _table(raw, "grids"):
        for section in ("settings", "factors"):
            content = _table(raw, "grids", name, section)
            for key in content:
                if setting_of(key) not in TABLE_OF:
                    yield Problem.unknown(f"grids.{name}.{section}.{key}", content[key], TABLE_OF)


def _table(raw: Any, *path: str) -> dict[str, Any]:
    for step in path:
        raw = raw.get(step) if isinstance(raw, dict) else None
    return raw if isinstance(raw, dict) else {}
