"""The panels of a figure: canvas, scales, ticks and shared axes, whatever is drawn in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogFormatter, MaxNLocator, NullLocator

from simstudy.report.labels import number

MAX_COLUMNS = 4
_WIDTHS = {1: 6.4, 2: 8.4, 3: 9.8, 4: 11.0}
STYLE: Any = {
    "font.size": 11, "axes.titlesize": 11, "axes.labelsize": 11, "xtick.labelsize": 10, "ytick.labelsize": 10,
    "legend.fontsize": 10, "legend.title_fontsize": 10, "legend.frameon": False, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.6,
    "axes.axisbelow": True, "lines.linewidth": 1.4, "lines.markersize": 5.5, "svg.hashsalt": "simstudy",
    "text.parse_math": False, "text.hinting": "none", "svg.fonttype": "none", "axes.titley": 1.0,
    "pdf.fonttype": 42,
}  # fmt: skip
"""Settings of Matplotlib under which figures are drawn and saved; the salt makes the names inside an SVG repeatable.

A dollar in a label is a dollar.  Letters keep their shapes: hinting makes some strokes bold, and takes a twelfth of the
time.  Text of an SVG or PDF is text; titles stand where they are: to move them clear of ticks takes a tenth."""


@contextlib.contextmanager
def own_style() -> Iterator[None]:
    """Draw with the defaults of Matplotlib and `STYLE`, whatever a file of settings or the caller has set."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def canvas(n_panels: int, *heights: float, columns: int = MAX_COLUMNS) -> tuple[Any, ...]:
    """Return a drawing and its axes (row, column): panels, then strips below with their x, of heights in inches."""
    rows = -(-n_panels // columns)
    across = -(-n_panels // rows)
    width = _WIDTHS[MAX_COLUMNS if columns == 1 else across]
    drawing = Figure(figsize=(width, rows * sum(heights) + 0.9), layout="constrained")
    every = drawing.subplots(len(heights) * rows, across, squeeze=False, height_ratios=list(heights) * rows)
    grids = [every[start :: len(heights)] for start in range(len(heights))]
    for upper, lower in pairwise(grids):
        for axes, strip in zip(upper.flat, lower.flat, strict=True):
            strip.sharex(axes)
            axes.tick_params(labelbottom=False)
    for axes in (axes for grid in grids for axes in grid.flat[n_panels:]):
        axes.set_visible(False)
    return drawing, *grids


def characters(axes: Axes) -> int:
    """Return how many characters of a title fit over a panel."""
    drawing = axes.get_figure(root=True)
    assert drawing is not None
    return int(axes.get_position().width * drawing.get_size_inches()[0] / 0.085)


def aim(panels: Sequence[Axes], target: float | None) -> list[tuple[Line2D, str]]:
    """Draw a line in all panels at the value that is aimed at, if there is one; return its entry of the legend."""
    if target is None:
        return []
    style: Any = {"color": "black", "linestyle": (0, (1, 1.5)), "linewidth": 1.2}
    for axes in panels:
        axes.axhline(target, zorder=1, label="target", **style)
    return [(Line2D([], [], **style), f"black dots: aimed at, {number(target)}")]


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
    """Put ticks of x at the first and last level of a factor, and at others that keep clear of those before them."""
    levels = np.unique(levels[visible(levels, scale)])
    if len(levels):
        places, chosen = np.log(levels) if scale == "log" else levels, [0, len(levels) - 1]
        for i, place in enumerate(places):
            if np.abs(places[chosen] - place).min() >= 5 * np.ptp(places) / characters(axes):
                chosen.append(i)
        axes.xaxis.set_major_locator(FixedLocator(np.unique(levels[chosen]).tolist()))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


class PlainLog(LogFormatter):
    """Ticks of a logarithmic axis where Matplotlib would label them, as plain numbers: 0.01 instead of 10⁻²."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of the tick at ``x``; empty where there would be too many."""
        return number(x) if super().__call__(x, pos) else ""


def share_y(panels: list[Axes], scale: str, always: bool = False) -> None:
    """Give panels one y axis, unless some would then be squeezed to less than an eighth of their height."""
    limits = np.array([axes.get_ylim() for axes in panels if axes.has_data()])
    if not len(limits):
        return
    lower, upper = limits[:, 0].min(), limits[:, 1].max()
    spans = np.diff(np.log(limits) if scale == "log" else limits)
    whole = np.log(upper / lower) if scale == "log" else upper - lower
    if always or spans.min() >= whole / 8:
        for axes in panels:
            axes.set_ylim(lower, upper)


CLOSE_TO_ZERO = 0.4
"""Of the largest value: an axis whose least value is no larger begins at 0."""


def from_zero(panels: list[Axes], scale: str) -> list[str]:
    """Let linear y axes begin at 0 where that costs little; return what has to be said of the others and of scales."""
    drawn = [axes for axes in panels if axes.has_data()]
    words = []
    if scale == "linear":
        for axes in drawn:
            low, high = axes.get_ylim()
            if 0 < low <= CLOSE_TO_ZERO * high:
                axes.set_ylim(bottom=0.0)
        cut = [axes for axes in drawn if axes.get_ylim()[0] > 0 or axes.get_ylim()[1] < 0]
        words += ["y does not begin at 0" + ("" if len(cut) == len(drawn) else " in every panel")] if cut else []
    return words + (["panels have y axes of their own"] if len({axes.get_ylim() for axes in drawn}) > 1 else [])


def label_y(grid: np.ndarray, text: str, n_panels: int) -> None:
    """Name the y axis once in each row, and leave numbers to the first panel where all have the same."""
    shared = len({axes.get_ylim() for axes in grid.flat[:n_panels]}) == 1
    for axes in grid[:, 0]:
        axes.set_ylabel(text)
    for axes in grid[:, 1:].flat if shared else ():
        axes.tick_params(which="both", labelleft=False)
