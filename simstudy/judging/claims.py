"""Claims on a user's numbers: the records of designs, of a mean under conditions instead of a measure in cells."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, Union

from pydantic import Field, create_model

from simstudy.design import claims as designed
from simstudy.design.claims import BaseClaim, ViolatedPairs
from simstudy.design.document import Name
from simstudy.design.mistakes import DesignError, Problem, validated
from simstudy.design.references import PlannedGrid, refer
from simstudy.design.settings.levels import Coordinates
from simstudy.design.settings.records import Line, Positive, Real, Record
from simstudy.design.written import parse, read_design, written_text
from simstudy.errors import UserError
from simstudy.judging.table import Columns

GRID = "numbers"
"""Name of the one grid: the conditions of the table."""
_X = (Positive, Field(description="the x claimed"))
_FIXED: dict[str, Any] = {
    "grid": (Literal["numbers"], GRID),
    "measure": (Literal["mean"], "mean"),
    "index": (None, None),
    "these_draws": (Literal[""], ""),
    "stands": (None, None),
    "holds": (Literal["everywhere"], "everywhere"),
    "statement": (Line, Field("")),
}
_CHANGED: dict[type[BaseClaim], dict[str, Any]] = {
    designed.Equals: {},
    designed.LargerThan: {},
    designed.Monotone: {},
    designed.Slope: {},
    designed.Optimum: {"value": _X, "source": (None, None)},
    designed.OptimumSlope: {"value": (Real, Field(description="the slope claimed")), "source": (None, None)},
    designed.ViolatedPairs: {"against": (Line, Field(description="a numeric factor"))},
}
"""Kinds of claims, and their entries that differ from those of designs: no theory, no diversity index."""
_KINDS = tuple(
    create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, **_FIXED, **changed)
    for kind, changed in _CHANGED.items()
)
OwnClaim: Any = Annotated[Union[_KINDS], Field(discriminator="kind")]  # noqa: UP007 - of a tuple


class ClaimsFile(Record):
    """A file of claims: which columns of the numbers are what, and claims by name."""

    numbers: Columns = Columns()
    claims: Annotated[dict[Name, OwnClaim], Field(min_length=1)]


class Stated(NamedTuple):
    """Claims as they were stated, and what messages call them: the path of their file, or "claims"."""

    place: str
    columns: Columns
    claims: dict[str, BaseClaim]


def read_claims(claims: Any) -> Stated:
    """Read claims, be they the path of a file, its text, tables by name, or a `simstudy.Study` that states claims."""
    place, tables = _tables(claims)
    document = validated(ClaimsFile, tables, place=place)
    return Stated(place, document.numbers, document.claims)


def _tables(claims: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(claims, Mapping):
        stated = claims.get("claims")
        within = isinstance(stated, Mapping) and "kind" not in stated
        stating = {name: claims[name] for name in ("numbers", "claims") if name in claims}
        written = read_design(stating if within else {"claims": claims})
        return "claims", written.tables
    if isinstance(claims, str) and "\n" in claims:
        return "claims", parse("claims", claims)
    if isinstance(claims, (str, Path)):
        return str(claims), parse(str(claims), written_text(Path(claims)))
    kind = type(claims).__name__
    raise UserError(f"claims of type {kind}; give tables by name, the path of a TOML file, or its text")


def require_answerable(
    stated: Stated, conditions: Sequence[Coordinates], factors: tuple[str, ...]
) -> dict[str, list[list[int]]]:
    """Refuse claims that name what the conditions do not have; return which conditions each claim compares."""
    cells: Any = [SimpleNamespace(coordinates=each) for each in conditions]
    names = tuple(conditions[0])
    grid = PlannedGrid(GRID, factors, cells, selectable=names, noun="condition", whole="table", setting="factor")
    entries = {f"claims.{name}": claim for name, claim in stated.claims.items()}
    references = refer({GRID: grid}, entries, stated.place)
    compared = {}
    for path, claim in entries.items():
        against = claim.against if isinstance(claim, ViolatedPairs) else factors[0]
        if against not in factors:
            unknown = Problem.unknown(f"{path}.against", against, factors, what="factor")
            raise DesignError(stated.place, [unknown])
        if claim.kind == "violated_pairs" and not all(isinstance(each[against], (int, float)) for each in conditions):
            fault = "is not a number under every condition; use a numeric factor"
            raise DesignError(stated.place, [Problem(f"{path}.against", against, fault)])
    for name, reference in zip(stated.claims, references, strict=True):
        alone = [[number] for number in reference.chosen]
        ordered = isinstance(reference.entry, ViolatedPairs)
        compared[name] = [reference.chosen] if ordered else reference.compared or alone
    return compared
