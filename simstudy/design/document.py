"""Records of a design file and of a valid design."""

import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, ValidationInfo, model_validator

from simstudy.design.measures import IndexName
from simstudy.design.settings import records
from simstudy.design.settings.cell import Cell, label
from simstudy.design.settings.records import Identifier, Line, NonNegative, Positive, Record, refusal, tagged_union
from simstudy.errors import UserError

MAX_CELLS = 20_000
"""Largest number of cells of a design; more are probably a mistake in the levels of a factor."""
MIN_SETTINGS = 16
"""Default number of settings drawn from a domain, and the least number for a claim about their mean."""
NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"
"""Pattern of names of studies, profiles, grids, claims and figures, which become names of folders and files."""
Replicates = Annotated[int, Field(ge=1, le=160_000_000)]
"""Replicates of a cell: at most ten million batches, of sixteen each."""
ZIPPED, MOST_ZIPS = 200, 12
"""Number of replicates, and largest number of cells, whose intervals a figure shows."""
Origin = Literal[
    "abstract C1", "abstract C2", "abstract C3", "abstract C4", "abstract C5", "abstract C6", "abstract C7",
    "abstract C8", "abstract C9", "abstract C10", "abstract C11", "related paper", "full text", "consequence",
    "negative control", "foil", "identity", "unstated",
]  # fmt: skip
"""Source of a claim: an assertion of the abstract of Fokoué (arXiv 2605.20271), in its order, or another source."""
Theory = Literal["exact", "leading"]
Direction = Literal["increasing", "decreasing"]
AxisScale = Literal["linear", "log"]
Compared = Literal["difference", "ratio"]
Selection = dict[str, Any]
Factors = Annotated[tuple[str, ...], Field(strict=False)]
LEVEL = 0.05
"""Probability of any wrong contradiction or support among all claims of a study."""


def _ascending(ends: list[Any]) -> list[Any]:
    if not ends[0] < ends[1]:
        raise refusal("must be two numbers, [lowest, highest]")
    return ends


def _above_floor(ceiling: int, info: ValidationInfo) -> int:
    if (floor := info.data.get("min_replicates", 1)) > ceiling:
        raise refusal(f"below min_replicates = {floor}; raise it or lower min_replicates")
    return ceiling


def _levels(value: Any) -> Any:
    """Return a list of levels; for ``{ range = [0, 56] }`` integers from the first to before the stop, as in Python."""
    if isinstance(value, list) and any(isinstance(level, float) and math.isnan(level) for level in value):
        raise refusal("nan is no level; remove it, or give a number or a text")
    if not isinstance(value, dict):
        return value
    bounds = value.get("range")
    bounds = bounds if isinstance(bounds, list) and all(type(bound) is int for bound in bounds) else []
    if value.keys() != {"range"} or not 2 <= len(bounds) <= 3 or 0 in bounds[2:]:
        raise refusal("must be a list, or { range = [first, stop] } or [first, stop, step]")
    if (numbers := range(*bounds))[MAX_CELLS:]:
        raise refusal(f"must be a range of {MAX_CELLS} numbers at most")
    return list(numbers)


Name = Annotated[str, Field(pattern=NAME, max_length=64)]
Levels = Annotated[list[Any], Field(min_length=1), BeforeValidator(_levels)]
Ends = Annotated[list[int | FiniteFloat], Field(min_length=2, max_length=2), AfterValidator(_ascending)]


class Study(Record):
    """Name of the study and of its output folder; title; and aim, the question that it answers."""

    name: Name
    title: Line = Field(min_length=1)
    aim: records.Paragraphs = Field(min_length=1)


class Precision(Record):
    """Target Monte Carlo standard errors by measure, and the least and largest number of replicates of a cell.

    Further replicates serve to reach these errors ("precision"), to decide claims ("verdict"), or "both".
    """

    relative_mcse: dict[Identifier, Positive] = Field(default_factory=dict)
    absolute_mcse: dict[Identifier, Positive] = Field(default_factory=dict)
    stop: Literal["precision", "verdict", "both"] = "precision"
    min_replicates: Replicates = 1024
    max_replicates: Annotated[Replicates, AfterValidator(_above_floor)] = Field(65536, validate_default=True)


class Budget(Record):
    """Time limit of one run, which then stops and judges the stored results.  By default no limit."""

    wall_seconds: Positive | None = None


class Distribution(Record):
    """Distribution of a setting: one entry, [lowest, highest] or a list of values; integer ends give integers."""

    uniform: Ends | None = None
    log_uniform: Ends | None = None
    one_of: Levels = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_entry(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise refusal("must have one entry: uniform, log_uniform or one_of")
        if self.log_uniform and self.log_uniform[0] <= 0:
            raise refusal("must be positive, as it has a logarithm; raise the lowest")
        return self

    def draw(self, rng: np.random.Generator) -> Any:
        """Return one value; a number is rounded to four significant digits."""
        if self.one_of:
            return self.one_of[rng.integers(len(self.one_of))]
        low, high = self.log_uniform or self.uniform or (0.0, 0.0)
        whole = isinstance(low, int) and isinstance(high, int)
        span = np.array([low, high + whole])
        drawn = float(np.exp(rng.uniform(*np.log(span))) if self.log_uniform else rng.uniform(*span))
        return min(max(math.floor(drawn) if whole else float(f"{drawn:.4g}"), low), high)

    @property
    def words(self) -> str:
        """The distribution in words."""
        if self.one_of:
            each = (label(v) if not isinstance(v, dict) else v.get("label", v.get("kind", v)) for v in self.one_of)
            return f"of {', '.join(map(str, each))}"
        low, high = self.log_uniform or self.uniform or (0.0, 0.0)
        return f"from {low:g} to {high:g}{' (uniform in the logarithm)' if self.log_uniform else ''}"


class Grid(Record):
    """All combinations of levels of factors, with fixed settings and with settings drawn from a domain.

    ``cells`` settings are drawn from the domain, each combined with all levels.  ``exact`` adds theory for any n
    to that of leading order; it takes seconds for each cell.  ``drop`` lists combinations of levels that have no cell,
    each by the levels of some factors.
    """

    title: Line = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    factors: dict[str, Levels] = Field(default_factory=dict)
    drop: list[dict[str, Any]] = Field(default_factory=list)
    domain: dict[str, Distribution] = Field(default_factory=dict)
    cells: Annotated[int, Field(ge=2, le=MAX_CELLS)] = MIN_SETTINGS
    precision: dict[str, Any] = Field(default_factory=dict)
    by_query: bool = False
    exact: bool = False

    def settings_of(self, holds: Literal["everywhere", "on_average"]) -> str:
        """Return in words the settings for which a claim is judged."""
        if not self.domain:
            return "at these settings"
        text = ", ".join(f"{setting} {each.words}" for setting, each in self.domain.items())
        return f"{'in each of' if holds == 'everywhere' else 'on average over'} {self.cells} settings drawn with {text}"


class OwnMeasureText(Record):
    """Description of a measure that functions of the study give, for tables, figures and results.

    A measure is ``counted`` if it is a number or share of events: it may vary although all replicates agree so far.
    Others are smooth in the data, so that equal numbers in all replicates mean an identity.
    """

    meaning: Line = Field(min_length=1)
    formula: Line = ""
    unit: Line = "1"
    counted: bool = True


class BaseClaim(Record):
    """Entries of all claims: the statement, the grid and cells to test it on, the measure, the expected verdict.

    ``index`` is a diversity index, for the measure "hdi".  ``where`` selects cells by settings and their values.  On a
    grid with a domain the claim ``holds`` in each setting that is drawn, or on average.  ``these_draws`` says why the
    claim is only about the query points, heads and rows that were drawn.  ``stands`` selects the cell whose first
    comparison represents the claim; by default it is the comparison that decides the claim.
    """

    kind: str
    statement: Line = Field(min_length=1)
    grid: str
    measure: Identifier
    index: IndexName | None = None
    where: Selection = Field(default_factory=dict)
    holds: Literal["everywhere", "on_average"] = "everywhere"
    expected: Literal["supported", "contradicted", "undecided"] = "supported"
    these_draws: Line = ""
    origin: Origin = "unstated"
    stands: Selection | None = None


class AgreesWithTheory(BaseClaim, kind="agrees_with_theory"):
    """In every selected cell to which the theory applies, |measure/theory − 1| ≤ margin; exact at any n, or leading."""

    source: Theory = "leading"
    margin: Positive


class Monotone(BaseClaim, kind="monotone"):
    """Along x, other factors fixed, each step of the measure goes in the direction."""

    x: str
    direction: Direction


def _evaluated(stated: Any, info: ValidationInfo) -> Any:
    """Return the number, or the result of a function of the study for ``{ function = "NAME", PARAMETER = … }``."""
    if not isinstance(stated, dict) or "function" not in stated or info.context is None:
        return stated
    try:
        return info.context.number(stated["function"], {k: v for k, v in stated.items() if k != "function"})
    except UserError as error:
        raise refusal(str(error), "unread") from None


Number = Annotated[records.Real, BeforeValidator(_evaluated)]


class WithinMargin(BaseClaim):
    """Entries of claims about a number: the number, a margin, and a number that would contradict the claim."""

    value: Number
    margin: NonNegative
    excludes: Number | None = None


class Equals(WithinMargin, kind="equals"):
    """The measure, or its difference or ratio to the paired cell selected by ``versus``, is within margin of value."""

    versus: Selection | None = None
    compared: Compared = "difference"


class LargerThan(BaseClaim, kind="larger_than"):
    """The measure, or its difference or ratio to the paired cell selected by ``versus``, exceeds value.

    A claim that it is smaller exchanges ``where`` and ``versus``.
    """

    versus: Selection | None = None
    compared: Compared = "difference"
    value: Number = 0.0


class Slope(WithinMargin, kind="slope"):
    """The least-squares slope of the measure in x, other factors fixed, is within margin of value."""

    x: str
    scale: Literal["linear", "log_log", "log_x"] = "linear"


class ViolatedPairs(BaseClaim, kind="violated_pairs"):
    """Few pairs of selected cells have measure and diversity index in the wrong order, at each level of ``by``."""

    measure: Identifier = "mse"
    against: IndexName
    by: str | None = None
    direction: Direction = "decreasing"
    at_most: records.Share


class Optimum(BaseClaim, kind="optimum"):
    """The measure is least at x = value, or at the optimum by theory, within a ratio; other factors fixed, or tuned."""

    measure: Identifier = "mse"
    x: str
    tune: Factors = ()
    source: Theory | None = None
    value: Annotated[Positive, BeforeValidator(_evaluated)] | None = None
    ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0


class OptimumSlope(WithinMargin, kind="optimum_slope"):
    """The optimum x* moves along another factor z with a slope, of x* or ln x* in ln z, within margin of value."""

    measure: Identifier = "mse"
    x: str
    along: str
    scale: Literal["log_x", "log_log"] = "log_x"


class BaseFigure(Record):
    """Entries of all figures: the title, the measure y, and the selection of cells."""

    stored: ClassVar[tuple[str, ...]] = ()
    """Variables of the results that a run computes for the figure."""

    title: Line = Field(min_length=1)
    grid: str
    y: Identifier
    where: Selection = Field(default_factory=dict)
    kind: str


class PanelFigure(BaseFigure):
    """A figure that shows factors by colour and panel."""

    hue: str | None = None
    panel: str | None = None


class CurveFigure(PanelFigure):
    """y against factor x, with theory."""

    kind: Literal["curve"] = "curve"
    x: str
    x_scale: AxisScale = "linear"
    y_scale: AxisScale = "linear"


class DiversityFigure(PanelFigure, kind="diversity"):
    """y against a diversity index."""

    index: IndexName
    x_scale: AxisScale = "linear"
    y_scale: AxisScale = "linear"


class OrderingFigure(PanelFigure, kind="ordering", stored=("wrong_pair_share", "wrong_pair_share_mcse")):
    """Share of pairs of cells in which the more diverse cell has the larger y, for every index."""


class OptimumFigure(PanelFigure, kind="optimum", stored=("optimum_share",)):
    """The level of factor ``over`` with the least y, against factor x."""

    x: str
    x_scale: AxisScale = "linear"
    over: str
    tune: Factors = ()


class NestedLoopFigure(PanelFigure, kind="nested_loop"):
    """y in every cell, above stairs that show the levels of the factors."""

    y_scale: AxisScale = "linear"
    target: Annotated[float, Field(allow_inf_nan=False)] | None = None


class LollipopFigure(PanelFigure, kind="lollipop"):
    """y in every cell as a stick from ``target``, or from 0."""

    target: Annotated[float, Field(allow_inf_nan=False)] | None = None


class ZipFigure(BaseFigure, kind="zip"):
    """Intervals of the first 200 replicates of each cell of a simulation, the worst on top."""

    y: Literal["coverage"] = "coverage"


_Claims = AgreesWithTheory | Monotone | Equals | LargerThan | Slope | ViolatedPairs | Optimum | OptimumSlope
Claim = Annotated[_Claims, Field(discriminator="kind")]
_OfCells = CurveFigure | DiversityFigure | NestedLoopFigure | LollipopFigure | ZipFigure
Figure = Annotated[_OfCells | OrderingFigure | OptimumFigure, tagged_union("curve")]


class Document(Record):
    """A design file after its profile is applied; cells of functions have no heads."""

    study: Study
    grids: Annotated[dict[Name, Grid], Field(min_length=1)]
    claims: dict[Name, Claim] = Field(default_factory=dict)
    figures: dict[Name, Figure] = Field(default_factory=dict)
    measures: dict[Identifier, OwnMeasureText] = Field(default_factory=dict)
    budget: Budget = Budget()
    functions: dict[str, Any] = Field(default_factory=dict)
    data: dict[str, Any] = Field(default_factory=dict)
    heads: dict[str, Any] = Field(default_factory=dict)
    estimator: dict[str, Any] = Field(default_factory=dict)
    queries: dict[str, Any] = Field(default_factory=dict)
    simulation: dict[str, Any] = Field(default_factory=dict)
    precision: Precision = Precision()
    profiles: dict[Name, dict[str, Any]] = Field(default_factory=dict)


class PlannedCell(Record):
    """A cell with its grid, its target precision, and the measures that are counts of events."""

    grid: str
    cell: Cell
    precision: Precision
    by_query: bool
    exact: bool
    counted: frozenset[str] = frozenset()


class Confirmation(Record):
    """Text of a confirmatory run, and the digest of design, functions and text, which determines its seeds."""

    text: str
    digest: str


class Design(Document):
    """A valid design under one profile: cells in the order of the file."""

    profile: str
    cells: tuple[PlannedCell, ...]
    text: str
    path: Path | None
    confirmation: Confirmation | None

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """Names of the factors of each grid, after those of its domain."""
        return {name: (*grid.domain, *grid.factors) for name, grid in self.grids.items()}
