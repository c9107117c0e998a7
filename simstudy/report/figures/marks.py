"""What the kinds of figures share: colours and markers, cells told apart by factors, legends."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simstudy.design.figures import PanelFigure
from simstudy.design.measures import coordinates_of
from simstudy.design.settings.levels import by_levels, level
from simstudy.report.figures.panels import canvas, characters
from simstudy.report.labels import level_name, setting_and_level, setting_name
from simstudy.results import factors_of

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Palette of Okabe and Ito (2008) for colour-blind readers, without its yellow, which is faint on white."""
MARKERS = "os^DvPX"
COVERAGE = 1.96
"""Half-width of an error bar in MCSE: a 95 % interval."""
NEUTRAL = "#444444"
"""Colour of what belongs to no level."""
# The broad line shows on both sides of the thin one where they agree.
THEORY_LINES: dict[str, Any] = {
    "exact": {"linewidth": 5.0, "alpha": 0.3, "solid_capstyle": "butt", "zorder": 1.5},
    "leading": {},
}

Entries = list[tuple[Line2D, str] | str]
"""Of a legend: what is shown and what it is, or text alone."""


class Look(NamedTuple):
    """Colour and marker of one hue level, so that it is told apart in grey as well."""

    colour: str
    marker: str

    @classmethod
    def of(cls, position: int) -> Look:
        """Return the look of a level; no two of the first 49 agree in both."""
        turn, colour = divmod(position, len(COLOURS))
        return cls(COLOURS[colour], MARKERS[(colour + turn) % len(MARKERS)])


def levels_of(cells: xr.Dataset, factor: str) -> list[Any]:
    """Return the level of a factor in each cell."""
    return [level(row, factor) for row in coordinates_of(cells)]


def split(cells: xr.Dataset, factor: str | None) -> Iterator[tuple[Any, xr.Dataset]]:
    """Yield (level, cells) for each level of a factor, in the order of the design; (None, all cells) for None."""
    if factor is None:
        yield None, cells
        return
    rows = coordinates_of(cells)
    for inside in by_levels(rows, (factor,), range(len(rows))):
        yield level(rows[inside[0]], factor), cells.isel(cell=inside)


def strata_of(cells: xr.Dataset, factors: list[str]) -> Iterator[xr.Dataset]:
    """Yield the cells of each combination of levels of some factors."""
    rows = coordinates_of(cells)
    parts = by_levels(rows, factors, range(len(rows)))
    yield from (cells.isel(cell=inside) for inside in parts) if factors else [cells]


Panels = list[tuple[Axes, xr.Dataset]]
"""Axes and cells of each level of the panel."""


def panelled(
    figure: PanelFigure, cells: xr.Dataset, height: float, height_of_one: float
) -> tuple[Drawing, np.ndarray, Panels]:
    """Return a drawing, its grid of axes, and axes and cells of each panel; heights of a row and of the only one."""
    panels = list(split(cells, figure.panel))
    drawing, grid = canvas(len(panels), height_of_one if len(panels) == 1 else height)
    return drawing, grid, entitled(figure, panels, grid)


def entitled(figure: PanelFigure, panels: list[tuple[Any, xr.Dataset]], grid: np.ndarray) -> Panels:
    """Write the level of each panel over its axes, and return axes and cells."""
    for axes, (each, _) in zip(grid.flat, panels, strict=False):
        if figure.panel:
            axes.set_title(textwrap.fill(setting_and_level(figure.panel, each), characters(axes)), loc="left")
    return [(axes, inside) for axes, (_, inside) in zip(grid.flat, panels, strict=False)]


def looks_of(cells: xr.Dataset, hue: str | None) -> dict[Any, Look]:
    """Look of each hue level, the same in all panels; without a hue the single level is None."""
    levels = dict.fromkeys(levels_of(cells, hue) if hue else [None])
    return {each: Look.of(position) for position, each in enumerate(levels)}


def unshown(figure: PanelFigure, cells: xr.Dataset, *shown: str) -> list[str]:
    """Factors that vary among the cells but that neither colour nor panel shows, nor any other part of the figure."""
    hidden = [name for name in factors_of(cells)[figure.grid] if name not in (*shown, figure.hue, figure.panel)]
    return [name for name in hidden if len(set(levels_of(cells, name))) > 1]


def legends(drawing: Drawing, looks: dict[Any, Look], reading: Entries, hue: str | None = None) -> None:
    """Put colours above the panels and the reading of points and lines below them."""
    if None not in looks:
        title = setting_name(hue) if hue else None
        names = [textwrap.shorten(level_name(each), 70, placeholder=" …") for each in looks]
        handles = [Line2D([], [], color=c, marker=m, markerfacecolor="white") for c, m in looks.values()]
        fitting = int(drawing.get_size_inches()[0] / (0.6 + 0.09 * max(map(len, names))))
        drawing.legend(handles, names, loc="outside upper left", title=title, alignment="left",
                       ncol=max(1, min(len(names), fitting)))  # fmt: skip
    pairs = [(Line2D([], [], linestyle=""), entry) if isinstance(entry, str) else entry for entry in reading]
    texts = [textwrap.fill(text, int(drawing.get_size_inches()[0] / 0.09)) for _, text in pairs]
    drawing.legend([handle for handle, _ in pairs], texts, loc="outside lower left")


class Notes:
    """What the drawing has to admit to, collected while it is drawn and printed below it."""

    def __init__(self) -> None:
        self.exact = self.leading = self.joined = self.limit_fallback = self.uncovered = False
        self.dropped = 0
        self.beyond: list[float] = []


def dropped(notes: Notes) -> Entries:
    """Entry of the legend that says how many points a logarithmic axis cannot show."""
    points = "1 point" if notes.dropped == 1 else f"{notes.dropped} points"
    return [f"{points} ≤ 0 left out of a log axis"] if notes.dropped else []
