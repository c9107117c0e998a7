"""The figures that a design declares before the run, as immutable records; `report.figures` draws them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simstudy.design.claims import _SELECTION, AveragedMeasure, IndexName, Selection, TheoreticalMeasure, _one_of
from simstudy.design.measures import MEASURES, STATISTICS
from simstudy.design.settings import Line, Record


class Figure(Record):
    """One figure of the report: what it draws of a measure, and how it tells factors apart."""

    kind: Literal["curve", "diversity", "ordering", "optimum", "nested_loop", "law"] = Field(
        "curve", description='"curve": y against factor x; "diversity": y against diversity indices; "ordering": the '
        'share of pairs of cells of which the more diverse has the larger y, for every index; "optimum": the level of '
        'factor `over` with the least y, against factor x; "nested_loop": y in every cell; "law": variance of '
        "ensembles of n_heads members, in several grids, against the law for exchangeable ones"
    )  # fmt: skip
    title: Line = Field(min_length=1, description="what the figure shows, as a sentence")
    grid: str = Field(description="name of the grid to draw")
    y: AveragedMeasure = Field(description=_one_of(MEASURES | STATISTICS))
    x: str | None = Field(None, description='a numeric factor of the grid; for kind = "curve" or "optimum" only')
    beside: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), description='further grids, each in a colour of its own; for kind = "law" only'
    )
    index: IndexName | None = Field(None, description='diversity index, not all of them; for kind = "diversity" only')
    over: str | None = Field(None, description='factor whose best level is sought; for kind = "optimum" only')
    tune: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        (), description='factors that take their best level at each level of `over`; for kind = "optimum" only'
    )
    hue: str | None = Field(None, description="factor told apart by colour")
    panel: str | None = Field(None, description="factor told apart by panel")
    where: Selection = _SELECTION
    x_scale: Literal["linear", "log"] = Field("linear", description='"linear" or "log"')
    y_scale: Literal["linear", "log"] = Field("linear", description='"linear" or "log"')
    limit: TheoreticalMeasure | None = Field(
        None, description="measure whose theoretical value is drawn as a dashed limit for each colour"
    )
