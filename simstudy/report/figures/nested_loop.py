"""Figures of kind "nested_loop": a measure in every cell of a factorial grid, and below it the levels of the factors.

Cells stand side by side in the order of nested loops over the factors, the last of the grid running fastest; stairs
below show which levels they have (Rücker and Schwarzer 2014, BMC Medical Research Methodology 14:129).
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simstudy.design.figures import NestedLoopFigure
from simstudy.report.figures.coverage import covered, draw_points, uncovered_entries
from simstudy.report.figures.marks import (
    COVERAGE,
    NEUTRAL,
    Entries,
    Look,
    legends,
    levels_of,
    looks_of,
    split,
    unshown,
)
from simstudy.report.figures.panels import aim, canvas, from_zero, set_scales, share_y, visible
from simstudy.report.figures.residuals import HEIGHT, draw_residuals, reach, residual_entries, settle_strips
from simstudy.report.labels import level_name, measure_name, setting_and_level, setting_name
from simstudy.verdicts.figure_data import by_source, residuals

Loops = dict[str, list[Any]]
LEVELS = "levels"
"""Label of the axes that show the levels of the factors."""
_PALE: dict[str, Any] = {"linewidth": 4.0, "alpha": 0.3, "zorder": 1.5}


def nested_loop_figure(figure: NestedLoopFigure, cells: xr.Dataset) -> Drawing:
    """Draw the measure of each colour in every combination of the factors that neither colour nor panel shows."""
    panels = list(split(cells, figure.panel))
    loops = {name: list(dict.fromkeys(levels_of(cells, name))) for name in unshown(figure, cells)}
    limit, beyond = reach(residuals(cells, figure.y)), list[float]()
    # A single factor is named on the axis: stairs would show nothing.
    heights = [3.6] if len(loops) == 1 else [3.0, 0.3 + 0.42 * len(loops)]
    drawing, *grids = canvas(len(panels), heights[0], *([HEIGHT] if limit else []), *heights[1:], columns=1)
    grid = np.hstack(grids)
    looks = looks_of(cells, figure.hue)
    theory = False
    for (axes, *below), (level, inside) in zip(grid, panels, strict=True):
        strips = below[:1] if limit else []
        for hue, coloured in split(inside, figure.hue):
            theory |= _steps(axes, figure, coloured, loops, looks[hue], not limit)
            for strip in strips:
                place = positions(coloured, loops).astype(float)
                beyond += draw_residuals(strip, place, residuals(coloured, figure.y), looks[hue], limit)
        settle_strips(strips, strips, limit)
        set_scales(axes, "linear", figure.y_scale)
        axes.set_ylabel(measure_name(figure.y))
        if len(loops) == 1:
            _names((axes, *strips)[-1], *loops.items())
        else:
            _stairs(below[-1], loops)
        if figure.panel:
            axes.set_title(textwrap.shorten(setting_and_level(figure.panel, level), 110, placeholder=" …"), loc="left")
    drawn = list(grid[:, 0])
    aimed = aim(drawn, figure.target)
    share_y(drawn, figure.y_scale)
    entries = [*_reading(loops, theory), *aimed, *uncovered_entries(cells, figure.y)]
    entries += residual_entries(beyond) if limit else []
    legends(drawing, looks, [*entries, *from_zero(drawn, figure.y_scale)], figure.hue)
    return drawing


def positions(cells: xr.Dataset, loops: Loops) -> np.ndarray:
    """Return the place of each cell in the nested loops, counted from 0."""
    place = np.zeros(cells.sizes["cell"], int)
    for name, levels in loops.items():
        place = place * len(levels) + np.array([levels.index(level) for level in levels_of(cells, name)])
    return place


def _steps(
    axes: Axes, figure: NestedLoopFigure, cells: xr.Dataset, loops: Loops, look: Look, unspoken: bool
) -> bool:  # fmt: skip
    """Draw a colour as steps, theory as pale ones; return whether there is any. ``unspoken``: nowhere at all."""
    size = int(np.prod([len(levels) for levels in loops.values()]))
    place = positions(cells, loops)
    exact, leading = (by_source(cells, figure.y, source) for source in ("exact", "leading"))
    lines = []
    for values in (by_source(cells, figure.y, "empirical"), np.where(np.isnan(exact), leading, exact)):
        line = np.full(size, np.nan)
        line[place] = np.where(visible(values, figure.y_scale), values, np.nan)
        lines.append(line)
    bars, known = np.full(size, np.nan), np.ones(size, bool)
    bars[place] = COVERAGE * cells[f"{figure.y}_mcse"].values
    known[place] = covered(cells, figure.y) | unspoken
    edges = np.arange(size + 1) - 0.5
    axes.stairs(lines[0], edges, baseline=None, color=look.colour, linewidth=1.4, label="empirical")
    draw_points(axes, np.arange(size), lines[0], bars, known, look, markersize=3.5, elinewidth=1.0)
    if np.isfinite(lines[1]).any():
        axes.stairs(lines[1], edges, baseline=None, color=look.colour, label="theory", **_PALE)
    return bool(np.isfinite(lines[1]).any())


def _stairs(axes: Axes, loops: Loops) -> None:
    """Draw the levels of every factor as a flight of stairs, the outermost on top, and list them beside it."""
    inner = int(np.prod([len(levels) for levels in loops.values()]))
    edges = np.arange(inner + 1) - 0.5
    outer = 1
    for row, (name, levels) in enumerate(loops.items()):
        inner //= len(levels)
        steps = np.tile(np.repeat(np.arange(len(levels)), inner), outer)
        outer *= len(levels)
        base = len(loops) - 1 - row
        axes.stairs(base + 0.62 * steps / max(len(levels) - 1, 1), edges, baseline=None, color=NEUTRAL, linewidth=1.1)
        text = f"{setting_name(name)}: {', '.join(level_name(level) for level in levels)}"
        # In the room that is left above the stairs.
        axes.text(-0.5, base + 0.8, textwrap.shorten(text, 130, placeholder=" …"), fontsize=8.5, va="center",
                  color=NEUTRAL)  # fmt: skip
    axes.set(yticks=[], ylim=(-0.1, len(loops)), xlim=(-0.5, len(edges) - 1.5), label=LEVELS)
    axes.tick_params(labelbottom=False, bottom=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.grid(False)


def _names(axes: Axes, loop: tuple[str, list[Any]]) -> None:
    """Write the levels of a single factor below their steps."""
    name, levels = loop
    texts = [textwrap.shorten(level_name(level), 40, placeholder=" …") for level in levels]
    axes.set_xticks(range(len(levels)), texts, rotation=30, ha="right", rotation_mode="anchor", fontsize=8.5)
    axes.set(xlabel=setting_name(name), xlim=(-0.5, len(levels) - 0.5))


def _reading(loops: Loops, theory: bool) -> Entries:
    combination = "level" if len(loops) == 1 else "combination of the levels below"
    text = f"steps: Monte Carlo ± {COVERAGE} MCSE, one step for each {combination}"
    entries: Entries = [(Line2D([], [], color=NEUTRAL, marker="o", markersize=3.5, markerfacecolor="white"), text)]
    if theory:
        text = "broad pale steps: theory, exact where there is such, or else leading order"
        entries.append((Line2D([], [], color=NEUTRAL, **_PALE), text))
    return entries
