"""Figures of kind "optimum": where a measure is least along one factor, against another, with its uncertainty set."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from simstudy.design.figures import Figure
from simstudy.design.measures import THEORIES
from simstudy.report.figures.marks import (
    NEUTRAL,
    THEORY_LINES,
    Entries,
    Look,
    column,
    legends,
    looks_of,
    split,
    strata,
    unshown,
)
from simstudy.report.figures.panels import canvas, characters, label_y, set_scales, share_y, tick_levels
from simstudy.report.labels import THEORY_NAMES, measure_name, number, setting_and_level, setting_name
from simstudy.verdicts.optima import NEVER, Profile, told_profile

APART = 0.09
"""Distance between the bars of two colours, as a share of the distance between two levels of x."""


class Place(NamedTuple):
    """Optimum at one level of x: between levels by Monte Carlo and by each theory, and the levels possible."""

    x: float
    optimum: float
    lowest: float
    highest: float
    told: dict[str, float]


def optimum_figure(figure: Figure, cells: xr.Dataset) -> Drawing:
    """Draw the optimum of each colour against x; cells hold ``optimum_share`` of this figure alone."""
    assert figure.x is not None and figure.over is not None  # the design refuses an optimum without them
    panels = list(split(cells, figure.panel))
    drawing, grid = canvas(len(panels), 3.9 if len(panels) == 1 else 3.2)
    looks, hidden = looks_of(cells, figure.hue), _hidden(figure, cells)
    told: set[str] = set()
    for axes, (level, inside) in zip(grid.flat, panels, strict=False):
        for position, (hue, coloured) in enumerate(split(inside, figure.hue)):
            shift = APART * (position - (len(looks) - 1) / 2)
            for stratum in strata(coloured, hidden):
                told |= _path(axes, places(figure, stratum), figure.x_scale, looks[hue], shift)
        axes.set_xlabel(setting_name(figure.x))
        set_scales(axes, figure.x_scale, "log")
        tick_levels(axes, inside[figure.x].values.astype(float), figure.x_scale)
        if figure.panel:
            axes.set_title(textwrap.fill(setting_and_level(figure.panel, level), characters(axes)), loc="left")
    drawn = list(grid.flat[: len(panels)])
    share_y(drawn, "log", always=True)
    for axes in drawn:
        _tick_y(axes, cells[figure.over].values.astype(float))
    label_y(grid, f"best {setting_name(figure.over)}", len(panels))
    legends(drawing, figure, looks, _reading(figure, hidden, told))
    return drawing


def _hidden(figure: Figure, cells: xr.Dataset) -> list[str]:
    return [name for name in unshown(figure, cells) if name not in (figure.over, *figure.tune)]


def places(figure: Figure, stratum: xr.Dataset) -> list[Place]:
    """Return the optimum at each level of x, of cells that differ in x, ``over`` and tuned factors alone."""
    found = []
    # Both by their numbers, also a bandwidth that follows a rule.
    along = stratum[figure.x].values.astype(float)
    for x in np.unique(along):
        cells = stratum.isel(cell=np.flatnonzero(along == x))
        levels = cells[figure.over].values.astype(float)
        values = cells[figure.y].sel(source="empirical").values
        if not np.isfinite(values).any():
            continue
        shares = cells.optimum_share.values
        distinct = np.unique(levels)
        possible = [level for level in distinct if shares[levels == level].sum() >= NEVER]
        told = {}
        for source in THEORIES:
            tuned = [column(cells, name).tolist() for name in figure.tune]
            profile = told_profile(levels, tuned, cells[figure.y].sel(source=source).values)
            told[source] = float(profile.refined[0]) if profile.in_sight else np.nan
        optimum = float(_profile(levels, values).refined[0])
        found.append(Place(float(x), optimum, min(possible), max(possible), told))
    return found


def _profile(levels: np.ndarray, values: np.ndarray) -> Profile:
    """Least of the values at each level; undefined ones are left out."""
    known, distinct = np.where(np.isnan(values), np.inf, values), np.unique(levels)
    return Profile(distinct, np.array([[known[levels == level].min() for level in distinct]]))


def _path(axes: Axes, path: list[Place], scale: str, look: Look, shift: float) -> set[str]:
    """Draw optima with their uncertainty sets, theory as lines; return the theories that have any."""
    x = np.array([place.x for place in path])
    best = np.array([place.optimum for place in path])
    below, above = (np.array([getattr(place, name) for place in path]) for name in ("lowest", "highest"))
    bars = np.maximum([best - below, above - best], 0.0)
    moved = _moved(x, scale, shift)
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


def _moved(x: np.ndarray, scale: str, shift: float) -> np.ndarray:
    """Levels of x moved aside by a share of the least distance between two of them."""
    place = np.log(x) if scale == "log" else x
    place = place + shift * (np.diff(np.unique(place)).min() if len(np.unique(place)) > 1 else 1.0)
    return np.exp(place) if scale == "log" else place


def _tick_y(axes: Axes, levels: np.ndarray) -> None:
    # Some room beside the outermost levels, as optima often stand there.
    axes.set_ylim(levels.min() / 1.2, levels.max() * 1.2)
    axes.yaxis.set_major_locator(FixedLocator(np.unique(levels).tolist()))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _reading(figure: Figure, hidden: list[str], told: set[str]) -> Entries:
    tuned = f", best {', '.join(setting_name(name) for name in figure.tune)} at each level" if figure.tune else ""
    text = f"points: least {measure_name(figure.y)}{tuned}, between levels by a parabola in the logarithm"
    entries = [(Line2D([], [], color=NEUTRAL, marker="o", markerfacecolor="white", linestyle=""), text)]
    text = f"bars: levels that are best in {NEVER:.0%} or more of the draws from the joint distribution of estimates"
    entries.append((Line2D([], [], color=NEUTRAL, marker="|", markersize=10, linestyle=""), text))
    for source in THEORIES:
        if source in told:
            text = f"line: {THEORY_NAMES[source]}, where it has an optimum"
            entries.append((Line2D([], [], color=NEUTRAL, **THEORY_LINES[source]), text))
    if hidden:
        names = ", ".join(setting_name(name) for name in hidden)
        entries.append((Line2D([], [], linestyle=""), f"not told apart (one line for each value): {names}"))
    return entries
