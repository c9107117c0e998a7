"""Figures of diversity indices: a measure against one, kind "diversity", and how all order cells, kind "ordering"."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing

from simstudy.design.document import DiversityFigure, OrderingFigure
from simstudy.design.measures import INDICES
from simstudy.report.figures import shared
from simstudy.report.figures.beside_theory import by_source
from simstudy.report.figures.shared import DASHED, NEUTRAL, RING
from simstudy.report.labels import COVERAGE, INDEX_NAMES, measure_name


def diversity_figure(figure: DiversityFigure, cells: xr.Dataset) -> Drawing:
    """Draw a measure against a diversity index, a panel for each level."""
    cells = cells.sel(index=figure.index)
    looks = shared.looks_of(shared.levels_of(cells, figure.hue))
    drawing, panels = shared.panelled(figure, cells, 3.4)
    for inside, axes in panels:
        for hue, part in shared.split(inside, figure.hue):
            y = by_source(part, figure.y, "empirical")
            shown = shared.visible(part.hdi.values, figure.x_scale) & shared.visible(y, figure.y_scale)
            bars = (COVERAGE * part[name].values[shown] for name in ("hdi_mcse", f"{figure.y}_mcse"))
            # Nothing is uncertain of an index that is computed from the heads alone.
            x_bars, y_bars = (each if (each > 0).any() else None for each in bars)
            shared.draw_marks(axes, looks[hue], part.hdi.values[shown], y[shown], xerr=x_bars, yerr=y_bars)
        shared.set_scales(axes, figure.x_scale, figure.y_scale)
        axes.set_xlabel(figure.index)
    drawn = [axes for _, axes in panels]
    notes = shared.settle_y(drawn, figure.y_scale, measure_name(figure.y))
    words = [f"bars: ± {COVERAGE} MCSE; {INDEX_NAMES[figure.index]}", *notes]
    if len({axes.get_xlim() for axes in drawn}) > 1:
        words.append("panels have x axes of their own")
    left_out = shared.left_out(figure, cells.hdi.values, by_source(cells, figure.y, "empirical"))
    shared.legends(drawing, looks, [*words, *left_out], figure.hue)
    return drawing


APART = 0.16
"""Distance between the marks of two colours, in rows."""
NO_RELATION = 0.5
"""Share of pairs that an index without any relation to the measure puts in the wrong order."""


def ordering_figure(figure: OrderingFigure, cells: xr.Dataset) -> Drawing:
    """Draw a row for each index that orders any cells; cells hold ``wrong_pair_share`` of this figure alone."""
    orders = np.isfinite(cells.wrong_pair_share.values).any(axis=0)
    cells = cells.isel(index=orders | ~orders.any())
    names = cells.index.values.tolist()
    constant = [name for name in INDICES if name not in names]
    drawing, panels = shared.panelled(figure, cells, 3.4)
    looks = shared.looks_of(shared.levels_of(cells, figure.hue))
    for inside, axes in panels:
        axes.axvline(NO_RELATION, color=NEUTRAL, label="no relation", zorder=1, **DASHED)
        for hue, coloured in shared.split(inside, figure.hue):
            first = coloured.isel(cell=0)  # all cells of one colour are compared with one another
            bars = COVERAGE * first.wrong_pair_share_mcse.values
            rows = np.arange(len(names)) + APART * looks[hue].place
            shared.draw_marks(axes, looks[hue], first.wrong_pair_share.values, rows, xerr=bars, capsize=2.5)
        shared.set_scales(axes, "linear", "linear")
        axes.set(xlim=(-0.04, 1.04), ylim=(len(names) - 0.5, -0.5), xlabel="pairs in the wrong order")
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(labelleft=shared.is_first(axes), left=False)
    text = f"points: share of pairs of which the more diverse has the larger {measure_name(figure.y)} ± {COVERAGE} MCSE"
    dashed = "dashed: an index without any relation to it; 0: a strictly decreasing relation"
    left_out = f"not drawn, because equal or undefined in all cells: {', '.join(constant)}"
    shared.legends(drawing, looks, [(RING, text), (DASHED, dashed), *([left_out] if constant else [])], figure.hue)
    return drawing
