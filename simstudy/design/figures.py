"""The figures that a design declares before the run, as immutable records; `report.figures` draws them."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simstudy.design import claims
from simstudy.design.settings.records import Line, Record, tagged_union

ZIPPED, MOST_ZIPS = 200, 12
"""Replicates of a cell, and cells, whose intervals a figure shows."""
Scale = Literal["linear", "log"]


class BaseFigure(Record):
    """Entries of all figures: the sentence, the measure that is drawn, and of which cells."""

    stored: ClassVar[tuple[str, ...]] = ()
    """Variables of the results that a run computes for the figure."""

    title: Line = Field(min_length=1)
    grid: str
    y: claims.MeasureName
    where: claims.Selection = claims.SELECTION


class PanelFigure(BaseFigure):
    """A figure that tells factors apart by colour and panel."""

    hue: str | None = None
    panel: str | None = None


class CurveFigure(PanelFigure):
    """y against factor x, beside theory."""

    kind: Literal["curve"] = "curve"
    x: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"


class DiversityFigure(PanelFigure):
    """y against a diversity index."""

    kind: Literal["diversity"]
    index: claims.IndexName
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"


class OrderingFigure(PanelFigure):
    """Share of pairs of cells in which the more diverse cell has the larger y, for every index."""

    stored = ("wrong_pair_share", "wrong_pair_share_mcse")

    kind: Literal["ordering"]


class OptimumFigure(PanelFigure):
    """The level of factor ``over`` with the least y, against factor x."""

    stored = ("optimum_share",)

    kind: Literal["optimum"]
    x: str
    x_scale: Scale = "linear"
    over: str
    tune: claims.Factors = ()


class NestedLoopFigure(PanelFigure):
    """y in every cell, above the levels of the factors."""

    kind: Literal["nested_loop"]
    y_scale: Scale = "linear"
    target: float | None = None


class LollipopFigure(PanelFigure):
    """y in every cell as a stick from ``target``, or from 0."""

    kind: Literal["lollipop"]
    target: float | None = None


class ZipFigure(BaseFigure):
    """Intervals of the first 200 replicates of each cell of a simulation, the worst on top."""

    kind: Literal["zip"]
    y: Literal["coverage"] = "coverage"


_Kinds = CurveFigure | DiversityFigure | OrderingFigure | OptimumFigure | NestedLoopFigure | LollipopFigure | ZipFigure
Figure = Annotated[_Kinds, tagged_union("curve")]
