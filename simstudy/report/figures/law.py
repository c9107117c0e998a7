"""Figures of kind "law": do ensembles of several grids have the variance ρσ² + (1 − ρ)σ²/M of exchangeable members?"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simstudy.design.figures import LawFigure
from simstudy.report.figures.marks import COVERAGE, NEUTRAL, Entries, Look, legends
from simstudy.report.figures.panels import canvas, set_scales
from simstudy.report.figures.residuals import HEIGHT, draw_residuals, reach, residual_entries, settle_strips
from simstudy.results import factors_of
from simstudy.verdicts.figure_data import LawShare, Residuals, law_shares

_POINTS = Line2D([], [], color=NEUTRAL, marker="o", markerfacecolor="white", linestyle="")
_LAW = Line2D([], [], color=NEUTRAL, linestyle=(0, (5, 3)), linewidth=1.0)


def law_figure(figure: LawFigure, cells: xr.Dataset) -> Drawing:
    """Draw what is found against the law, a colour for each grid, and below that the share by which it misses it."""
    drawing, ((axes,),), ((strip,),) = canvas(1, 4.6, HEIGHT)
    names = (figure.grid, *figure.beside)
    looks = {name: Look.of(position) for position, name in enumerate(names)}
    shares = {name: _shares(cells, name) for name in names}
    law, _, found, _ = every = np.hstack(list(shares.values()))
    limit = reach(_missed(every)) or 1.0
    beyond: list[float] = []
    for name, look in looks.items():
        x, x_mcse, y, y_mcse = shares[name]
        axes.errorbar(x, y, xerr=COVERAGE * x_mcse, yerr=COVERAGE * y_mcse, fmt=look.marker, color=look.colour,
                      elinewidth=1.1, markerfacecolor="white", markeredgewidth=1.3, zorder=3)  # fmt: skip
        beyond += draw_residuals(strip, x, _missed(shares[name]), look, limit)
    # Linear in x, as an estimate of the covariance may be negative; logarithmic in y, as the law may fail by far.
    line = np.linspace(found.min() / 1.5, law.max() * 1.1, 200)
    axes.plot(line, line, color=NEUTRAL, linewidth=1.0, linestyle=(0, (5, 3)), label="law", zorder=1)
    set_scales(axes, "linear", "log")
    axes.set_ylabel("variance of the average / variance of one")
    strip.set_xlabel("variance by the law / variance of one member")
    settle_strips([strip], [strip], limit, "found/law − 1")
    legends(drawing, looks, _reading(beyond))
    return drawing


def _shares(cells: xr.Dataset, grid: str) -> np.ndarray:
    """What `LawShare` holds, for each ensemble of a grid: (4, ensembles)."""
    inside = cells.isel(cell=np.flatnonzero(cells.grid.values == grid))
    return np.array(law_shares(inside, factors_of(cells)[grid])).reshape(-1, len(LawShare._fields)).T


def _missed(shares: np.ndarray) -> Residuals:
    """What is found over the law − 1, both errors taken for independent; NaN where the law is not positive."""
    law, law_mcse, found, found_mcse = shares
    law = np.where(law > 0, law, np.nan)
    return Residuals(found / law - 1, np.hypot(found_mcse, found / law * law_mcse) / law)


def _reading(beyond: list[float]) -> Entries:
    """Entries of the legend that say what points and line are."""
    return [
        (_POINTS, f"points: average of M members ± {COVERAGE} MCSE"),
        (_LAW, "dashed: the law ρ + (1−ρ)/M, its terms from the smallest M of each kind"),
        *residual_entries(beyond, "found over the law − 1"),
    ]
