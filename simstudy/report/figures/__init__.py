"""The figures that a design declares, drawn from the labelled results.

Figures are made through Matplotlib's objects, without `pyplot`, so nothing global is left behind.
"""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing

from simstudy.design.figures import Figure
from simstudy.design.settings.cell import selected
from simstudy.report.figures.curve import curve_figure
from simstudy.report.figures.diversity import diversity_figure, index_figure
from simstudy.report.figures.law import law_figure
from simstudy.report.figures.nested_loop import nested_loop
from simstudy.report.figures.optimum import optimum_figure
from simstudy.report.figures.ordering import ordering_figure
from simstudy.report.figures.panels import (
    STYLE,
)

RESOLUTION = 150
"""Pixels of a PNG file to the inch."""


def draw(figure: Figure, name: str, results: xr.Dataset) -> Drawing:
    """Draw one figure of a design.

    Parameters
    ----------
    figure
        What the design declares.
    name
        Name of the figure in the design; it becomes the label of the drawing.
    results
        Labelled results of the study that declares the figure.
    """
    cells = _chosen(figure, results)
    with mpl.rc_context(STYLE):
        match figure.kind:
            case "curve":
                drawing = curve_figure(figure, cells)
            case "diversity":
                drawing = index_figure(figure, cells) if figure.index else diversity_figure(figure, cells)
            case "ordering":
                drawing = ordering_figure(figure, cells.sel(figure=name))
            case "optimum":
                drawing = optimum_figure(figure, cells.sel(figure=name))
            case "nested_loop":
                drawing = nested_loop(figure, cells)
            case "law":
                drawing = law_figure(figure, cells)
        drawing.set_label(name)
        return drawing


def image(drawing: Drawing, suffix: str) -> bytes:
    """Return a drawing as a ``png`` or ``svg`` file, the same bytes every time: without date and version."""
    buffer = io.BytesIO()
    metadata = {"Software": None} if suffix == "png" else {"Date": None, "Creator": None}
    with mpl.rc_context(STYLE):
        drawing.savefig(buffer, format=suffix, dpi=RESOLUTION, metadata=metadata)
    return buffer.getvalue()


# ---------------------------------------------------------------- choosing cells


def _chosen(figure: Figure, results: xr.Dataset) -> xr.Dataset:
    settings = [str(name) for name, coordinate in results.coords.items() if coordinate.dims == ("cell",)]
    columns = {name: results[name].values for name in settings}
    rows = ({name: column[cell] for name, column in columns.items()} for cell in range(results.sizes["cell"]))
    grids = (figure.grid, *figure.beside)
    keep = [row["grid"] in grids and selected(row, figure.where) for row in rows]
    return results.isel(cell=np.flatnonzero(keep))
