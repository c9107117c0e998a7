"""Mistakes in a design file, as messages that say where, what and what to do."""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from simstudy.design.settings.records import records_in, tags
from simstudy.errors import UserError, printable

RULE = "rule"
"""Type of the errors of validators whose message says all."""
_QUOTED = "'([^']*)'"
_MAX_ECHOED = 200
_Model = TypeVar("_Model", bound=BaseModel)
Steps = list[str | int]
"""Keys and positions that lead to an entry."""


@dataclass(frozen=True)
class Problem:
    """One mistake: the path of the entry in the file, its value (None if it is absent), and what to do."""

    path: str
    value: Any
    remedy: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f" = {self.value!r}"
        shown = shown if len(shown) <= 83 else shown[:80] + "..."
        line = printable(f"{self.path}{shown}: {self.remedy}" if self.path else self.remedy)
        # A design may have made names longer than anybody reads.
        return re.sub(rf"(\S{{{_MAX_ECHOED}}})\S+", r"\1...", line)

    @classmethod
    def unknown(cls, path: str, value: Any, known: Iterable[str], what: str = "key") -> Self:
        """Return the problem of a name that does not exist, with the nearest that does."""
        name = str(value) if what in ("grid", "factor") else path.rsplit(".", 1)[-1]
        return cls(path, value, f"unknown {what}; {hint(name, list(known))}")


class DesignError(UserError):
    """Mistakes found in one design; ``place`` is the path of its file, or the name of the study."""

    def __init__(self, place: str, problems: list[Problem]) -> None:
        self.place, self.problems = place, problems
        super().__init__(*(f"{place}: {problem}" for problem in problems))


def mistake(path: str, value: Any, remedy: str) -> DesignError:
    """Return the error of one mistake, of a design that whoever loads it will name."""
    return DesignError("", [Problem(path, value, remedy)])


def hint(name: str, known: list[str]) -> str:
    """Return the nearest of the known names, or all of them."""
    near = nearest(name[:_MAX_ECHOED], known)
    return f'did you mean "{near}"?' if near else "known: " + (", ".join(known) or "none")


def nearest(name: str, known: list[str]) -> str:
    """Return the known name of the same words, or of a parameter, or else the most alike; empty if none is."""
    same = [each for each in known if _words(each) == _words(name) or each.rpartition(".")[2] == name]
    # Long names that share an ending may mean the opposite; of three letters, one typing error takes a third.
    cutoff = 0.7 if len(name) > 3 else 0.6
    return next(iter(same or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), "")


def _words(name: str) -> list[str]:
    return sorted(re.split("[-_ ]", name.lower()))


def path_of(steps: Iterable[str | int]) -> str:
    """Return keys and positions as a path: ``claims.NAME.where``, ``factors.angle[1]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")


def validated(
    model: type[_Model], raw: Any, at: Callable[[Steps], Steps] = list, place: str = "", context: Any = None
) -> _Model:
    """Return a record, or raise what pydantic finds wrong; ``at`` tells where the file states an entry."""
    try:
        return model.model_validate(raw, context=context)
    except ValidationError as error:
        found = [_problem(detail, raw, model, at) for detail in error.errors(include_url=False)]
        # A list of which an item is none of the alternatives is one mistake, that of the item.
        inner = [each for each in found if not any(other.path.startswith(f"{each.path}[") for other in found)]
        raise DesignError(place, [*{problem.path: problem for problem in inner}.values()]) from None


def _problem(detail: Any, raw: Any, model: type[BaseModel], at: Callable[[Steps], Steps]) -> Problem:
    kind, location, value, context = detail["type"], detail["loc"], detail["input"], detail.get("ctx", {})
    steps: Steps = []
    node = raw
    for step in location:  # kinds of alternatives stand between the keys
        if step in node if isinstance(node, dict) else isinstance(node, list | tuple) and isinstance(step, int):
            node = node[step]
            steps.append(step)
    if kind in ("missing", RULE) and location[-1] != "[key]" and location[-1] not in steps[-1:]:
        steps.append(location[-1])
    if kind in ("missing", "union_tag_not_found", "unread") or location[-1] == "[key]":
        value = None
    if kind.startswith("union_tag") and isinstance(detail["input"], dict):
        steps, value = [*steps, "kind"], detail["input"].get("kind")
    remedy = detail["msg"]
    if kind == "extra_forbidden":
        remedy = f"unknown key; {hint(str(location[-1]), _fields_at(model, location[:-1]))}"
    elif kind in ("missing", "union_tag_not_found"):
        remedy = "missing; add it"
    elif kind == "union_tag_invalid":
        remedy = f"unknown kind; {hint(context['tag'], re.findall(_QUOTED, context['expected_tags']))}"
    elif kind == "literal_error" and (near := nearest(str(value), re.findall(_QUOTED, context["expected"]))):
        remedy = f'did you mean "{near}"? {remedy}'
    return Problem(path_of(at(steps)), value, remedy)


def _fields_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Names that a record at a location may have."""
    records = [model]
    for step in location:
        inside = [each.model_fields[step].annotation for each in records if step in each.model_fields]
        of_kind = [each for each in records if step in tags(each)]
        records = of_kind or [record for annotation in inside for record in records_in(annotation)] or records
    return list(dict.fromkeys(name for each in records for name in each.model_fields))
