"""What no theory speaks of in a figure that shows theory: drawn in grey, and the reason said below."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from simstudy.design.measures import THEORIES
from simstudy.report.figures.marks import NEUTRAL, Entries, Look
from simstudy.verdicts.figure_data import by_source

GREY = "#bdbdbd"
"""Filling of points that no theory speaks of."""
MAX_REASONS = 2
"""Reasons that a figure lists; the report has more of them, `cells.csv` all."""
_NO_FORMULA = "it has no formula for this measure here"
_LONGEST = 150
"""Characters of a reason."""


def covered(cells: xr.Dataset, measure: str) -> np.ndarray:
    """Return of which cells some theory has a value."""
    return np.any(np.isfinite([by_source(cells, measure, source) for source in THEORIES]), axis=0)


def draw_points(
    axes: Axes, x: np.ndarray, y: np.ndarray, bars: np.ndarray, known: np.ndarray, look: Look, **style: Any
) -> None:  # fmt: skip
    """Draw points with error bars, white inside where some theory speaks of them and grey where none does."""
    drawn = axes.errorbar(x, y, yerr=bars, fmt=look.marker, color=look.colour, markerfacecolor="white", zorder=3,
                          **style)  # fmt: skip
    if not known.all():
        size = drawn.lines[0].get_markersize()
        axes.plot(x[~known], y[~known], look.marker, color=look.colour, markerfacecolor=GREY, markersize=size,
                  zorder=4, label="uncovered")  # fmt: skip


def uncovered_entries(cells: xr.Dataset, measure: str) -> Entries:
    """Entry of the legend that says of which points there is no theory, and why; none if there is of all."""
    known = covered(cells, measure)
    if known.all():
        return []
    words = "; ".join(_reasons(cells.isel(cell=np.flatnonzero(~known))))
    if not known.any():
        return [f"no theory: {words}"]
    handle = Line2D([], [], color=NEUTRAL, marker="o", markerfacecolor=GREY, linestyle="")
    return [(handle, f"filled grey: no theory, as {words}")]


def _reasons(cells: xr.Dataset) -> list[str]:
    """The most common reasons, one of each kind, with the number of cells; numbers inside of them tell none apart."""
    given = cells.inapplicable.sel(source="leading").values.tolist()
    # Details after a semicolon and in brackets differ from cell to cell.
    whys = [re.sub(r"\([^)]*\)", "", why.partition(";")[0]) or _NO_FORMULA for why in given]
    kinds = [re.sub(r"\d[\d.,e-]*", "#", why) for why in whys]
    common = Counter(kinds).most_common(MAX_REASONS)
    named = [(textwrap.shorten(whys[kinds.index(kind)], _LONGEST, placeholder=" …"), n) for kind, n in common]
    shown = [f"{why} ({n} point{'s' if n > 1 else ''})" for why, n in named]
    return shown + (["others"] if len(set(kinds)) > MAX_REASONS else [])
