"""Figures of kind "winners": which level of a factor has the least value at each place, as colour, and the value."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing

from simstudy.design.figures import WinnersFigure
from simstudy.report.figures.marks import legends, levels_of, looks_of, split
from simstudy.report.figures.panels import canvas
from simstudy.report.labels import level_name, measure_name, setting_and_level, setting_name
from simstudy.verdicts.figure_data import by_source


def winners_figure(figure: WinnersFigure, cells: xr.Dataset) -> Drawing:
    """Draw a field for each level of x and row, in the colour of the best level there."""
    rows, columns = list(split(cells, figure.rows)), list(dict.fromkeys(levels_of(cells, figure.x)))
    looks = looks_of(cells, figure.over)
    drawing, ((axes,),) = canvas(1, 1.2 + 0.9 * len(rows))
    for place, (_, inside) in enumerate(rows):
        for each, there in split(inside, figure.x):
            values, theory = (by_source(there, figure.y, source) for source in ("empirical", "exact"))
            if not np.isfinite(values).any():
                continue
            known = bool(np.isfinite(theory).all())
            least = int(np.nanargmin(theory if known else values))
            column, error = columns.index(each), float(there[f"{figure.y}_mcse"].values[least])
            look = looks[levels_of(there, figure.over)[least]]
            axes.plot(column, place + 0.28, look.marker, color=look.colour, markersize=11, zorder=3)
            axes.fill_between([column - 0.48, column + 0.48], place - 0.48, place + 0.48, color=look.colour, alpha=0.22)
            text = f"{values[least]:.2g}\n± {error:.1g}" + (f"\n({theory[least]:.2g})" if known else "")
            axes.text(column, place - 0.2, text, ha="center", va="center", fontsize=8.5)
    axes.set_xticks(range(len(columns)), [level_name(each) for each in columns])
    axes.set_yticks(range(len(rows)), [setting_and_level(figure.rows, row) if figure.rows else "" for row, _ in rows])
    axes.set(xlabel=setting_name(figure.x), xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(rows) - 0.5))
    axes.grid(False)
    reading = f"least {measure_name(figure.y)} ± MCSE; by exact theory where there is one (in brackets)"
    legends(drawing, looks, [reading], figure.over)
    return drawing
