"""The claims that a design declares before the run, as immutable records; `verdicts.judge` evaluates them."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from simstudy.design.measures import INDICES, MEASURES
from simstudy.design.settings.records import Line, NonNegative, Positive, Real, Record, Share

ABSTRACT: dict[str, str] = {
    "abstract C1": "softmax attention of one head is the Nadaraya-Watson estimator",
    "abstract C2": "multi-head attention is an ensemble of such estimators, each in a projection subspace of its own",
    "abstract C3": "its mean squared error splits into bias, variance and covariance",
    "abstract C4": "variance falls with the decorrelation of head outputs, and not with the number of heads alone",
    "abstract C5": "principal angles govern decorrelation: orthogonal heads reduce variance most, aligned not",
    "abstract C6": "the mean squared error falls as the Head Diversity Index rises",
    "abstract C7": "that explains why heads specialise",
    "abstract C8": "at a fixed budget of dimensions theory finds the best number and dimension of heads",
    "abstract C9": "the best dimension of a head grows like the logarithm of the number of training pairs",
    "abstract C10": "the best number of heads grows nearly linearly in the budget",
    "abstract C11": "one law of weighting and decorrelation holds for attention and for other ensembles",
}
"""What the abstract of Fokoué (arXiv 2605.20271) asserts, in its order and in our words."""

OTHERS: dict[str, str] = {
    "related paper": "what the authors of a related system assert of it",
    "full text": "what authors print or assert beyond an abstract: in figures, tables, theorems and code",
    "consequence": "what follows from theory: sizes, conditions, exceptions",
    "negative control": "what fails because a condition is taken away: it shows that the test can contradict",
    "foil": "a rival statement that one might believe, held against the facts",
    "identity": "what holds by algebra or by construction: it checks the simulator",
    "unstated": "the design does not say",
}

ORIGINS: dict[str, str] = ABSTRACT | OTHERS
"""Every origin that a design may state, and what it means."""

MeasureName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of a measure: whether the cells have it, `rules` tells, as functions give measures by names of their own."""
if TYPE_CHECKING:
    TheoreticalMeasure = str
    IndexName = str
    Origin = str
else:
    TheoreticalMeasure, IndexName, Origin = Literal[tuple(MEASURES)], Literal[INDICES], Literal[tuple(ORIGINS)]
Theory = Literal["exact", "leading"]
Scale = Literal["linear", "log_log", "log_x"]
Direction = Literal["increasing", "decreasing"]
Verdict = Literal["supported", "contradicted", "undecided"]
Selection = dict[str, Any]

LEVEL = 0.05
"""Chance of a wrong contradiction or support among all claims of a study."""


SELECTION: Any = Field(
    default_factory=dict, description="settings and the value each must have, to select cells of the grid"
)
NUMERIC: Any = Field(description="a numeric factor of the grid")
_SOURCE: Any = Field(None, description="theory that claims it, in place of value")
_NUMBER: Any = Field(description="the number claimed, or { function = NAME } of the study that gives it")
Factors = Annotated[tuple[str, ...], Field(strict=False)]


class BaseClaim(Record):
    """What all claims state: the sentence, where it is tested, on what, and the verdict foreseen."""

    kind: str
    statement: Line = Field(min_length=1, description="the claim as a sentence")
    grid: str = Field(description="name of the grid on which the claim is tested; simstudy judge needs none")
    measure: MeasureName
    index: IndexName | None = Field(None, description='diversity index; for measure = "hdi" only')
    where: Selection = SELECTION
    holds: Literal["everywhere", "on_average"] = Field(
        "everywhere",
        description='on a grid with a domain: "everywhere", in each setting that is drawn from it, or "on_average"',
    )
    expected: Verdict = Field("supported", description="verdict foreseen before the run")
    these_draws: Line = Field(
        "", description="why the claim speaks of the query points, heads and rows that were drawn, and of no others"
    )
    origin: Origin = Field("unstated", description="where the claim comes from")
    stands: Selection | None = Field(
        None, description="settings of a cell whose first comparison represents the claim; else what decides it does"
    )


class AgreesWithTheory(BaseClaim):
    """In every selected cell to which the theory applies, |measure/theory − 1| ≤ margin."""

    kind: Literal["agrees_with_theory"]
    source: Theory = Field(
        "leading", description='"leading": leading order in n; "exact": any n, in a grid with exact = true'
    )
    margin: Positive = Field(description="largest relative difference that still counts as agreement")


class Monotone(BaseClaim):
    """Along x, other factors fixed, each step of the measure goes in the direction."""

    kind: Literal["monotone"]
    x: str = NUMERIC
    direction: Direction


class PairedClaim(BaseClaim):
    """What claims on a measure, or on its difference or ratio to a paired cell, state: the cell, and which of these."""

    versus: Selection | None = Field(None, description="settings of the cell to compare with, other factors equal")
    compared: Literal["difference", "ratio"] = Field(
        "difference", description='"difference" from, or "ratio" to the cell that versus selects'
    )


class WithinMargin(BaseClaim):
    """What claims on a number state: the number, how far off it still counts as equal, and what it must not be."""

    value: Real | None
    margin: NonNegative = Field(description="largest absolute difference that still counts as equal")
    excludes: Real | None = Field(
        None, description="what would be found if the claim were wrong: farther from value than the margin"
    )

    @property
    def tells_apart(self) -> bool:
        """Whether what the claim excludes is outside its margin."""
        return self.excludes is None or (self.value is not None and abs(self.excludes - self.value) > self.margin)


class Equals(PairedClaim, WithinMargin):
    """The measure, or its difference or ratio to the paired cell selected by ``versus``, is within margin of value."""

    kind: Literal["equals"]
    value: Real = _NUMBER


class LargerThan(PairedClaim):
    """The measure, or its difference or ratio to the paired cell selected by ``versus``, exceeds value.

    A claim that it is smaller exchanges ``where`` and ``versus``.
    """

    kind: Literal["larger_than"]
    value: Real = Field(0.0, description="the value that must be exceeded, or { function = NAME } that gives it")


class Slope(WithinMargin):
    """The least-squares slope of the measure in x, other factors fixed, is within margin of value."""

    kind: Literal["slope"]
    x: str = NUMERIC
    scale: Scale = "linear"
    value: Real = _NUMBER


class ViolatedPairs(BaseClaim):
    """Few pairs of selected cells have the measure and a diversity index in the wrong order."""

    kind: Literal["violated_pairs"]
    measure: MeasureName = "mse"
    against: IndexName = Field(description="a diversity index")
    by: str | None = Field(None, description="a factor of the grid; its levels are judged apart")
    direction: Direction = "decreasing"
    at_most: Share = Field(description="largest share of pairs claimed, in [0, 1)")


class OptimumClaim(BaseClaim):
    """What claims on the place of the least value state: where it is sought, and what is tuned at each place."""

    measure: MeasureName = "mse"
    x: str = Field(description="a numeric factor of the grid, over which the measure is minimised")
    tune: Factors = Field((), description="factors of the grid that take their best level at each x")
    source: Theory | None = _SOURCE


class Optimum(OptimumClaim):
    """The measure is least at x = value, or where theory puts it, up to a ratio; other factors fixed."""

    kind: Literal["optimum"]
    value: Positive | None = Field(None, description="the optimum claimed; or state source")
    ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        1.0, description="largest ratio to the optimum claimed, at least 1"
    )


class OptimumSlope(OptimumClaim, WithinMargin):
    """The optimum x* moves along another factor z with a slope, of x* or ln x* in ln z, within margin of value.

    Or within margin of the slope by theory, over the levels of z at which theory has an optimum.
    """

    kind: Literal["optimum_slope"]
    along: str = NUMERIC
    scale: Literal["log_x", "log_log"] = Field("log_x", description='"log_x" (x* against ln z) or "log_log"')
    value: Real | None = Field(None, description="the slope claimed, or { function = NAME }; or state source")


_Kinds = AgreesWithTheory | Monotone | Equals | LargerThan | Slope | ViolatedPairs | Optimum | OptimumSlope
Claim = Annotated[_Kinds, Field(discriminator="kind")]
