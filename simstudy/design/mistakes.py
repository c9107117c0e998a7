"""Mistakes in a design file, as messages that say where, what and what to do."""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from simstudy.design.settings.records import alternatives, any_of, tags
from simstudy.errors import UserError, printable

QUOTED = "'([^']*)'"
"""A name in a message of pydantic."""
MAX_ECHOED = 200
"""Characters of a name in a design that a message shows."""
RULE = "rule"
"""Type of the errors of validators whose message says all."""


_Model = TypeVar("_Model", bound=BaseModel)


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


def validated(
    model: type[_Model], raw: Any, prefix: str = "", place: Callable[[str], str] | None = None
) -> tuple[_Model | None, list[Problem]]:
    """Return a record, or None and what is wrong with it; further arguments as for `from_validation`."""
    try:
        return model.model_validate(raw), []
    except ValidationError as error:
        return None, from_validation(error, raw, model, prefix, place)


def from_validation(
    error: ValidationError,
    raw: Any,
    model: type[BaseModel],
    prefix: str = "",
    place: Callable[[str], str] | None = None,
) -> list[Problem]:
    """Translate what pydantic raised on content at ``prefix``; ``place`` tells paths of settings and parameters."""
    found: dict[str, Problem] = {}
    for detail in error.errors(include_url=False):
        steps, description, kinds, around = _way_to(detail, raw, model)
        head, tail = [prefix] if prefix else [], steps
        if place is not None and len(steps) > 1:
            # A parameter may be stated as a factor or setting of its own.
            parameter = place(f"{steps[1]}.{steps[2]}") if len(steps) > 2 else ""
            head, tail = ([parameter], steps[3:]) if parameter else ([place(str(steps[1]))], steps[2:])
        path = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in [*head, *tail]).lstrip(".")
        value = None if detail["type"] == "missing" or detail["loc"][-1] == "[key]" else detail["input"]
        if detail["type"].startswith("union_tag") and isinstance(value, dict):
            path, value = f"{path}.kind", value.get("kind")
            description = any_of([tag for kind in kinds for tag in tags(kind)])
        remedy = _remedy(detail, description)
        if detail["type"] == "extra_forbidden":
            kind = f' for "{detail["loc"][-2]}"' if len(detail["loc"]) > len(steps) > 1 else ""
            known = [name for kind in around for name in _fields(kind)]
            remedy = f"unknown key{kind}; {hint(str(detail['loc'][-1]), known)}"
        # A union reports an entry once for each alternative.
        found.setdefault(path, Problem(path, value, remedy))
    # A list that is none of the alternatives is one problem, and none of its items.
    return [each for each in found.values() if not any(path.startswith(f"{each.path}[") for path in found)]


def _way_to(detail: Any, raw: Any, model: type[BaseModel]) -> tuple[list[str | int], str, list[Any], list[Any]]:
    """What lies on the way to an error: its place in the file, which has no tags of unions, and what is accepted there.

    That is the description of the innermost field, and the types of the entry and of what holds it.
    """
    steps: list[str | int] = []
    node, description = raw, ""
    around, kinds = [], alternatives(model)
    for step in detail["loc"]:
        if (isinstance(node, dict) and step in node) or (isinstance(node, (list, tuple)) and isinstance(step, int)):
            node = node[step]
            steps.append(step)
        around = kinds
        kinds = [kind for kind in around if len(around) > 1 and step in tags(kind)]
        if not kinds:
            fields = [_fields(kind)[step] for kind in around if step in _fields(kind)]
            description = next((field.description for field in fields if field.description), description)
            inside = [field.annotation for field in fields]
            inside += [get_args(kind)[-1] for kind in around if get_origin(kind) is dict]
            kinds = [kind for annotation in inside for kind in alternatives(annotation)] or around
    # The place of what is missing, or a default, is that of its key.
    if detail["type"] in ("missing", RULE) and isinstance(node, dict) and detail["loc"][-1] != "[key]":
        steps.append(detail["loc"][-1])
    return steps, description, kinds, around


def _fields(kind: Any) -> dict[str, Any]:
    return kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}


def _remedy(detail: Any, description: str) -> str:
    of_key = detail["loc"][-1] == "[key]"
    if detail["type"] == RULE:
        return detail["msg"]
    if detail["type"] in ("missing", "union_tag_not_found"):
        return f"missing; give {description}" if description else "missing; add it"
    if detail["type"] == "union_tag_invalid":
        return f"unknown kind; {hint(detail['ctx']['tag'], re.findall(QUOTED, detail['ctx']['expected_tags']))}"
    if detail["type"] == "literal_error":
        known = re.findall(QUOTED, detail["ctx"]["expected"])
        if of_key:
            return f"unknown key; {hint(detail['input'], known)}"
        near = nearest(str(detail["input"]), known)
        say = f"give {description}" if known[0] in description else f"must be {any_of(known)}"
        return f'did you mean "{near}"? {say}' if near else say
    if detail["type"] == "string_pattern_mismatch" and (of_key or description):
        return "must be lower-case letters and digits, joined by single hyphens" if of_key else f"give {description}"
    message = str(detail["msg"]).replace("Input should be", "must be").replace("Input tag", "the name")
    message = re.sub(r"a valid dictionary( or (instance of \w+|object to extract fields from))?", "a table", message)
    message = re.sub(r"^\w+ should have (.*) after validation.*", r"must have \1", message)
    message = message[0].lower() + message[1:]
    return f"{message}; give {description}" if description else message
