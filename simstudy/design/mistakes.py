"""Mistakes in a design file, as messages that say where, what and what to do."""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self, get_args, get_origin

from pydantic import BaseModel, ValidationError

from simstudy.design.settings.records import alternatives, any_of, tags
from simstudy.errors import UserError
from simstudy.text import printable

QUOTED = "'([^']*)'"
"""A name in a message of pydantic."""
MAX_ECHOED = 200
"""Characters of a name in a design that a message shows."""
RULE = "rule"
"""Type of the errors of validators whose message says all."""


@dataclass(frozen=True)
class Problem:
    """One mistake: the path of the entry in the file, its value (None if it is absent), and what to do."""

    path: str
    value: Any
    remedy: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f" = {self.value!r}"
        shown = shown if len(shown) <= 83 else shown[:80] + "..."
        told = printable(f"{self.path}{shown}: {self.remedy}" if self.path else self.remedy)
        # A design may have made names longer than anybody reads.
        return re.sub(rf"(\S{{{MAX_ECHOED}}})\S+", r"\1...", told)

    def within(self, place: str) -> bool:
        """Whether it is about a place in the file, or about something inside of it."""
        return self.path == place or self.path.startswith((f"{place}.", f"{place}["))

    @classmethod
    def unknown(cls, path: str, value: Any, known: Iterable[str], what: str = "key") -> Self:
        """Return the problem of a name that does not exist, with the nearest that does."""
        known = list(known)
        name = str(value) if what in ("grid", "factor") else path.rsplit(".", 1)[-1]
        return cls(path, value, f"unknown {what}; {hint(name, known)}")


def hint(name: str, known: list[str]) -> str:
    """Return the nearest of the known names, or all of them."""
    near = nearest(name[:MAX_ECHOED], known)
    return f'did you mean "{near}"?' if near else "known: " + (", ".join(known) or "none")


def nearest(name: str, known: list[str]) -> str:
    """Return the known name of the same words, or of a parameter, or else the most alike; empty if none is."""
    same = [each for each in known if _words(each) == _words(name) or each.rpartition(".")[2] == name]
    # Long names that share an ending may mean the opposite; of three letters, one typing error takes a third.
    cutoff = 0.7 if len(name) > 3 else 0.6
    return next(iter(same or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), "")


def _words(name: str) -> list[str]:
    return sorted(re.split("[-_ ]", name.lower()))


class DesignError(UserError):
    """All mistakes found in one design; ``place`` is the path of its file, or the name of the study."""

    def __init__(self, place: str, problems: list[Problem]) -> None:
        self.place = place
        self.problems = problems
        super().__init__(*(f"{place}: {problem}" for problem in problems))


def from_validation(
    error: ValidationError,
    raw: Any,
    model: type[BaseModel],
    prefix: str = "",
    place: Callable[[str], str] | None = None,
) -> list[Problem]:
    """Translate what pydantic raised on content at ``prefix``; ``place`` tells paths of settings and parameters."""
    problems = []
    for detail in error.errors(include_url=False):
        steps = _steps(detail, raw)
        if place is not None and len(steps) > 1:
            # A parameter may be stated as a factor or setting of its own.
            parameter = place(f"{steps[1]}.{steps[2]}") if len(steps) > 2 else ""
            head, tail = ([parameter], steps[3:]) if parameter else ([place(str(steps[1]))], steps[2:])
        else:
            head, tail = [prefix] if prefix else [], steps
        path = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in [*head, *tail]).lstrip(".")
        description, kinds = _expected_at(model, detail["loc"])
        value = None if detail["type"] == "missing" or detail["loc"][-1] == "[key]" else detail["input"]
        if detail["type"].startswith("union_tag") and isinstance(value, dict):
            path, value = f"{path}.kind", value.get("kind")
            description = any_of([tag for kind in kinds for tag in tags(kind)])
        remedy = _remedy(detail, description)
        if detail["type"] == "extra_forbidden":
            known = [name for kind in _expected_at(model, detail["loc"][:-1])[1] for name in _fields(kind)]
            kind = f' for "{detail["loc"][-2]}"' if len(detail["loc"]) > len(steps) > 1 else ""
            remedy = f"unknown key{kind}; {hint(str(detail['loc'][-1]), known)}"
        problems.append(Problem(path, value, remedy))
    return _without_echoes(problems)


def _steps(detail: Any, raw: Any) -> list[str | int]:
    """The place of an error in the file, which has no tags of unions; with a key that is missing, or its default."""
    steps: list[str | int] = []
    node = raw
    for step in detail["loc"]:
        if (isinstance(node, dict) and step in node) or (isinstance(node, (list, tuple)) and isinstance(step, int)):
            node = node[step]
            steps.append(step)
    absent = detail["type"] in ("missing", RULE) and isinstance(node, dict)
    return [*steps, detail["loc"][-1]] if absent else steps


def _remedy(detail: Any, description: str) -> str:
    if detail["type"] in ("missing", "union_tag_not_found"):
        return f"missing; give {description}" if description else "missing; add it"
    if detail["type"] == "union_tag_invalid":
        return f"unknown kind; {hint(detail['ctx']['tag'], re.findall(QUOTED, detail['ctx']['expected_tags']))}"
    if detail["type"] == "literal_error" and detail["loc"][-1] == "[key]":
        return f"unknown key; {hint(detail['input'], re.findall(QUOTED, detail['ctx']['expected']))}"
    if detail["type"] == "string_pattern_mismatch" and detail["loc"][-1] == "[key]":
        return "must be lower-case letters and digits, joined by single hyphens"
    if detail["type"] == "literal_error":
        return _of_these(str(detail["input"]), re.findall(QUOTED, detail["ctx"]["expected"]), description)
    if detail["type"] == "string_pattern_mismatch" and description:
        return f"give {description}"
    if detail["type"] == RULE:
        return detail["msg"]
    message = str(detail["msg"]).replace("Input should be", "must be").replace("Input tag", "the name")
    message = re.sub(r"a valid dictionary( or (instance of \w+|object to extract fields from))?", "a table", message)
    message = re.sub(r"^\w+ should have (.*) after validation.*", r"must have \1", message)
    message = message[0].lower() + message[1:]
    return f"{message}; give {description}" if description else message


def _of_these(stated: str, known: list[str], description: str) -> str:
    near = nearest(stated, known)
    say = f"give {description}" if known[0] in description else f"must be {any_of(known)}"
    return f'did you mean "{near}"? {say}' if near else say


def _without_echoes(problems: list[Problem]) -> list[Problem]:
    """Keep one problem for each entry, which unions report once for each alternative, and none of lists for items."""
    kept: dict[str, Problem] = {}
    for problem in problems:
        kept.setdefault(problem.path, problem)
    return [each for each in kept.values() if not any(path.startswith(f"{each.path}[") for path in kept)]


def _expected_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> tuple[str, list[Any]]:
    """What the entry at a pydantic location accepts: description of the innermost field on the way there, and types."""
    found, kinds = "", alternatives(model)
    for step in loc:
        tagged = [kind for kind in kinds if len(kinds) > 1 and step in tags(kind)]
        if tagged:
            kinds = tagged
            continue
        fields = [_fields(kind)[step] for kind in kinds if step in _fields(kind)]
        found = next((field.description for field in fields if field.description), found)
        inside = [field.annotation for field in fields]
        inside += [get_args(kind)[-1] for kind in kinds if get_origin(kind) is dict]
        kinds = [kind for annotation in inside for kind in alternatives(annotation)] or kinds
    return found, kinds


def _fields(kind: Any) -> dict[str, Any]:
    return kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
