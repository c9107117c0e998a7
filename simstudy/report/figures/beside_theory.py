"""What theory says in a figure: strips of Monte Carlo over theory − 1, and in grey what no theory speaks of."""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from simstudy.design.measures import THEORIES
from simstudy.report.figures.shared import COVERAGE, NEUTRAL, RING, Entries, Look
from simstudy.report.labels import number
from simstudy.verdicts.figure_data import Residuals, by_source

HEIGHT = 0.85
"""Of a strip, in inches."""
STRIP = "residuals"
"""Label of the axes of a strip."""
WHAT = "Monte Carlo over theory − 1 (exact where there is one)"
"""What strips show, in words."""
TELLING = 0.5
"""Longest half of an error bar, as a share of theory, of a point that decides how far strips go."""
FAR = 4.0
"""A strip reaches no further than so many times what three quarters of the points need."""

APART = 4.0
"""Distance of the colours at one x, in points: residuals are so near to 0 that they would hide one another."""
WIDEST = 24.0
"""Of all colours at one x, in points."""

MANY_TIMES = 10.0
"""A residual from which on nobody reads per cent."""


def reach(found: Residuals) -> float:
    """Return how far strips go on either side of 0; 0 if theory says nothing of any cell."""
    errors = COVERAGE * np.nan_to_num(found.mcse)
    needed = np.abs(found.values) + errors
    known = np.isfinite(needed)
    # Points that tell nothing, as their bars are so long, do not decide, unless there are no others.
    telling = known & (errors <= TELLING)
    needed = needed[telling if telling.any() else known]
    if not len(needed):
        return 0.0
    # Where rounding is all that differs, a strip of rounding errors would say nothing.
    return 1.1 * max(min(float(needed.max()), FAR * float(np.quantile(needed, 0.75))), 1e-9)


def side_by_side(position: int, n_colours: int) -> float:
    """Return how far to the right the residuals of a colour stand, in points."""
    return min(APART, WIDEST / n_colours) * (position - (n_colours - 1) / 2)


def draw_residuals(
    axes: Axes, x: np.ndarray, found: Residuals, look: Look, limit: float, shift: float = 0.0
) -> list[float]:
    """Draw the residuals of cells, ``shift`` points to the right; return those beyond, which are arrows at the edge."""
    drawing = axes.get_figure(root=True)
    assert drawing is not None
    moved = axes.transData + ScaledTranslation(shift / 72, 0.0, drawing.dpi_scale_trans)
    known = np.isfinite(found.values) & np.isfinite(x)
    inside = known & (np.abs(found.values) <= limit)
    axes.errorbar(x[inside], found.values[inside], yerr=COVERAGE * found.mcse[inside], fmt=look.marker,
                  color=look.colour, elinewidth=1.0, markersize=3.5, markerfacecolor="white",
                  markeredgewidth=1.1, transform=moved)  # fmt: skip
    for sign, marker in ((1, "^"), (-1, "v")):
        if (beyond := known & (sign * found.values > limit)).any():
            axes.plot(x[beyond], np.full(beyond.sum(), 0.93 * sign * limit), marker, color=look.colour, markersize=4,
                      transform=moved)  # fmt: skip
    return found.values[known & ~inside].tolist()


def settle_strips(
    strips: Sequence[Axes], named: Sequence[Axes], limit: float, title: str = "Monte Carlo/theory − 1"
) -> None:
    """Give strips one symmetrical axis in per cent, named at those in the first column."""
    for axes in strips:
        axes.set_label(STRIP)
        axes.axhline(0.0, color=NEUTRAL, linewidth=0.8, zorder=1)
        axes.set_ylim(-limit, limit)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=3, symmetric=True, min_n_ticks=3))
        axes.yaxis.set_major_formatter(FuncFormatter(_percent))
        axes.tick_params(axis="y", labelsize=9, labelleft=axes in named)
    for axes in named:
        axes.set_title(title, loc="left", fontsize=9, pad=3)


def _percent(value: float, _: int) -> str:
    text = number(100 * value if abs(value) > 1e-12 else 0.0).replace("-", "−")
    return f"{'+' if value > 1e-12 else ''}{text} %"


def residual_entries(beyond: Sequence[float], what: str = WHAT) -> Entries:
    """Entries of the legend on what strips show, and on what lies beyond them."""
    entries: Entries = [f"strip: {what} ± {COVERAGE} MCSE"]
    if beyond:
        furthest = max(beyond, key=abs)
        points = "1 point" if len(beyond) == 1 else f"{len(beyond)} points"
        shown = _percent(float(f"{furthest:.3g}"), 0) if abs(furthest) < MANY_TIMES else f"{1 + furthest:.3g} times"
        entries.append(f"arrows: {points} beyond the strip, the furthest at {shown}")
    return entries


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
    return [(RING | {"markerfacecolor": GREY}, f"filled grey: no theory, as {words}")]


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
