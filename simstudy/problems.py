"""Mistakes in a design file, as messages that say where, what and what to do.

Imports pydantic, settings and the standard library only.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simstudy.settings import TABLES, Record


class UserError(Exception):
    """A mistake that a user can mend: shown as its message alone, exit code 2."""


@dataclass(frozen=True)
class Problem:
    """One mistake: the path of the entry in the file, its value, and what to do."""

    path: str
    value: Any
    remedy: str

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        place = f"{self.path} = {shown}: " if self.path else ""
        return place + self.remedy

    @classmethod
    def unknown(cls, path: str, value: Any, known: Iterable[str], what: str = "key") -> Problem:
        """Return the problem of a name that does not exist, with the nearest that does."""
        known = list(known)
        name = str(value) if what in ("grid", "factor") else path.rsplit(".", 1)[-1]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else "known: " + ", ".join(known)
        return cls(path, value, f"unknown {what}; {hint}")


class DesignError(UserError):
    """All mistakes found in one design file."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.path = path
        self.problems = problems
        super().__init__("\n".join(f"{path}: {problem}" for problem in problems))


def from_validation(
    error: ValidationError,
    raw: Any,
    prefix: str = "",
    place: Callable[[str], str] | None = None,
) -> list[Problem]:
    """Translate a pydantic error into problems.

    Parameters
    ----------
    error
        What pydantic raised.
    raw
        The content that was validated, to find the path of each entry.
    prefix
        Path of ``raw`` in the file.
    place
        For the tables of a cell: path in the file of a setting of that name.
    """
    problems = []
    for detail in error.errors(include_url=False):
        steps = _steps(detail["loc"], raw)
        field = next((s for s in reversed(steps) if isinstance(s, str)), "")
        if place is not None and len(steps) > 1:
            head, tail = [place(str(steps[1]))], steps[2:]
        else:
            head, tail = [prefix] if prefix else [], steps
        path = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in [*head, *tail]).lstrip(".")
        problems.append(Problem(path, None if detail["type"] == "missing" else detail["input"], _remedy(detail, field)))
    return _without_echoes(problems)


def _steps(loc: tuple[str | int, ...], raw: Any) -> list[str | int]:
    """Drop from a pydantic location the union tags, which are not in the file; keep a last missing key."""
    steps: list[str | int] = []
    node = raw
    for position, step in enumerate(loc):
        inside = (isinstance(node, dict) and step in node) or (
            isinstance(node, (list, tuple)) and isinstance(step, int) and step < len(node)
        )
        if inside:
            node = node[step]
            steps.append(step)
        elif position == len(loc) - 1 and isinstance(node, dict) and isinstance(step, str):
            steps.append(step)
    return steps


def _remedy(detail: Any, field: str) -> str:
    description = _descriptions().get(field, "")
    if detail["type"] == "missing":
        return f"missing; give {description}" if description else "missing; add it"
    if detail["type"] == "extra_forbidden":
        return "unknown key; remove it or correct its name"
    message = str(detail["msg"]).replace("Input should be", "must be").replace("Input tag", "the name")
    message = message[0].lower() + message[1:]
    return f"{message}; give {description}" if description else message


def _without_echoes(problems: list[Problem]) -> list[Problem]:
    """Keep one problem for each entry: a union reports an entry once for each of its alternatives."""
    kept: dict[str, Problem] = {}
    for problem in problems:
        kept.setdefault(problem.path, problem)
    return list(kept.values())


@functools.cache
def _descriptions() -> dict[str, str]:
    """What each field accepts, by name; the settings come last, so that their own descriptions win."""
    models = [*_subclasses(Record), *TABLES.values()]
    fields = (item for model in models for item in model.model_fields.items())
    return {name: field.description for name, field in fields if field.description is not None}


def _subclasses(parent: type[Record]) -> Iterable[type[Record]]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)
