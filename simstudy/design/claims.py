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


class WithinMargin(BaseClaim):
    """Entries of claims on a number: the number, a margin, and the number that would be found if it were wrong."""

    value: Real | None
    margin: NonNegative
    excludes: Real | None = None

    @property
    def tells_apart(self) -> bool:
        """True if what the claim excludes is outside its margin."""
        return self.excludes is None or (self.value is not None and abs(self.excludes - self.value) > self.margin)


class Equals(PairedClaim, WithinMargin):
    """The measure, or its difference or ratio to the paired cell selected by ``versus``, is within margin of value."""

    kind: Literal["equals"]
    value: Real


class LargerThan(PairedClaim):
    """The measure, or its difference or ratio to the paired cell selected by ``versus``, exceeds value.

    A claim that it is smaller exchanges ``where`` and ``versus``.
    """

    kind: Literal["larger_than"]
    value: Real = 0.0


class Slope(WithinMargin):
    """The least-squares slope of the measure in x, other factors fixed, is within margin of value."""

    kind: Literal["slope"]
    x: str
    scale: Scale = "linear"
    value: Real


class ViolatedPairs(BaseClaim):
    """Few pairs of selected cells have measure and diversity index in the wrong order, at each level of ``by``."""

    kind: Literal["violated_pairs"]
    measure: MeasureName = "mse"
    against: IndexName
    by: str | None = None
    direction: Direction = "decreasing"
    at_most: Share


class OptimumClaim(BaseClaim):
    """Entries of claims on the place x of the least value: factors to ``tune`` at each x, and the theory of it."""

    measure: MeasureName = "mse"
    x: str
    tune: Factors = ()
    source: Theory | None = None


class Optimum(OptimumClaim):
    """The measure is least at x = value, or where theory puts it, up to a ratio; other factors fixed."""

    kind: Literal["optimum"]
    value: Positive | None = None
    ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0


class OptimumSlope(OptimumClaim, WithinMargin):
    """The optimum x* moves along another factor z with a slope, of x* or ln x* in ln z, within margin of value.

    Or within margin of the slope by theory, over the levels of z at which theory has an optimum.
    """

    kind: Literal["optimum_slope"]
    along: str
    scale: Literal["log_x", "log_log"] = "log_x"
    value: Real | None = None


_Kinds = AgreesWithTheory | Monotone | Equals | LargerThan | Slope | ViolatedPairs | Optimum | OptimumSlope
Claim = Annotated[_Kinds, Field(discriminator="kind")]
