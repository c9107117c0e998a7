"""Figures of kind "zip": intervals of single replicates, ordered by how far they are from the truth."""

import textwrap

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simstudy.design.figures import ZipFigure
from simstudy.report.figures.shared import COLOURS, COVERAGE, Look, canvas, characters, legends, levels_of, own_style
from simstudy.report.labels import setting_and_level
from simstudy.results import factors_of


def zip_figure(figure: ZipFigure, cells: xr.Dataset) -> Drawing:
    """Draw the intervals of the first replicates of each cell."""
    factors = [name for name in factors_of(cells)[figure.grid] if len(set(levels_of(cells, name))) > 1]
    levels = [levels_of(cells, name) for name in factors]
    drawing, grid = canvas(cells.sizes["cell"], 3.4)
    for cell, (axes, rows) in enumerate(zip(grid.flat, cells.interval.values, strict=False)):
        text = ", ".join(setting_and_level(name, each[cell]) for name, each in zip(factors, levels, strict=True))
        _zip(axes, rows, textwrap.fill(text, characters(axes)) + "\n" if text else "")
    return _finished(drawing, grid)


@own_style()
def draw_zip(rows: np.ndarray) -> Drawing:
    """Draw intervals less the truth, from a row (lower, upper, truth) for each replicate; NaN in those that failed."""
    drawing, grid = canvas(1, 4.8)
    _zip(grid[0, 0], rows, "")
    return _finished(drawing, grid)


def _finished(drawing: Drawing, grid: np.ndarray) -> Drawing:
    for axes in grid[:, 0]:
        axes.set_ylabel("centile of distance over half length")
    legends(drawing, {None: Look.of(0)}, [({"color": colour}, text) for colour, text in _COLOURS.items()])
    return drawing


_COLOURS = {COLOURS[0]: "covers the truth", COLOURS[1]: "does not"}


def _zip(axes: Axes, rows: np.ndarray, title: str) -> None:
    known = rows[np.isfinite(rows).all(axis=1)]
    lower, upper, truth = known.T
    lower, upper = lower - truth, upper - truth
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.abs(lower + upper) / (upper - lower)
    order = np.argsort(np.nan_to_num(far, nan=np.inf), kind="stable")
    lower, upper, covers = lower[order], upper[order], ((lower <= 0) & (upper >= 0))[order]
    n = max(len(covers), 1)
    share, height = covers.sum() / n, 100.0 * (np.arange(len(covers)) + 0.5) / n
    for part, (colour, text) in zip((covers, ~covers), _COLOURS.items(), strict=True):
        axes.hlines(height[part], lower[part], upper[part], color=colour, linewidth=min(2.0, 220.0 / n), label=text)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set(xlabel="interval less the truth", ylim=(0, 100))
    error = COVERAGE * float(np.sqrt(share * (1 - share) / n))
    failed = len(rows) - len(covers)
    said = f"{len(covers)} replicates cover in {100 * share:.3g} ± {100 * error:.2g} %; {failed} failed"
    axes.set_title(title + textwrap.fill(said, characters(axes)), loc="left", fontsize=10)
