"""Figures of kind "law": do ensembles of several grids have the variance ρσ² + (1 − ρ)σ²/M of exchangeable members?

For members of any kind the average of M has the variance of one over M plus 1 − 1/M times their covariance: an identity
at each M.  The law says more, that variance and covariance are the same at every M.  So both are taken from the
smallest ensemble, and put to the test at the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from simstudy.design.figures import Figure
from simstudy.report.figures.marks import COVERAGE, NEUTRAL, Look, legends, strata
from simstudy.report.figures.panels import canvas, set_scales
from simstudy.results import factors_of

SIZE = "n_heads"
_MOMENTS = ("mean_variance", "mean_covariance")


class Share(NamedTuple):
    """Variance of an ensemble over that of one member, with MCSE: by the law and as found."""

    law: float
    law_mcse: float
    found: float
    found_mcse: float


def law_figure(figure: Figure, cells: xr.Dataset) -> Drawing:
    """Draw what is found against the law, a colour for each grid."""
    drawing, grid = canvas(1, 4.6)
    axes = grid[0, 0]
    names = (figure.grid, *figure.beside)
    looks = {name: Look.of(position) for position, name in enumerate(names)}
    lowest, highest = np.inf, 0.0
    for name, look in looks.items():
        inside = cells.isel(cell=np.flatnonzero(cells.grid.values == name))
        found = np.array(shares(inside, name)).reshape(-1, len(Share._fields))
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
    legends(drawing, figure, looks, reading)
    return drawing


def shares(cells: xr.Dataset, grid: str) -> list[Share]:
    """Return what is found and by the law, for every ensemble larger than the smallest with the same other factors."""
    others = [name for name in factors_of(cells)[grid] if name != SIZE]
    found = []
    for stratum in strata(cells, others):
        ordered = stratum.isel(cell=np.argsort(stratum[SIZE].values, kind="stable"))
        small = ordered.isel(cell=0)
        variance, covariance = (
            float(small[name].sel(source="empirical")) for name in ("mean_variance", "mean_covariance")
        )
        errors = [float(small[f"{name}_mcse"]) for name in ("mean_variance", "mean_covariance")]
        for position in range(1, ordered.sizes["cell"]):
            cell = ordered.isel(cell=position)
            size = float(cell[SIZE])
            law = covariance / variance * (1 - 1 / size) + 1 / size
            # Of the ratio of covariance to variance, their errors taken for independent.
            error = (1 - 1 / size) / variance * float(np.hypot(errors[1], covariance / variance * errors[0]))
            value = float(cell.ensemble_variance.sel(source="empirical")) / variance
            mcse = float(np.hypot(cell.ensemble_variance_mcse, value * errors[0])) / variance
            found.append(Share(law, error, value, mcse))
    return found
