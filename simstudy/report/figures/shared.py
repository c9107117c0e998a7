"""Parts that kinds of figures share: canvas, scales, ticks, colours, panels, legends, strips."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatter, MaxNLocator
from matplotlib.transforms import offset_copy

from simstudy.design.answerable import by_levels, level
from simstudy.design.document import PanelFigure
from simstudy.design.measures import THEORIES, coordinates_of
from simstudy.report.labels import COVERAGE, level_name, number, setting_and_level, setting_name
from simstudy.report.terminal import counted
from simstudy.results import factors_of
from simstudy.verdicts.estimates import Array

MAX_COLUMNS = 4
_WIDTHS = {1: 6.4, 2: 8.4, 3: 9.8, 4: 11.0}
STYLE: Any = {
    "font.size": 11, "axes.titlesize": 11, "axes.labelsize": 11, "xtick.labelsize": 10, "ytick.labelsize": 10,
    "legend.fontsize": 10, "legend.title_fontsize": 10, "legend.frameon": False, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.6,
    "axes.axisbelow": True, "lines.linewidth": 1.4, "lines.markersize": 5.5, "text.parse_math": False,
    "text.hinting": "none", "axes.titley": 1.0,
}  # fmt: skip
"""Settings of Matplotlib under which figures are drawn.

A dollar in a label is not mathematics.  Hinting is off, as it makes some strokes bold and takes a twelfth of the time.
Titles have fixed places, as moving them away from ticks takes a tenth."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Palette of Okabe and Ito (2008) for colour-blind readers, without its yellow, which is faint on white."""
MARKERS = "os^DvPX"
NEUTRAL = "#444444"
"""Colour of what belongs to no level."""
# The broad line is visible on both sides of the thin one if they coincide.
THEORY_LINES: dict[str, Any] = {
    "exact": {"linewidth": 5.0, "alpha": 0.3, "solid_capstyle": "butt", "zorder": 1.5},
    "leading": {},
}

RING: Any = {"marker": "o", "markerfacecolor": "white", "linestyle": ""}
DASHED: Any = {"linestyle": (0, (5, 3)), "linewidth": 1.0}

short = partial(textwrap.shorten, placeholder=" …")

Entries = list[tuple[dict[str, Any], str] | str]
"""Entries of a legend: how something is drawn, in grey by default, and what it is; or text alone."""


figure_style = partial(style.context, STYLE, after_reset=True)
"""Context in which only the defaults of Matplotlib and `STYLE` apply, not a file of settings or the caller's."""


def canvas(n_panels: int, *heights: float, columns: int = MAX_COLUMNS) -> tuple[Any, ...]:
    """Return a drawing and its axes (row, column): panels, then strips below with the same x; heights in inches."""
    rows = -(-n_panels // columns)
    across = -(-n_panels // rows)
    width = _WIDTHS[MAX_COLUMNS if columns == 1 else across]
    drawing = Drawing(figsize=(width, rows * sum(heights) + 0.9), layout="constrained")
    panels = drawing.subplots(len(heights) * rows, across, squeeze=False, height_ratios=list(heights) * rows)
    grids = [panels[start :: len(heights)] for start in range(len(heights))]
    for upper, lower in pairwise(grids):
        for axes, strip in zip(upper.flat, lower.flat, strict=True):
            strip.sharex(axes)
            axes.tick_params(labelbottom=False)
    for axes in (axes for grid in grids for axes in grid.flat[n_panels:]):
        axes.set_visible(False)
    return drawing, *grids


def characters(axes: Axes, side: str = "width") -> int:
    """Return the number of characters that fit above a panel, or along its height."""
    return int(getattr(axes.bbox, side) / axes.figure.dpi / 0.085)


def visible(values: np.ndarray, scale: str) -> np.ndarray:
    """Return which values an axis can show: finite, and positive on a logarithmic one."""
    return np.isfinite(values) & ((values > 0) | (scale == "linear"))


def set_scales(axes: Axes, x_scale: str, y_scale: str) -> None:
    """Set ``linear`` or ``log`` scales; logarithmic ones with plain numbers."""
    for axis, scale in ((axes.xaxis, x_scale), (axes.yaxis, y_scale)):
        if scale == "log":
            axes.set(**{f"{axis.axis_name}scale": "log"})
            axis.set_major_formatter(PlainLog())
            axis.set_minor_formatter(PlainLog(labelOnlyBase=False, minor_thresholds=(1.2, 0.5)))
        else:
            fitting = 5 if axis is axes.yaxis else min(max(characters(axes) // 7, 4), 8)
            axis.set_major_locator(MaxNLocator(nbins=fitting, steps=[1, 2, 2.5, 5, 10]))


def tick_levels(axes: Axes, levels: np.ndarray, scale: str) -> None:
    """Put ticks of x at the first and last level of a factor, and at others that do not overlap."""
    if len(levels := np.unique(levels[visible(levels, scale)])):
        places, chosen = np.log(levels) if scale == "log" else levels, [0, len(levels) - 1]
        for i, place in enumerate(places):
            if np.abs(places[chosen] - place).min() >= 5 * np.ptp(places) / characters(axes):
                chosen.append(i)
        shown = np.unique(levels[chosen])
        axes.set_xticks(shown, [*map(number, shown)])
        axes.set_xticks([], minor=True)


class PlainLog(LogFormatter):
    """Ticks of a logarithmic axis where Matplotlib would label them, as plain numbers: 0.01 instead of 10⁻²."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of the tick at ``x``; empty where there would be too many."""
        return number(x) if super().__call__(x, pos) else ""


CLOSE_TO_ZERO = 0.4
"""An axis begins at 0 if its least value is at most this share of the largest."""


def settle_y(panels: Sequence[Axes], scale: str, text: str) -> list[str]:
    """Give panels a common y axis with a name, from 0 if the least value is near; return notes for the legend.

    Each panel has its own axis if one would fill less than an eighth of the common axis.
    """
    drawn = [axes for axes in panels if axes.has_data()]
    limits = np.array([axes.get_ylim() for axes in drawn]).reshape(-1, 2)
    ends = np.log(limits) if scale == "log" else limits
    if len(drawn) and np.diff(ends).min() >= np.ptp(ends) / 8:
        # One margin for all panels: that of a panel may be narrower than half of a mark.
        inside = ends + np.diff(ends) / 22 * [1, -1]
        joined = [inside.min(), inside.max()] + np.ptp(inside) / 20 * np.array([-1, 1])
        limits[:] = np.exp(joined) if scale == "log" else joined
    for axes, (low, high) in zip(drawn, limits.tolist(), strict=True):
        axes.set_ylim(0.0 if scale == "linear" and 0 < low <= CLOSE_TO_ZERO * high else low, high)
    label_y(panels, text)
    settled = [axes.get_ylim() for axes in drawn]
    cut = [low for low, high in settled if scale == "linear" and (low > 0 or high < 0)]
    words = ["y does not begin at 0" + ("" if len(cut) == len(settled) else " in every panel")] if cut else []
    return words + (["panels have y axes of their own"] if len(set(settled)) > 1 else [])


def label_y(panels: Sequence[Axes], text: str) -> None:
    """Name the y axis in the first panel of each row, and show numbers only there if all axes are equal."""
    for axes in panels:
        if is_first(axes):
            axes.set_ylabel(text)
        elif len({each.get_ylim() for each in panels}) == 1:
            axes.tick_params(which="both", labelleft=False)


def is_first(axes: Axes) -> bool:
    """Return true if a panel or strip is the first of its row."""
    place = axes.get_subplotspec()
    return place is not None and place.is_first_col()


class Look(NamedTuple):
    """Colour and marker of a level, which identify it also in grey, and its place, centred at 0 over n levels."""

    colour: str
    marker: str
    place: float


def draw_marks(axes: Axes, look: Look, x: np.ndarray, y: np.ndarray, **style: Any) -> None:
    """Draw open marks with error bars ``xerr`` and ``yerr``; marks at one place remain visible."""
    style = {"elinewidth": 1.1, "markeredgewidth": 1.3, "zorder": 3} | style
    filled = {name: style[name] for name in ("markersize", "transform") if name in style}
    axes.plot(x, y, look.marker, color="white", zorder=style["zorder"] + 0.05, **filled)  # above bars, below all marks
    axes.errorbar(x, y, fmt=look.marker, color=look.colour, markerfacecolor="none", **style)


def levels_of(cells: xr.Dataset, factor: str | None) -> list[Any]:
    """Return the level of a factor in each cell; None without a factor."""
    return [level(row, factor) if factor else None for row in coordinates_of(cells)]


def split(cells: xr.Dataset, *factors: str | None) -> Iterator[tuple[Any, xr.Dataset]]:
    """Yield (level of the first, cells) for each combination of levels, in the order of the design; None is ignored."""
    names, rows = [name for name in factors if name], coordinates_of(cells)
    for inside in by_levels(rows, names, range(len(rows))):
        yield level(rows[inside[0]], names[0]) if names else None, cells.isel(cell=inside)


def panelled(
    figure: PanelFigure, cells: xr.Dataset, height: float, *below: float, alone: float = 0.0, columns: int = MAX_COLUMNS
) -> tuple[Drawing, dict[Any, Look], list[tuple[Any, ...]], list[Axes]]:
    """Return a drawing, the look of each hue, (cells, cells by look, axes, strips) of each panel, and all axes.

    ``alone`` is added to the height of a single panel.
    """
    levels, hues = list(split(cells, figure.panel)), list(dict.fromkeys(levels_of(cells, figure.hue)))
    looks = {  # no two of the first 49 agree in colour and marker
        each: Look(COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)], i - (len(hues) - 1) / 2)
        for i, each in enumerate(hues)
    }
    drawing, *grids = canvas(len(levels), height + (alone if len(levels) == 1 else 0.0), *below, columns=columns)
    panels = []
    for (each, inside), axes, *strips in zip(levels, *(grid.flat for grid in grids), strict=False):
        if figure.panel:
            axes.set_title(textwrap.fill(setting_and_level(figure.panel, each), characters(axes)), loc="left")
        panels.append((inside, [(looks[hue], part) for hue, part in split(inside, figure.hue)], axes, *strips))
    return drawing, looks, panels, [axes for _, _, axes, *_ in panels]


def varying(cells: xr.Dataset, grid: str, *shown: str | None) -> dict[str, list[Any]]:
    """Return the factors of a grid that vary among cells, with their levels; none of those ``shown``."""
    names = (name for name in factors_of(cells)[grid] if name not in shown)
    found = {name: list(dict.fromkeys(levels_of(cells, name))) for name in names}
    return {name: levels for name, levels in found.items() if len(levels) > 1}


def drawn_in(panels: Iterable[Axes]) -> set[str]:
    """Return the labels of everything that is drawn in panels."""
    return {str(each.get_label()) for axes in panels for each in axes.get_children()}


def legends(drawing: Drawing, looks: dict[Any, Look], reading: Entries, hue: str | None = None) -> None:
    """Put the legend of colours above the panels, and that of points and lines below."""
    if hue:
        names, title = [short(level_name(each), 70) for each in looks], setting_name(hue)
        handles = [Line2D([], [], color=c, marker=m, markerfacecolor="white") for c, m, _ in looks.values()]
        columns = int(np.clip(drawing.get_size_inches()[0] / (0.6 + 0.09 * max(map(len, names))), 1, len(names)))
        drawing.legend(handles, names, loc="outside upper left", title=title, alignment="left", ncol=columns)
    pairs = [({"linestyle": ""}, entry) if isinstance(entry, str) else entry for entry in reading]
    handles = [Line2D([], [], **{"color": NEUTRAL} | style) for style, _ in pairs]
    texts = [textwrap.fill(text, int(drawing.get_size_inches()[0] / 0.09)) for _, text in pairs]
    drawing.legend(handles, texts, loc="outside lower left")


def left_out(figure: Any, x: np.ndarray, y: np.ndarray) -> Entries:
    """Return an entry of the legend with the number of points that a logarithmic axis cannot show, if any."""
    count = int((np.isfinite(x) & np.isfinite(y) & ~(visible(x, figure.x_scale) & visible(y, figure.y_scale))).sum())
    return [f"{counted(count, 'point')} ≤ 0 left out of a log axis"] if count else []


HEIGHT = 0.85
"""Height of a strip, in inches."""
STRIP = "residuals"
"""Label of the axes of a strip."""
TELLING = 0.5
"""Largest half of an error bar, relative to theory, of points that determine the limits of strips."""
FAR = 4.0
"""Largest limit of a strip, as a multiple of the limit that three quarters of the points need."""
LEAST = 0.01
"""Least limit of a strip if no claim states a margin."""
STRIP_APART = 4.0
"""Distance between colours at one x, in points, as residuals near 0 would overlap."""
WIDEST = 24.0
"""Largest distance between the outermost colours at one x, in points."""
MARGIN = "#dfeee3"
"""Colour of the margin in strips."""


def by_source(cells: xr.Dataset, measure: str, source: str) -> Array:
    """Return a measure in each cell by Monte Carlo (``empirical``) or a theory."""
    # From variables, as `sel` takes a hundred times as long.
    return cells.variables[measure].values[cells.indexes["source"].get_loc(source)]


def theory_of(cells: xr.Dataset, measure: str) -> Array:
    """Return the value of exact theory in each cell, else of leading order; NaN without theory."""
    exact, leading = (by_source(cells, measure, source) for source in THEORIES)
    return np.where(np.isnan(exact), leading, exact)


def residuals(cells: xr.Dataset, measure: str) -> tuple[Array, Array]:
    """Return the Monte Carlo estimate over theory minus 1 in each cell, and its MCSE; NaN if theory is 0 or missing."""
    theory = theory_of(cells, measure)
    theory = np.where(theory == 0, np.nan, theory)
    return by_source(cells, measure, "empirical") / theory - 1, cells[f"{measure}_mcse"].values / np.abs(theory)


class Strips:
    """Relative deviations of a measure from theory, in strips below panels with a symmetrical axis, if any."""

    def __init__(self, cells: xr.Dataset, measure: str, margin: float | None) -> None:
        self._measure, self._margin = measure, margin
        self._found, mcse = residuals(cells, measure)
        errors = COVERAGE * np.nan_to_num(mcse)
        needed = np.abs(self._found) + errors
        known = np.isfinite(needed)
        # Points with very long bars do not determine the limit, unless there are no others.
        telling = known & (errors <= TELLING)
        needed = needed[telling if telling.any() else known]
        self.limit = 0.0
        if len(needed):
            shown = min(float(needed.max()), FAR * float(np.quantile(needed, 0.75)))
            # The margin must be visible inside the strip; without one, deviations of 1 % must look small.
            self.limit = 1.1 * max(shown, 1.25 * margin if margin else LEAST)
        self.heights = [HEIGHT] if self.limit else []

    def draw(self, axes: Axes, x: np.ndarray, cells: xr.Dataset, look: Look, shift: float = 0.0) -> None:
        """Draw residuals at x, shifted right by ``shift`` points; those beyond the limit are arrows at the edge."""
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
        """Set the axis of strips in per cent, with a title in the first column, and draw the margin of a claim."""
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
        """Return entries of the legend on strips and on points beyond their limit; none without strips."""
        if not self.limit:
            return []
        allowed = f"; band: margin of the claim, ±\u00a0{number(100 * self._margin)}\u00a0%" if self._margin else ""
        text = f"strip: relative deviation ± {COVERAGE} MCSE (from exact theory where there is one){allowed}"
        far = np.abs(self._found[np.abs(self._found) > self.limit])
        furthest = _percent(float(f"{far.max(initial=0.0):.3g}"), 0).lstrip("+")
        arrows = f"arrows: {counted(len(far), 'point')} beyond the strip, the furthest by {furthest}"
        return [text, arrows] if len(far) else [text]


def _percent(value: float, _: int) -> str:
    text = number(100 * value if abs(value) > 1e-12 else 0.0).replace("-", "−")
    return f"{'+' if value > 1e-12 else ''}{text} %"
