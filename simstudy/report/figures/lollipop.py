"""Figures of kind "lollipop": a stick from what is aimed at to the measure, a row for each combination of factors."""

from __future__ import annotations

import itertools
import textwrap
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simstudy.design.figures import LollipopFigure
from simstudy.report.figures.marks import (
    COVERAGE,
    NEUTRAL,
    Entries,
    Look,
    entitled,
    legends,
    levels_of,
    looks_of,
    split,
    unshown,
)
from simstudy.report.figures.nested_loop import positions
from simstudy.report.figures.panels import canvas
from simstudy.report.labels import level_name, measure_name, number, setting_name
from simstudy.verdicts.figure_data import by_source

APART = 0.22
"""Distance of the colours of one row, in rows."""
_THEORY: dict[str, Any] = {"marker": "|", "linestyle": "", "color": "black", "markersize": 11, "zorder": 4}


def lollipop_figure(figure: LollipopFigure, cells: xr.Dataset) -> Drawing:
    """Draw a row for each combination of levels that neither colour nor panel shows, a stick for each colour in it."""
    loops = {name: list(dict.fromkeys(levels_of(cells, name))) for name in unshown(figure, cells)}
    n_rows = int(np.prod([len(levels) for levels in loops.values()]))
    looks, panels = looks_of(cells, figure.hue), list(split(cells, figure.panel))
    thick = max(0.32, 0.16 * len(looks))
    drawing, grid = canvas(len(panels), 0.9 + thick * n_rows)
    told = False
    for axes, inside in entitled(figure, panels, grid):
        for position, (hue, coloured) in enumerate(split(inside, figure.hue)):
            step = min(APART, 0.8 / len(looks))
            rows = positions(coloured, loops) + step * (position - (len(looks) - 1) / 2)
            told |= _sticks(axes, figure, coloured, rows, looks[hue])
        axes.axvline(figure.target or 0.0, color=NEUTRAL, linewidth=1.0, label="target")
        axes.set(xlabel=measure_name(figure.y), ylim=(n_rows - 0.5, -0.5))
        axes.grid(axis="y", visible=False)
        axes.set_yticks(range(n_rows), [""] * n_rows)
    # In the order of `positions`.
    names = [", ".join(map(level_name, levels)) for levels in itertools.product(*loops.values())]
    for axes in grid[:, 0]:
        axes.set_yticks(range(n_rows), [textwrap.shorten(name, 40, placeholder=" …") for name in names])
        axes.set_ylabel(", ".join(map(setting_name, loops)))
    entries: Entries = [f"sticks: Monte Carlo ± {COVERAGE} MCSE, from {number(figure.target or 0.0)}"]
    if told:
        entries.append((Line2D([], [], **_THEORY), "bars: theory, exact where there is such, or else leading order"))
    legends(drawing, looks, entries, figure.hue)
    return drawing


def _sticks(axes: Axes, figure: LollipopFigure, cells: xr.Dataset, rows: np.ndarray, look: Look) -> bool:
    """Draw the sticks of one colour, and theory as bars; return whether there is any."""
    values, exact, leading = (by_source(cells, figure.y, source) for source in ("empirical", "exact", "leading"))
    axes.hlines(rows, figure.target or 0.0, values, color=look.colour, linewidth=1.4, label="stick")
    axes.errorbar(values, rows, xerr=COVERAGE * cells[f"{figure.y}_mcse"].values, fmt=look.marker, color=look.colour,
                  markerfacecolor="white", capsize=2.5, elinewidth=1.1, zorder=3)  # fmt: skip
    theory = np.where(np.isnan(exact), leading, exact)
    if told := bool(np.isfinite(theory).any()):
        axes.plot(theory, rows, label="theory", **_THEORY)
    return told
