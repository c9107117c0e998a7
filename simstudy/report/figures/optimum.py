"""Figures of kind "optimum": where a measure is least along one factor, against another, with its uncertainty set."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from simstudy.design.figures import OptimumFigure
from simstudy.design.measures import THEORIES
from simstudy.report.figures.marks import (
    NEUTRAL,
    THEORY_LINES,
    Entries,
    Look,
    legends,
    looks_of,
    panelled,
    split,
    strata_of,
    unshown,
)
from simstudy.report.figures.panels import label_y, set_scales, tick_levels
from simstudy.report.labels import THEORY_NAMES, measure_name, number, setting_name
from simstudy.verdicts.figure_data import Place, places
from simstudy.verdicts.optima import NEVER

APART = 0.09
"""Distance between the bars of two colours, as a share of the distance between two levels of x."""


def optimum_figure(figure: OptimumFigure, cells: xr.Dataset) -> Drawing:
    """Draw the optimum of each colour against x; cells hold ``optimum_share`` of this figure alone."""
    drawing, grid, panels = panelled(figure, cells, 3.2, 3.9)
    looks, hidden = looks_of(cells, figure.hue), unshown(figure, cells, figure.x, figure.over, *figure.tune)
    told: set[str] = set()
    for axes, inside in panels:
        for position, (hue, coloured) in enumerate(split(inside, figure.hue)):
            shift = APART * (position - (len(looks) - 1) / 2)
            for stratum in strata_of(coloured, hidden):
                told |= _path(axes, places(figure, stratum), figure.x_scale, looks[hue], shift)
        axes.set_xlabel(setting_name(figure.x))
        set_scales(axes, figure.x_scale, "log")
        tick_levels(axes, inside[figure.x].values.astype(float), figure.x_scale)
    levels = np.unique(cells[figure.over].values.astype(float))
    for axes, _ in panels:
        # Some room beside the outermost levels, as optima often stand there.
        axes.set_ylim(levels[0] / 1.2, levels[-1] * 1.2)
        axes.yaxis.set_major_locator(FixedLocator(levels.tolist()))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    label_y(grid, f"best {setting_name(figure.over)}", len(panels))
    legends(drawing, looks, _reading(figure, hidden, told), figure.hue)
    return drawing


def _path(axes: Axes, path: list[Place], scale: str, look: Look, shift: float) -> set[str]:
    """Draw optima with their uncertainty sets, theory as lines; return the theories that have any."""
    x = np.array([place.x for place in path])
    best = np.array([place.optimum for place in path])
    below, above = (np.array([getattr(place, name) for place in path]) for name in ("lowest", "highest"))
    bars = np.maximum([best - below, above - best], 0.0)
    # Moved aside by a share of the least distance between two levels.
    steps = np.diff(np.unique(np.log(x) if scale == "log" else x))
    aside = shift * (steps.min() if len(steps) else 1.0)
    moved = np.exp(np.log(x) + aside) if scale == "log" else x + aside
    axes.errorbar(moved, best, yerr=bars, fmt=look.marker, color=look.colour, capsize=2.5, elinewidth=1.1,
                  markerfacecolor="white", markeredgewidth=1.3, zorder=3)  # fmt: skip
    drawn = set()
    for source in THEORIES:
        line = np.array([place.told[source] for place in path])
        if np.isfinite(line).any():
            marks: dict[str, Any] = {"marker": "_", "markersize": 9}
            axes.plot(moved, line, color=look.colour, label=source, **THEORY_LINES[source], **marks)
            drawn.add(source)
    return drawn


def _reading(figure: OptimumFigure, hidden: list[str], told: set[str]) -> Entries:
    tuned = f", best {', '.join(setting_name(name) for name in figure.tune)} at each level" if figure.tune else ""
    text = f"points: least {measure_name(figure.y)}{tuned}, between levels by a parabola in the logarithm"
    entries: Entries = [(Line2D([], [], color=NEUTRAL, marker="o", markerfacecolor="white", linestyle=""), text)]
    text = f"bars: levels that are best in {NEVER:.0%} or more of the draws from the joint distribution of estimates"
    entries.append((Line2D([], [], color=NEUTRAL, marker="|", markersize=10, linestyle=""), text))
    for source in THEORIES:
        if source in told:
            text = f"line: {THEORY_NAMES[source]}, where it has an optimum"
            entries.append((Line2D([], [], color=NEUTRAL, **THEORY_LINES[source]), text))
    if hidden:
        entries.append(f"not told apart (one line for each value): {', '.join(map(setting_name, hidden))}")
    return entries
