"""Where the panels of a drawing stand: clear of what is written around them, between the legends."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine

PAD = 4.5
"""Around each panel and legend, in points."""


class Measured(LayoutEngine):
    """Rows and columns with the room that texts need, which are measured once.

    Matplotlib's constrained layout measures them twice: an eighth of the time of a figure.
    """

    _adjust_compatible = _colorbar_gridspec = False

    def execute(self, fig: Figure) -> None:
        """Give each panel its place."""
        panels: Any = [(axes, axes.get_subplotspec()) for axes in fig.axes if axes.get_visible()]
        grid, pad = panels[0][1].get_gridspec(), PAD * fig.dpi / 72
        columns, rows = np.full((2, grid.ncols), pad), np.full((2, grid.nrows), pad)
        for axes, spec in panels:
            for axis, numbers in ((axes.xaxis, "labelbottom"), (axes.yaxis, "labelleft")):
                # Nothing is written beside the others, and to see that takes long.
                axis.set_in_layout(bool(axis.get_label_text()) or axis.get_tick_params().get(numbers, True))
            inner, outer = axes.bbox, axes.get_tightbbox(bbox_extra_artists=[], for_layout_only=True)
            column, row = columns[:, spec.colspan.start], rows[:, spec.rowspan.start]
            np.maximum(column, pad + np.array([inner.x0 - outer.x0, outer.x1 - inner.x1]), out=column)
            np.maximum(row, pad + np.array([outer.y1 - inner.y1, inner.y0 - outer.y0]), out=row)
        for legend in fig.legends:
            box = legend.get_window_extent()
            rows[(0, 0) if box.y0 > fig.bbox.height / 2 else (1, -1)] += box.height + 2 * pad
        lefts, widths = _placed(columns, fig.bbox.width, np.ones(grid.ncols))
        tops, heights = _placed(rows, fig.bbox.height, np.array(grid.get_height_ratios()))
        for axes, spec in panels:
            i, j = spec.rowspan.start, spec.colspan.start
            axes.set_position((lefts[j], 1 - tops[i] - heights[i], widths[j], heights[i]))
            axes.set_in_layout(True)  # else a user's `savefig` could cut it off


def _placed(room: np.ndarray, size: float, ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and sizes of panels in a row, as shares, from the room before and behind each."""
    sizes = (size - room.sum()) * ratios / ratios.sum()
    return (np.cumsum(room.sum(axis=0) + sizes) - room[1] - sizes) / size, sizes / size
