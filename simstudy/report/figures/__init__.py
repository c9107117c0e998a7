"""Figures that a design declares, drawn by Matplotlib's objects without `pyplot` and its global state."""

import io
from collections.abc import Callable

import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing
from PIL import Image

from simstudy.design.answerable import selected
from simstudy.design.document import BaseFigure
from simstudy.design.measures import coordinates_of
from simstudy.report.figures.curve import curve_figure, diversity_figure, optimum_figure
from simstudy.report.figures.factorial import lollipop_figure, nested_loop_figure, ordering_figure, zip_figure
from simstudy.report.figures.shared import figure_style
from simstudy.report.labels import RESOLUTION
from simstudy.results import factors_of

__all__ = ["draw", "image"]

_KINDS: dict[str, Callable[..., Drawing]] = {
    "curve": curve_figure, "diversity": diversity_figure, "lollipop": lollipop_figure,
    "nested_loop": nested_loop_figure, "optimum": optimum_figure, "ordering": ordering_figure, "zip": zip_figure,
}  # fmt: skip


@figure_style()
def draw(figure: BaseFigure, name: str, results: xr.Dataset, margin: float | None = None) -> Drawing:
    """Return the drawing of the figure ``name`` of a design; strips show the ``margin`` of a claim around theory."""
    cells = chosen(figure, results)
    kind, how = vars(figure)["kind"], {}
    if kind in ("curve", "nested_loop"):
        how["margin"] = margin
    return _KINDS[kind](figure, cells.sel(figure=name) if figure.stored else cells, **how)


def chosen(figure: BaseFigure, results: xr.Dataset) -> xr.Dataset:
    """Return the cells that a figure shows."""
    # Without other settings, as each selection of cells copies all variables.
    known = {"grid", "bandwidth_rule", *figure.where, *factors_of(results)[figure.grid]}
    others = [name for name in results.coords if results.variables[name].dims == ("cell",) and name not in known]
    cells = results.drop_vars(others)
    rows = coordinates_of(cells)
    inside = [i for i, row in enumerate(rows) if row["grid"] == figure.grid and selected(row, figure.where)]
    return cells.isel(cell=inside)


@figure_style()
def image(drawing: Drawing) -> bytes:
    """Return a drawing as a PNG file with a palette, with reproducible bytes."""
    buffer = io.BytesIO()
    # `savefig` would repeat the layout, and compress pixels that the palette needs uncompressed.
    drawing.set_dpi(RESOLUTION)
    (canvas := FigureCanvasAgg(drawing)).draw()
    pixels = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
    pixels.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(buffer, "png")
    return buffer.getvalue()
