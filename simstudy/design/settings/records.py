"""Immutable validated records, and the numbers that they hold."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from simstudy.errors import STEERING, UserError

LARGEST, SMALLEST = 1e9, 1e-9
"""Bounds on the magnitude of a number, zero apart: the ratio of two squares, 1e36, still fits in float32."""
MAX_COUNT = 2**53
"""Largest count of anything: counts become coordinates, and float64 holds whole numbers up to here."""


def _plain(text: str, allowed: str = "") -> str:
    if found := {*STEERING.findall(text)} - {*allowed}:
        message = "must hold no control character; {found} is one"
        raise PydanticCustomError("control_character", message, {"found": f"U+{ord(min(found)):04X}"})
    return text


Line = Annotated[str, AfterValidator(_plain)]
"""One line of text: it is shown in terminals, figures and pages, none of which it may steer."""
Paragraphs = Annotated[str, AfterValidator(partial(_plain, allowed="\n\t"))]
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Real = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Whole = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Several = Annotated[int, Field(ge=2, le=MAX_COUNT)]
Components = Annotated[int, Field(ge=1, le=2**20)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Degrees = Annotated[float, Field(ge=0, le=90, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Part = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
# TOML arrays arrive as lists; the records hold tuples, so that nothing can change after validation.
Vector = Annotated[tuple[Real, ...], Field(strict=False, min_length=1)]
Path = Annotated[Line, Field(exclude=True)]
"""Of a file, relative to the design: its contents and not its path identify a cell."""
Points = Annotated[tuple[Vector, ...], Field(strict=False, min_length=1)]


def records_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the records that an annotation holds, in whatever unions, lists and tables."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [record for part in get_args(annotation) for record in records_in(part)]


def tags(kind: Any) -> tuple[str, ...]:
    """Return the kind, if any, by which a record is distinguished from the other members of a union."""
    field = getattr(kind, "model_fields", {}).get("kind")
    return get_args(field.annotation) if field else ()


class Record(BaseModel):
    """Immutable, strictly typed record that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    def __copy__(self) -> Self:
        """Copy the fields alone: a copy that is changed computes anew what follows from them."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields:
            del copied.__dict__[name]
        return copied


class Choice(Record):
    """One alternative of a setting, known by its kind; its label is what tables call it and decides no number."""

    kind: str
    label: Line = Field("", exclude=True, min_length=1, max_length=60)

    def model_post_init(self, _: Any) -> None:
        """Fill in the label: ``student_t(df=5)``, unless the design states one."""
        if not self.label:
            # The record is frozen for its users; this is still its making.
            object.__setattr__(self, "label", self.described())

    def described(self) -> str:
        """Return the label by default."""
        named = (name for name in type(self).model_fields if name in self.model_fields_set and name != "kind")
        stated = {name: getattr(self, name) for name in named}
        inside = _brief(stated)[1:-1]
        return f"{self.kind}({inside})" if inside else self.kind


def _brief(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_brief(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={_brief(v)}" for k, v in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class tagged_union:
    """Alternatives distinguished by ``kind``, of which one may be left out.

    A text is short for a table of that kind; a value of a ``bare`` type for the one parameter of the kind left out.
    """

    kind: str = ""
    parameter: str = ""
    bare: tuple[type, ...] = ()

    def _table(self, value: Any) -> Any:
        if isinstance(value, str):
            return {"kind": value}
        if isinstance(value, self.bare):
            return {"kind": self.kind, self.parameter: value}
        return {"kind": self.kind, **value} if self.kind and isinstance(value, dict) else value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        union = handler.generate_schema(Annotated[source, Field(discriminator="kind")])
        return core_schema.no_info_before_validator_function(self._table, union)


KINDS = tagged_union()


class Impossible(UserError):
    """A setting of a cell that cannot be: its name, and what to do."""

    def __init__(self, setting: str, remedy: str) -> None:
        super().__init__(f"{setting}: {remedy}")
        self.setting, self.remedy = setting, remedy
