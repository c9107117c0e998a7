"""Figures of kind "ordering": how many pairs of cells each diversity index puts in the wrong order."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simstudy.design.figures import OrderingFigure
from simstudy.design.measures import INDICES
from simstudy.report.figures.marks import COVERAGE, NEUTRAL, Entries, Look, legends, looks_of, panelled, split
from simstudy.report.figures.panels import set_scales
from simstudy.report.labels import measure_name

APART = 0.16
"""Distance between the marks of two colours, in rows."""
NO_RELATION = 0.5
"""Share of pairs that an index without any relation to the measure puts in the wrong order."""


def ordering_figure(figure: OrderingFigure, cells: xr.Dataset) -> Drawing:
    """Draw a row for each index that orders any cells; cells hold ``wrong_pair_share`` of this figure alone."""
    orders = np.isfinite(cells.wrong_pair_share.values).any(axis=0)
    cells = cells.isel(index=orders | ~orders.any())
    names = cells.index.values.tolist()
    constant = [name for name in INDICES if name not in names]
    drawing, grid, panels = panelled(figure, cells, 3.4, 3.4)
    looks = looks_of(cells, figure.hue)
    for axes, inside in panels:
        axes.axvline(NO_RELATION, color=NEUTRAL, linewidth=1.0, linestyle=(0, (5, 3)), label="no relation", zorder=1)
        for position, (hue, coloured) in enumerate(split(inside, figure.hue)):
            _marks(axes, coloured, looks[hue], APART * (position - (len(looks) - 1) / 2))
        set_scales(axes, "linear", "linear")
        axes.set(xlim=(-0.04, 1.04), ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(labelleft=axes in grid[:, 0], left=False)
        axes.set_xlabel("pairs in the wrong order")
    legends(drawing, looks, _reading(figure, constant), figure.hue)
    return drawing


def _marks(axes: Axes, cells: xr.Dataset, look: Look, shift: float) -> None:
    """Draw the shares of one colour, all its cells being compared with one another."""
    first = cells.isel(cell=0)
    bars = COVERAGE * first.wrong_pair_share_mcse.values
    axes.errorbar(first.wrong_pair_share.values, np.arange(cells.sizes["index"]) + shift, xerr=bars, fmt=look.marker,
                  color=look.colour, capsize=2.5, elinewidth=1.1, markerfacecolor="white", markeredgewidth=1.3,
                  zorder=3)  # fmt: skip


def _reading(figure: OrderingFigure, constant: list[str]) -> Entries:
    text = f"points: share of pairs of which the more diverse has the larger {measure_name(figure.y)} ± {COVERAGE} MCSE"
    dashed = "dashed: an index without any relation to it; 0: a strictly decreasing relation"
    left_out = f"not drawn, because equal or undefined in all cells: {', '.join(constant)}"
    return [
        (Line2D([], [], color=NEUTRAL, marker="o", markerfacecolor="white", linestyle=""), text),
        (Line2D([], [], color=NEUTRAL, linestyle=(0, (5, 3)), linewidth=1.0), dashed),
        *([left_out] if constant else []),
    ]
