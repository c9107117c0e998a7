"""Immutable validated records, their types of numbers, and messages about mistakes in them."""

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetPydanticSchema, ValidationError
from pydantic_core import PydanticCustomError, core_schema

from simstudy.errors import STEERING, UserError, printable

LARGEST, SMALLEST = 1e9, 1e-9
"""Bounds on the magnitude of a nonzero number: the ratio of two squares, 1e36, still fits in float32."""
MAX_COUNT = 2**53
"""Largest count: counts become coordinates, and float64 is exact for whole numbers up to 2⁵³."""
_QUOTED = "'([^']*)'"
_MAX_ECHOED = 200
_Model = TypeVar("_Model", bound=BaseModel)
Steps = list[str | int]
"""Keys and positions that lead to an entry."""


def refusal(remedy: str, kind: str = "rule") -> PydanticCustomError:
    """Return the error of a validator with its whole message; kind "unread" if the value itself is not at fault."""
    return PydanticCustomError(kind, "{remedy}", {"remedy": remedy})  # type: ignore[arg-type]


def _plain(text: str, allowed: str = "") -> str:
    if found := {*STEERING.findall(text)} - {*allowed}:
        raise refusal(f"must hold no control character; U+{ord(min(found)):04X} is one")
    return text


Line = Annotated[str, AfterValidator(_plain)]
"""One line of text, without control characters, as terminals, figures and pages show it."""
Paragraphs = Annotated[str, AfterValidator(partial(_plain, allowed="\n\t"))]
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Real = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Whole = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Several = Annotated[int, Field(ge=2, le=MAX_COUNT)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Degrees = Annotated[float, Field(ge=0, le=90, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Part = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
# TOML arrays arrive as lists; records hold tuples, which cannot change after validation.
Vector = Annotated[tuple[Real, ...], Field(strict=False, min_length=1)]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of a function, parameter or measure; its existence in a cell is checked later."""
Path = Annotated[Line, Field(exclude=True)]
"""Path of a file, relative to the design; the contents of the file, not the path, identify a cell."""


def records_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the records in an annotation, also within unions, lists and tables."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [record for part in get_args(annotation) for record in records_in(part)]


def tags(record: type[BaseModel]) -> tuple[str, ...]:
    """Return the values of ``kind`` that distinguish a record within a union; empty if it has no kind."""
    return get_args(record.model_fields["kind"].annotation) if "kind" in record.model_fields else ()


class Record(BaseModel):
    """Immutable, strictly typed record that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    def __init_subclass__(cls, kind: str | tuple[str, ...] = (), **constants: Any) -> None:
        """Restrict the field ``kind``, which distinguishes alternatives, to the given texts; set class variables."""
        super().__init_subclass__()
        for name, value in constants.items():
            setattr(cls, name, value)
        if kind:
            cls.__annotations__ = cls.__annotations__ | {"kind": Literal[kind]}

    if not TYPE_CHECKING:  # pydantic's, for private attributes, takes half of the time to load a large grid
        __getattr__ = object.__getattribute__

    def __copy__(self) -> Self:
        """Copy fields without cached properties, which follow from fields and may differ in a changed copy."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields:
            del copied.__dict__[name]
        return copied


class Choice(Record):
    """One alternative of a setting, identified by its kind; the label names it in tables and changes no number."""

    kind: str
    label: Line = Field("", exclude=True, min_length=1, max_length=60)

    def model_post_init(self, _: Any) -> None:
        """Fill in the label: ``student_t(df=5)``, unless the design states one."""
        # Records are frozen: an ordinary assignment is refused.
        object.__setattr__(self, "label", self.label or self._described())

    def _described(self) -> str:
        """Return the default label."""
        inside = _brief({k: v for k, v in self if k in self.model_fields_set - {"kind"}})[1:-1]
        return f"{self.kind}({inside})" if inside else self.kind


def _brief(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_brief(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={_brief(v)}" for k, v in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def tagged_union(kind: str = "", parameter: str = "", bare: tuple[type, ...] = ()) -> GetPydanticSchema:
    """Return the annotation of alternatives that their field ``kind`` distinguishes, by default the given ``kind``.

    A text is read as a table of that kind, a value of a ``bare`` type as the parameter of the default kind.
    """

    def table(value: Any) -> Any:
        if isinstance(value, str):
            return {"kind": value}
        if isinstance(value, bare):
            return {"kind": kind, parameter: value}
        return {"kind": kind, **value} if kind and isinstance(value, dict) else value

    by_kind, before = Field(discriminator="kind"), core_schema.no_info_before_validator_function
    return GetPydanticSchema(lambda source, handler: before(table, handler(Annotated[source, by_kind])))


class Problem(NamedTuple):
    """One mistake: the path of the entry in the file, its value (None if it is absent), and the remedy."""

    path: str
    value: Any
    remedy: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f" = {self.value!r}"
        shown = shown if len(shown) <= 83 else shown[:80] + "..."
        line = printable(f"{self.path}{shown}: {self.remedy}" if self.path else self.remedy)
        # Names in a design may be longer than a line.
        return re.sub(rf"(\S{{{_MAX_ECHOED}}})\S+", r"\1...", line)

    @classmethod
    def unknown(cls, path: str, value: Any, known: Iterable[str], noun: str = "key") -> Self:
        """Return the problem of an unknown name, with the nearest known one."""
        name = str(value) if noun in ("grid", "factor") else path.rsplit(".", 1)[-1]
        return cls(path, value, f"unknown {noun}; {hint(name, list(known))}")


class DesignError(UserError):
    """Mistakes found in one design; ``place`` is the path of its file, or the name of the study."""

    def __init__(self, place: str, problems: list[Problem]) -> None:
        self.place, self.problems = place, problems
        super().__init__(*(f"{place or 'design'}: {problem}" for problem in problems))


def mistake(path: str, value: Any, remedy: str) -> DesignError:
    """Return the error of one mistake; the caller adds the name of the design."""
    return DesignError("", [Problem(path, value, remedy)])


def hint(name: str, known: list[str]) -> str:
    """Return the nearest of the known names, or all of them."""
    near = nearest(name[:_MAX_ECHOED], known)
    return f'did you mean "{near}"?' if near else "known: " + (", ".join(known) or "none")


def nearest(name: str, known: list[str]) -> str:
    """Return the known name of the same words or last part, else the most similar; empty if none is similar."""
    words, *others = (sorted(re.split("[-_ ]", each.lower())) for each in (name, *known))
    same = [each for each, key in zip(known, others, strict=True) if key == words or each.rpartition(".")[2] == name]
    # Long names with a common ending may be opposites; a typing error changes a third of a name of three letters.
    return next(iter(same or difflib.get_close_matches(name, known, n=1, cutoff=0.7 if len(name) > 3 else 0.6)), "")


def path_of(steps: Iterable[str | int]) -> str:
    """Return keys and positions as a path: ``claims.NAME.where``, ``factors.angle[1]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")


def validated(
    model: type[_Model], raw: Any, at: Callable[[Steps], Steps] = list, place: str = "", context: Any = None
) -> _Model:
    """Return a record; `DesignError` with the mistakes in it, each at the place to which ``at`` maps its steps."""
    try:
        return model.model_validate(raw, context=context)
    except ValidationError as error:
        found = [_problem(detail, raw, model, at) for detail in error.errors(include_url=False)]
        # If an item of a list fits no alternative, only the mistake of the item is kept.
        inner = [each for each in found if not any(other.path.startswith(f"{each.path}[") for other in found)]
        raise DesignError(place, [*{problem.path: problem for problem in inner}.values()]) from None


def _problem(detail: Any, raw: Any, model: type[BaseModel], at: Callable[[Steps], Steps]) -> Problem:
    kind, location, value, context = detail["type"], detail["loc"], detail["input"], detail.get("ctx", {})
    steps, node = Steps(), raw
    for step in location:
        with contextlib.suppress(TypeError, LookupError):  # locations also contain the kinds of alternatives
            node = node[step]
            steps.append(step)
    if kind in ("missing", "rule") and location[-1] != "[key]" and location[-1] not in steps[-1:]:
        steps.append(location[-1])
    if kind in ("missing", "union_tag_not_found", "unread") or location[-1] == "[key]":
        value = None
    if kind.startswith("union_tag") and isinstance(detail["input"], dict):
        steps, value = [*steps, "kind"], detail["input"].get("kind")
    remedy = re.split(" or (?:instance|object) ", detail["msg"].replace("tuple", "list").replace("Tuple", "List"))[0]
    if kind == "extra_forbidden":
        remedy = f"unknown key; {hint(str(location[-1]), _fields_at(model, location[:-1]))}"
    elif kind in ("missing", "union_tag_not_found"):
        remedy = "missing; add it"
    elif kind == "string_pattern_mismatch" and "(-" in context["pattern"]:
        remedy = "not a valid name; use lower-case letters and digits, joined by single hyphens"
    elif kind == "union_tag_invalid":
        remedy = f"unknown kind; {hint(context['tag'], re.findall(_QUOTED, context['expected_tags']))}"
    elif kind == "string_type" and location[-1] not in steps:  # the last alternative of a parameter of functions
        remedy = "must be a number, a text, true or false; let functions look up other values by a name"
    elif kind == "literal_error" and (near := nearest(str(value), re.findall(_QUOTED, context["expected"]))):
        remedy = f'did you mean "{near}"? {remedy}'
    return Problem(path_of(at(steps)), value, remedy)


def _fields_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the names of the fields of the record at a location."""
    records = [model]
    for step in location:
        inside = [each.model_fields[step].annotation for each in records if step in each.model_fields]
        matching = [each for each in records if step in tags(each)]
        records = matching or [record for annotation in inside for record in records_in(annotation)] or records
    return list(dict.fromkeys(name for each in records for name in each.model_fields))
