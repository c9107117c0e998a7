"""Claims on a user's numbers: the records of designs, of a mean under conditions instead of a measure in cells."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, Union

from pydantic import Field, create_model

from simstudy.design import document as designed
from simstudy.design.answerable import PlannedGrid, refer
from simstudy.design.document import BaseClaim, Name, ViolatedPairs
from simstudy.design.load import parse, read_design, read_file
from simstudy.design.settings.cell import Coordinates
from simstudy.design.settings.records import DesignError, Line, Positive, Problem, Record, validated
from simstudy.errors import UserError
from simstudy.judging.table import Columns

GRID = "numbers"  # the conditions of the table
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
    designed.Optimum: {"value": (Positive, Field(description="the x claimed")), "source": (None, None)},
    designed.OptimumSlope: {},
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


def read_claims(claims: Any) -> tuple[str, ClaimsFile]:
    """Read a file of claims, its text, tables by name, or a `simstudy.Study`; return what messages call it, and it."""
    place = "claims"
    if isinstance(claims, Mapping):
        within = isinstance(stated := claims.get("claims"), Mapping) and "kind" not in stated
        stating = {name: claims[name] for name in ("numbers", "claims") if name in claims}
        tables = read_design(stating if within else {"claims": claims}).tables
    elif isinstance(claims, str) and "\n" in claims:
        tables = parse(place, claims)
    elif isinstance(claims, (str, Path)):
        place, *_, tables = read_file(Path(claims))
    else:
        kind = type(claims).__name__
        raise UserError(f"claims of type {kind}; give tables by name, the path of a TOML file, or its text")
    return place, validated(ClaimsFile, tables, place=place)


def require_answerable(
    place: str, claims: Mapping[str, BaseClaim], conditions: Sequence[Coordinates]
) -> dict[str, list[list[int]]]:
    """Refuse claims that name what the conditions do not have; return which conditions each claim compares."""
    cells: Any = [SimpleNamespace(coordinates=each) for each in conditions]
    factors = tuple(conditions[0])
    grid = PlannedGrid(GRID, factors, cells, selectable=factors, words=("condition", "table", "factor"))
    entries = {f"claims.{name}": claim for name, claim in claims.items()}
    references = refer({GRID: grid}, entries, place)
    compared = {}
    for (path, claim), reference in zip(entries.items(), references, strict=True):
        groups = reference.compared or [[number] for number in reference.chosen]
        if isinstance(claim, ViolatedPairs):
            if (against := claim.against) not in factors:
                raise DesignError(place, [Problem.unknown(f"{path}.against", against, factors, what="factor")])
            if not all(isinstance(each[against], (int, float)) for each in conditions):
                fault = "is not a number under every condition; use a numeric factor"
                raise DesignError(place, [Problem(f"{path}.against", against, fault)])
            groups = [reference.chosen]
        compared[path.removeprefix("claims.")] = groups
    return compared
