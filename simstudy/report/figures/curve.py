"""Figures of kind "curve": a measure against a factor, beside theory."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simstudy.design.figures import CurveFigure
from simstudy.design.measures import THEORIES
from simstudy.report.figures.coverage import covered, draw_points, uncovered_entries
from simstudy.report.figures.marks import (
    COVERAGE,
    NEUTRAL,
    THEORY_LINES,
    Entries,
    Look,
    Notes,
    Panels,
    dropped,
    entitled,
    legends,
    looks_of,
    panelled,
    split,
    strata_of,
    unshown,
)
from simstudy.report.figures.panels import (
    aim,
    canvas,
    from_zero,
    label_y,
    set_scales,
    share_y,
    tick_levels,
    visible,
)
from simstudy.report.figures.residuals import (
    HEIGHT,
    draw_residuals,
    reach,
    residual_entries,
    settle_strips,
    side_by_side,
)
from simstudy.report.labels import measure_name, setting, setting_name
from simstudy.verdicts.figure_data import by_source, residuals


def curve_figure(figure: CurveFigure, cells: xr.Dataset) -> Drawing:
    """Draw a measure against a factor, a line for each hue, a panel for each level, and strips where theory speaks."""
    names = {figure.y, f"{figure.y}_mcse", "inapplicable", *([figure.limit] if figure.limit else [])}
    cells = cells[sorted(names)]  # each part copies all variables that it has
    limit = reach(residuals(cells, figure.y))
    drawing, grid, panels, strips = _laid_out(figure, cells, limit)
    hidden, notes = unshown(figure, cells, figure.x), Notes()
    notes.uncovered = not covered(cells, figure.y).any()
    looks = looks_of(cells, figure.hue)
    for position, (axes, inside) in enumerate(panels):
        for hue, coloured in split(inside, figure.hue):
            for stratum in strata_of(coloured, hidden):
                _curve(axes, figure, stratum, looks[hue], notes)
            if limit:
                x = coloured[figure.x].values.astype(float)
                shift = side_by_side(list(looks).index(hue), len(looks))
                notes.beyond += draw_residuals(
                    strips.flat[position], x, residuals(coloured, figure.y), looks[hue], limit, shift
                )
        set_scales(axes, figure.x_scale, figure.y_scale)
        tick_levels(axes, inside[figure.x].values.astype(float), figure.x_scale)
        (strips.flat[position] if limit else axes).set_xlabel(setting_name(figure.x))
    drawn = [axes for axes, _ in panels]
    aimed = aim(drawn, figure.target)
    share_y(drawn, figure.y_scale)
    words = from_zero(drawn, figure.y_scale)
    label_y(grid, measure_name(figure.y), len(panels))
    if limit:
        settle_strips(list(strips.flat[: len(panels)]), list(strips[:, 0]), limit)
    entries = [*_reading(figure, hidden, notes), *aimed, *uncovered_entries(cells, figure.y)]
    entries += residual_entries(notes.beyond) if limit else []
    legends(drawing, looks, [*entries, *words], figure.hue)
    return drawing


def _laid_out(figure: CurveFigure, cells: xr.Dataset, limit: float) -> tuple[Drawing, np.ndarray, Panels, np.ndarray]:
    """Return the drawing, its panels, and the strips below them if there is anything to draw in those."""
    if not limit:
        return *panelled(figure, cells, 3.2, 3.9), np.array([])
    levels = list(split(cells, figure.panel))
    drawing, grid, strips = canvas(len(levels), 3.6 if len(levels) == 1 else 2.9, HEIGHT)
    return drawing, grid, entitled(figure, levels, grid), strips


def _curve(axes: Axes, figure: CurveFigure, stratum: xr.Dataset, look: Look, notes: Notes) -> None:
    """Draw the cells of one colour that differ in x alone: points with error bars, theory as lines, the limit."""
    stratum = stratum.isel(cell=np.argsort(stratum[figure.x].values, kind="stable"))
    values = _theories(axes, figure, stratum, look, notes)
    x = stratum[figure.x].values.astype(float)
    empirical = by_source(stratum, figure.y, "empirical")
    shown = visible(x, figure.x_scale) & visible(empirical, figure.y_scale)
    notes.dropped += int((np.isfinite(empirical) & np.isfinite(x) & ~shown).sum())
    bars = COVERAGE * stratum[f"{figure.y}_mcse"].values
    known = covered(stratum, figure.y) | notes.uncovered
    draw_points(axes, x[shown], empirical[shown], bars[shown], known[shown], look,
                capsize=2.5, elinewidth=1.1, markeredgewidth=1.3)  # fmt: skip
    gap = np.isnan(np.concatenate([[0.0], values[shown], [0.0]]))
    bridge = np.where(gap[1:-1] | gap[:-2] | gap[2:], empirical[shown], np.nan)
    if np.isfinite(bridge).sum() > 1:
        axes.plot(x[shown], bridge, ":", color=look.colour, linewidth=1.0, label="joined")
        notes.joined = True
    if figure.limit:  # what y tends to, told by a theory where one applies
        at_end = stratum[figure.limit].isel(cell=-1)
        source = next((name for name in THEORIES if np.isfinite(at_end.sel(source=name))), "empirical")
        value = float(at_end.sel(source=source))
        if visible(np.array(value), figure.y_scale):
            notes.limit_fallback |= source == "empirical"
            axes.axhline(value, linestyle=(0, (5, 3)), linewidth=1.0, color=look.colour, label="limit", zorder=1)


def _theories(axes: Axes, figure: CurveFigure, stratum: xr.Dataset, look: Look, notes: Notes) -> np.ndarray:
    """Draw each theory as a line that joins the levels, and return the value of either at each, or NaN."""
    x, told = stratum[figure.x].values.astype(float), np.full(stratum.sizes["cell"], np.nan)
    for source in THEORIES:
        values = by_source(stratum, figure.y, source)
        line = np.where(visible(values, figure.y_scale) & visible(x, figure.x_scale), values, np.nan)
        if np.isfinite(line).any():
            # A line shows nothing of a value without a neighbour.
            gap = np.isnan(np.concatenate([[np.nan], line, [np.nan]]))
            alone = np.flatnonzero(~gap[1:-1] & gap[:-2] & gap[2:]).tolist()
            marks: dict[str, Any] = {"marker": "_", "markersize": 12, "markevery": alone}
            axes.plot(x, line, color=look.colour, label=source, **THEORY_LINES[source], **marks)
            setattr(notes, source, True)
        told = np.where(np.isnan(told), line, told)
    return told


def _reading(figure: CurveFigure, hidden: list[str], notes: Notes) -> Entries:
    """Entries of the legend that say what points and lines are."""
    text = f"points: Monte Carlo ± {COVERAGE} MCSE" + (", line: leading order" if notes.leading else "")
    handle = Line2D([], [], color=NEUTRAL, marker="o", markerfacecolor="white")
    handle.set_linestyle("-" if notes.leading else "")
    entries: Entries = [(handle, text)]
    if notes.exact:
        pale = Line2D([], [], color=NEUTRAL, **THEORY_LINES["exact"])
        entries.append((pale, "broad pale line: exact theory at any n"))
    if notes.joined:
        entries.append((Line2D([], [], color=NEUTRAL, linestyle=":"), "dotted: joins points without theory"))
    if figure.limit:
        x = setting(figure.x).symbol or setting(figure.x).words
        text = f"dashed: limit, {measure_name(figure.limit)} at the largest {x}"
        text += " (Monte Carlo where no theory applies)" if notes.limit_fallback else ""
        entries.append((Line2D([], [], color=NEUTRAL, linestyle=(0, (5, 3)), linewidth=1.0), text))
    if hidden:
        entries.append(f"not told apart (one line for each value): {', '.join(map(setting_name, hidden))}")
    return entries + dropped(notes)
