"""Figures of kind "law": do ensembles of several grids have the variance ρσ² + (1 − ρ)σ²/M of exchangeable members?"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simstudy.design.figures import LawFigure
from simstudy.report.figures.marks import COVERAGE, NEUTRAL, Look, legends
from simstudy.report.figures.panels import canvas, set_scales
from simstudy.results import factors_of
from simstudy.verdicts.figure_data import LawShare, law_shares


def law_figure(figure: LawFigure, cells: xr.Dataset) -> Drawing:
    """Draw what is found against the law, a colour for each grid."""
    drawing, grid = canvas(1, 4.6)
    axes = grid[0, 0]
    names = (figure.grid, *figure.beside)
    looks = {name: Look.of(position) for position, name in enumerate(names)}
    lowest, highest = np.inf, 0.0
    for name, look in looks.items():
        inside = cells.isel(cell=np.flatnonzero(cells.grid.values == name))
        found = np.array(law_shares(inside, factors_of(cells)[name])).reshape(-1, len(LawShare._fields))
        x, x_mcse, y, y_mcse = found.T
        axes.errorbar(x, y, xerr=COVERAGE * x_mcse, yerr=COVERAGE * y_mcse, fmt=look.marker, color=look.colour,
                      elinewidth=1.1, markerfacecolor="white", markeredgewidth=1.3, zorder=3)  # fmt: skip
        lowest, highest = min(lowest, *y), max(highest, *x)
    # Linear in x, as an estimate of the covariance may be negative; logarithmic in y, as the law may fail by far.
    line = np.linspace(lowest / 1.5, highest * 1.1, 200)
    axes.plot(line, line, color=NEUTRAL, linewidth=1.0, linestyle=(0, (5, 3)), label="law", zorder=1)
    set_scales(axes, "linear", "log")
    axes.set(xlabel="variance by the law / variance of one member", ylabel="variance of the average / variance of one")
    reading = [
        (Line2D([], [], color=NEUTRAL, marker="o", markerfacecolor="white", linestyle=""),
         f"points: average of M members ± {COVERAGE} MCSE"),
        (Line2D([], [], color=NEUTRAL, linestyle=(0, (5, 3)), linewidth=1.0),
         "dashed: the law ρ + (1−ρ)/M, its terms from the smallest M of each kind"),
    ]  # fmt: skip
    legends(drawing, looks, reading)
    return drawing
