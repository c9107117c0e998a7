"""Theory in a figure: strips of the relative deviation of Monte Carlo from it."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import offset_copy

from simstudy.design.measures import THEORIES
from simstudy.report.figures.shared import NEUTRAL, Entries, Look, draw_marks, is_first
from simstudy.report.labels import COVERAGE, number
from simstudy.report.terminal import counted
from simstudy.verdicts.estimates import Array

HEIGHT = 0.85
"""Of a strip, in inches."""
STRIP = "residuals"
"""Label of the axes of a strip."""
TELLING = 0.5
"""Longest half of an error bar, as a share of theory, of a point that decides how far strips go."""
FAR = 4.0
"""A strip reaches no further than so many times what three quarters of the points need."""
LEAST = 0.01
"""A strip reaches at least so far where no claim states a margin."""
APART = 4.0
"""Distance of the colours at one x, in points: residuals are so near to 0 that they would hide one another."""
WIDEST = 24.0
"""Of all colours at one x, in points."""
MARGIN = "#dfeee3"
"""Colour of the margin in strips."""


def by_source(cells: xr.Dataset, measure: str, source: str) -> Array:
    """Return a measure in each cell by Monte Carlo (``empirical``) or a theory."""
    # Of variables: `sel` takes a hundred times as long, for each line of each figure.
    return cells.variables[measure].values[cells.indexes["source"].get_loc(source)]


def theory_of(cells: xr.Dataset, measure: str) -> Array:
    """Return the value of theory in each cell, the exact one where there is one; NaN where no theory has any."""
    exact, leading = (by_source(cells, measure, source) for source in THEORIES)
    return np.where(np.isnan(exact), leading, exact)


def residuals(cells: xr.Dataset, measure: str) -> tuple[Array, Array]:
    """Return Monte Carlo over theory − 1 in each cell, and its MCSE; NaN where no theory has a value other than 0."""
    theory = theory_of(cells, measure)
    theory = np.where(theory == 0, np.nan, theory)
    return by_source(cells, measure, "empirical") / theory - 1, cells[f"{measure}_mcse"].values / np.abs(theory)


class Strips:
    """Residuals of a measure in strips below panels, on one symmetrical axis; none where theory says nothing."""

    def __init__(self, cells: xr.Dataset, measure: str, margin: float | None) -> None:
        self._measure, self._margin = measure, margin
        self._found, mcse = residuals(cells, measure)
        errors = COVERAGE * np.nan_to_num(mcse)
        needed = np.abs(self._found) + errors
        known = np.isfinite(needed)
        # Points that tell nothing, as their bars are so long, do not decide, unless there are no others.
        telling = known & (errors <= TELLING)
        needed = needed[telling if telling.any() else known]
        self.limit = 0.0
        if len(needed):
            shown = min(float(needed.max()), FAR * float(np.quantile(needed, 0.75)))
            # What lies inside has to look inside; without a margin, a hundredth is what nobody takes for a failure.
            self.limit = 1.1 * max(shown, 1.25 * margin if margin else LEAST)
        self.heights = [HEIGHT] if self.limit else []

    def draw(self, axes: Axes, x: np.ndarray, cells: xr.Dataset, look: Look, shift: float = 0.0) -> None:
        """Draw residuals at x, ``shift`` points to the right; those beyond the strip are arrows at its edge."""
        (values, mcse), limit = residuals(cells, self._measure), self.limit
        moved = offset_copy(axes.transData, axes.get_figure(root=True), shift, units="points")
        known = np.isfinite(values) & np.isfinite(x)
        inside = known & (np.abs(values) <= limit)
        style = {"elinewidth": 1.0, "markersize": 3.5, "markeredgewidth": 1.1, "zorder": 2, "transform": moved}
        draw_marks(axes, look, x[inside], values[inside], yerr=COVERAGE * mcse[inside], **style)
        for sign, marker in ((1, "^"), (-1, "v")):
            if (beyond := known & (sign * values > limit)).any():
                edge = np.full(beyond.sum(), 0.93 * sign * limit)
                axes.plot(x[beyond], edge, marker, color=look.colour, markersize=4, transform=moved)

    def settle(self, strips: Sequence[Axes]) -> None:
        """Give strips their axis in per cent, named in the first column, and the margin of a claim."""
        for axes in strips:
            axes.set_label(STRIP)
            axes.axhline(0.0, color=NEUTRAL, linewidth=0.8, zorder=1)
            if self._margin:
                axes.axhspan(-self._margin, self._margin, color=MARGIN, zorder=0.5, linewidth=0, label="margin")
            axes.set_ylim(-self.limit, self.limit)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=3, symmetric=True, min_n_ticks=3))
            axes.yaxis.set_major_formatter(FuncFormatter(_percent))
            axes.tick_params(axis="y", labelsize=9, labelleft=is_first(axes))
            if is_first(axes):
                axes.set_title("relative deviation from theory", loc="left", fontsize=9, pad=3)

    def entries(self) -> Entries:
        """Entries of the legend on what strips show, and on what lies beyond them; none without strips."""
        if not self.limit:
            return []
        allowed = f"; band: margin of the claim, ± {number(100 * self._margin)}\u00a0%" if self._margin else ""
        text = f"strip: relative deviation ± {COVERAGE} MCSE (from exact theory where there is one){allowed}"
        far = np.abs(self._found[np.abs(self._found) > self.limit])
        furthest = _percent(float(f"{far.max(initial=0.0):.3g}"), 0).lstrip("+")
        arrows = f"arrows: {counted(len(far), 'point')} beyond the strip, the furthest by {furthest}"
        return [text, arrows] if len(far) else [text]


def _percent(value: float, _: int) -> str:
    text = number(100 * value if abs(value) > 1e-12 else 0.0).replace("-", "−")
    return f"{'+' if value > 1e-12 else ''}{text} %"
