"""The panels of a figure: canvas, scales, ticks and shared axes, whatever is drawn in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogFormatter, MaxNLocator, NullLocator

from simstudy.report.labels import number

MAX_COLUMNS = 4
_WIDTHS = {1: 6.4, 2: 8.4, 3: 9.8, 4: 11.0}
STYLE: Any = {
    "font.size": 11, "axes.titlesize": 11, "axes.labelsize": 11, "xtick.labelsize": 10, "ytick.labelsize": 10,
    "legend.fontsize": 10, "legend.title_fontsize": 10, "legend.frameon": False, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.6,
    "axes.axisbelow": True, "lines.linewidth": 1.4, "lines.markersize": 5.5, "svg.hashsalt": "simstudy",
    "text.parse_math": False,
}  # fmt: skip
"""Settings of Matplotlib under which figures are drawn and saved; the salt makes the names inside an SVG repeatable.

A dollar in a label is a dollar."""


def canvas(n_panels: int, row_height: float) -> tuple[Figure, np.ndarray]:
    """Return a drawing with panels in as few rows as MAX_COLUMNS allows, filled as evenly as can be.

    Parameters
    ----------
    n_panels
        Number of panels; places left over at the end are blank.
    row_height
        In inches.
    """
    rows = -(-n_panels // MAX_COLUMNS)
    columns = -(-n_panels // rows)
    drawing = Figure(figsize=(_WIDTHS[columns], rows * row_height + 0.9), layout="constrained")
    FigureCanvasAgg(drawing)
    grid = drawing.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[n_panels:]:
        axes.set_visible(False)
    return drawing, grid


def stacked(n_panels: int, height: float, strip_height: float) -> tuple[Figure, np.ndarray]:
    """Return a wide drawing with panels one below the other, each over a strip with the same x axis: (panel, 2).

    Parameters
    ----------
    n_panels
        Number of panels.
    height, strip_height
        Of a panel and of its strip, in inches.
    """
    size = (_WIDTHS[MAX_COLUMNS], n_panels * (height + strip_height) + 0.9)
    drawing = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(drawing)
    ratios = [height, strip_height] * n_panels
    grid = drawing.subplots(2 * n_panels, 1, squeeze=False, sharex=True, height_ratios=ratios)
    return drawing, grid.reshape(n_panels, 2)


def characters(axes: Axes) -> int:
    """Return how many characters of a title fit over a panel."""
    drawing = axes.get_figure(root=True)
    assert drawing is not None
    return int(axes.get_position().width * drawing.get_size_inches()[0] / 0.085)


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
    """Put the ticks of x at the levels of a factor, where their labels keep clear of one another."""
    levels = np.unique(levels[visible(levels, scale)])
    if _keep_clear(np.log(levels) if scale == "log" else levels, characters(axes)):
        axes.xaxis.set_major_locator(FixedLocator(levels.tolist()))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _keep_clear(places: np.ndarray, width: int) -> bool:
    if len(places) < 2:
        return len(places) == 1
    return bool(np.diff(places).min() / np.ptp(places) * width >= 5)


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


def label_y(grid: np.ndarray, text: str, n_panels: int) -> None:
    """Name the y axis once in each row, and leave numbers to the first panel where all have the same."""
    shared = len({axes.get_ylim() for axes in grid.flat[:n_panels]}) == 1
    for axes in grid[:, 0]:
        axes.set_ylabel(text)
    for axes in grid[:, 1:].flat if shared else ():
        axes.tick_params(which="both", labelleft=False)
