"""The claims that a design declares before the run, as immutable records; `verdicts.judge` evaluates them."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from simstudy.design.measures import IndexName
from simstudy.design.settings.records import Line, NonNegative, Positive, Real, Record, Share
from simstudy.errors import UserError

MeasureName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of a measure: whether cells have it is seen later, as functions give measures of their own names."""
Origin = Literal[
    "abstract C1", "abstract C2", "abstract C3", "abstract C4", "abstract C5", "abstract C6", "abstract C7",
    "abstract C8", "abstract C9", "abstract C10", "abstract C11", "related paper", "full text", "consequence",
    "negative control", "foil", "identity", "unstated",
]  # fmt: skip
"""Where a claim comes from: what the abstract of Fokoué (arXiv 2605.20271) asserts, in its order, or another source."""
Theory = Literal["exact", "leading"]
Scale = Literal["linear", "log_log", "log_x"]
Direction = Literal["increasing", "decreasing"]
Verdict = Literal["supported", "contradicted", "undecided"]
Selection = dict[str, Any]
LEVEL = 0.05
"""Chance of a wrong contradiction or support among all claims of a study."""
SELECTION: Any = Field(default_factory=dict)
Factors = Annotated[tuple[str, ...], Field(strict=False)]


class BaseClaim(Record):
    """Entries of all claims: the sentence, the grid and cells on which it is tested, the measure, the expected verdict.

    ``index`` is a diversity index, for the measure "hdi".  ``where`` selects cells by settings and their values.  On a
    grid with a domain the claim ``holds`` in each setting that is drawn, or on average.  ``these_draws`` says why the
    claim speaks of the query points, heads and rows that were drawn alone.  ``stands`` selects the cell whose first
    comparison represents the claim, by default the one that decides it.
    """

    kind: str
    statement: Line = Field(min_length=1)
    grid: str
    measure: MeasureName
    index: IndexName | None = None
    where: Selection = SELECTION
    holds: Literal["everywhere", "on_average"] = "everywhere"
    expected: Verdict = "supported"
    these_draws: Line = ""
    origin: Origin = "unstated"
    stands: Selection | None = None


class AgreesWithTheory(BaseClaim):
    """In every selected cell to which the theory applies, |measure/theory − 1| ≤ margin; exact at any n, or leading."""

    kind: Literal["agrees_with_theory"]
    source: Theory = "leading"
    margin: Positive


class Monotone(BaseClaim):
    """Along x, other factors fixed, each step of the measure goes in the direction."""

    kind: Literal["monotone"]
    x: str
    direction: Direction


class PairedClaim(BaseClaim):
    """Entries of claims on a measure, or on its difference or ratio to the cell of other factors ``versus``."""

    versus: Selection | None = None
    compared: Literal["difference", "ratio"] = "difference"


def _evaluated(stated: Any, info: ValidationInfo) -> Any:
    """Return a number, also of ``{ function = "NAME", PARAMETER = … }`` of the study."""
    if not isinstance(stated, dict) or "function" not in stated or info.context is None:
        return stated
    try:
        return info.context.number(stated["function"], {k: v for k, v in stated.items() if k != "function"})
    except UserError as error:
        raise PydanticCustomError("unread", "{why}", {"why": str(error)}) from None


Number = Annotated[Real, BeforeValidator(_evaluated)]


class WithinMargin(BaseClaim):
    """Entries of claims on a number: the number, a margin, and the number that would be found if it were wrong."""

    value: Number
    margin: NonNegative
    excludes: Number | None = None


class Equals(PairedClaim, WithinMargin):
    """The measure, or its difference or ratio to the paired cell selected by ``versus``, is within margin of value."""

    kind: Literal["equals"]
    value: Number


class LargerThan(PairedClaim):
    """The measure, or its difference or ratio to the paired cell selected by ``versus``, exceeds value.

    A claim that it is smaller exchanges ``where`` and ``versus``.
    """

    kind: Literal["larger_than"]
    value: Number = 0.0


class Slope(WithinMargin):
    """The least-squares slope of the measure in x, other factors fixed, is within margin of value."""

    kind: Literal["slope"]
    x: str
    scale: Scale = "linear"
    value: Number


class ViolatedPairs(BaseClaim):
    """Few pairs of selected cells have measure and diversity index in the wrong order, at each level of ``by``."""

    kind: Literal["violated_pairs"]
    measure: MeasureName = "mse"
    against: IndexName
    by: str | None = None
    direction: Direction = "decreasing"
    at_most: Share


class OptimumClaim(BaseClaim):
    """Entries of claims on the place x of the least value."""

    measure: MeasureName = "mse"
    x: str


class Optimum(OptimumClaim):
    """The measure is least at x = value, or where theory puts it, up to a ratio; other factors fixed, or tuned."""

    kind: Literal["optimum"]
    tune: Factors = ()
    source: Theory | None = None
    value: Annotated[Positive, BeforeValidator(_evaluated)] | None = None
    ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0


class OptimumSlope(OptimumClaim, WithinMargin):
    """The optimum x* moves along another factor z with a slope, of x* or ln x* in ln z, within margin of value."""

    kind: Literal["optimum_slope"]
    along: str
    scale: Literal["log_x", "log_log"] = "log_x"
    value: Number


_Kinds = AgreesWithTheory | Monotone | Equals | LargerThan | Slope | ViolatedPairs | Optimum | OptimumSlope
Claim = Annotated[_Kinds, Field(discriminator="kind")]
