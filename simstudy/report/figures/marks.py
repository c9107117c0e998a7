"""What the kinds of figures share: colours and markers, cells told apart by factors, legends."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simstudy.design.figures import Figure
from simstudy.report.labels import level_name, setting_name
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

Entries = list[tuple[Line2D, str]]


class Look(NamedTuple):
    """Colour and marker of one hue level, so that it is told apart in grey as well."""

    colour: str
    marker: str

    @classmethod
    def of(cls, position: int) -> Look:
        """Return the look of a level; no two of the first 49 agree in both."""
        turn, colour = divmod(position, len(COLOURS))
        return cls(COLOURS[colour], MARKERS[(colour + turn) % len(MARKERS)])


def column(cells: xr.Dataset, factor: str) -> np.ndarray:
    """Levels of a factor; those of the bandwidth are its rules, as the number may follow from other settings."""
    return cells["bandwidth_rule" if factor == "bandwidth" else factor].values


def levels_of(cells: xr.Dataset, factor: str) -> list[Any]:
    """Return the levels of a factor among the cells, in the order of the design."""
    return list(dict.fromkeys(column(cells, factor).tolist()))


def split(cells: xr.Dataset, factor: str | None) -> Iterator[tuple[Any, xr.Dataset]]:
    """Yield (level, cells) for each level of a factor, in the order of the design; all cells for None."""
    if factor is None:
        yield None, cells
        return
    for level in levels_of(cells, factor):
        yield level, cells.isel(cell=np.flatnonzero(column(cells, factor) == level))


def looks_of(cells: xr.Dataset, hue: str | None) -> dict[Any, Look]:
    """Look of each hue level, the same in all panels; without a hue the single level is None."""
    return {level: Look.of(position) for position, level in enumerate(levels_of(cells, hue) if hue else [None])}


def unshown(figure: Figure, cells: xr.Dataset) -> list[str]:
    """Factors that vary among the cells but that neither axis, colour nor panel shows."""
    factors = factors_of(cells)[figure.grid]
    hidden = [name for name in factors if name not in (figure.x, figure.hue, figure.panel)]
    return [name for name in hidden if len(levels_of(cells, name)) > 1]


def strata(cells: xr.Dataset, factors: list[str]) -> Iterator[xr.Dataset]:
    """Yield the cells of each combination of levels of some factors."""
    if not factors:
        yield cells
        return
    for _, part in split(cells, factors[0]):
        yield from strata(part, factors[1:])


def legends(drawing: Drawing, figure: Figure, looks: dict[Any, Look], reading: Entries) -> None:
    """Put colours above the panels and the reading of points and lines below them."""
    if None not in looks:
        title = setting_name(figure.hue) if figure.hue else None
        names = [textwrap.shorten(level_name(level), 70, placeholder=" …") for level in looks]
        handles = [Line2D([], [], color=c, marker=m, markerfacecolor="white") for c, m in looks.values()]
        fitting = int(drawing.get_size_inches()[0] / (0.6 + 0.09 * max(map(len, names))))
        drawing.legend(handles, names, loc="outside upper left", title=title, alignment="left",
                       ncol=max(1, min(len(names), fitting)))  # fmt: skip
    texts = [textwrap.fill(text, int(drawing.get_size_inches()[0] / 0.09)) for _, text in reading]
    drawing.legend([handle for handle, _ in reading], texts, loc="outside lower left")


class Notes:
    """What the drawing has to admit to, collected while it is drawn and printed below it."""

    def __init__(self) -> None:
        self.exact = self.leading = self.joined = self.limit_fallback = False
        self.dropped = 0


def dropped(notes: Notes) -> Entries:
    """Entry of the legend that says how many points a logarithmic axis cannot show."""
    points = "1 point" if notes.dropped == 1 else f"{notes.dropped} points"
    return [(Line2D([], [], linestyle=""), f"{points} ≤ 0 left out of a log axis")] if notes.dropped else []
