"""Figures of diversity indices: a measure against them, kind "diversity", and how they order cells, kind "ordering"."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simstudy.design.figures import DiversityFigure, OrderingFigure
from simstudy.design.measures import INDICES
from simstudy.report.figures import shared
from simstudy.report.figures.shared import COVERAGE, DASHED, MAX_COLUMNS, NEUTRAL, RING
from simstudy.report.labels import INDEX_NAMES, measure_name, setting_and_level
from simstudy.verdicts.figure_data import by_source, mean_within, rank_correlation


def diversity_figure(figure: DiversityFigure, cells: xr.Dataset) -> Drawing:
    """Draw a measure against one diversity index, a panel for each level, or against all, a row for each level."""
    cells = cells[["hdi", "hdi_mcse", figure.y, f"{figure.y}_mcse"]]  # each part copies all variables that it has
    cells = cells.sel(index=figure.index) if figure.index else cells
    looks = shared.looks_of(shared.levels_of(cells, figure.hue))
    if figure.index:
        drawing, panels = shared.panelled(figure, cells, 3.4)
        blocks = [panels]
    else:
        drawing, blocks = _of_all_indices(figure, cells)
    for block in blocks:
        for inside, axes in block:
            for hue, part in shared.split(inside, figure.hue):
                _draw_cells(axes, figure, part, looks[hue])
            shared.set_scales(axes, figure.x_scale, figure.y_scale)
            if figure.index:
                axes.set_xlabel(figure.index)
            else:
                _annotate(axes, figure, inside)
        shared.settle_y([axes for _, axes in block], figure.y_scale, measure_name(figure.y), always=not figure.index)
    drawn = [axes for block in blocks for _, axes in block]
    text = f"bars: ± {COVERAGE} MCSE; "
    text += INDEX_NAMES[figure.index] if figure.index else "r: Spearman's rank correlation over the cells"
    text += ", and its mean within colours" if figure.hue and not figure.index else ""
    words: shared.Entries = [text, *shared.said_of_y(drawn, figure.y_scale)]
    if figure.index and len({axes.get_xlim() for axes in drawn}) > 1:
        words.append("panels have x axes of their own")
    y = by_source(cells, figure.y, "empirical")
    words += shared.left_out(figure, cells.hdi.values, y if figure.index else y[:, None])
    shared.legends(drawing, looks, words, figure.hue)
    return drawing


def _draw_cells(axes: Any, figure: DiversityFigure, part: xr.Dataset, look: shared.Look) -> None:
    """Draw the measure of some cells against their index, with bars where a number has an error."""
    shown = shared.visible(part.hdi.values, figure.x_scale)
    shown &= shared.visible(by_source(part, figure.y, "empirical"), figure.y_scale)
    errors = (part[name].values[shown] for name in ("hdi_mcse", f"{figure.y}_mcse"))
    # Nothing is uncertain of an index that is computed from the heads alone.
    x_bars, y_bars = (COVERAGE * each if (each > 0).any() else None for each in errors)
    x, y = part.hdi.values[shown], by_source(part, figure.y, "empirical")[shown]
    style = {"elinewidth": 1.0, "markersize": 4.5, "markeredgewidth": 1.2, "zorder": 2}
    shared.draw_marks(axes, look, x, y, xerr=x_bars, yerr=y_bars, **style)


def _of_all_indices(figure: DiversityFigure, cells: xr.Dataset) -> tuple[Drawing, list[Any]]:
    """Return a drawing and, for each level, its panels with their cells: one for each index, in a row or more."""
    rows = list(shared.split(cells, figure.panel))
    per_row = -(-len(INDICES) // MAX_COLUMNS)
    drawing, grid = shared.canvas(len(rows) * per_row * MAX_COLUMNS, 2.7)
    blocks = []
    for (level, inside), block in zip(rows, np.split(grid, len(rows)), strict=True):
        for axes in block.flat[len(INDICES) :]:
            axes.set_visible(False)
        for axes, index in zip(block.flat, INDICES, strict=False):
            axes.set_xlabel(INDEX_NAMES[index], fontsize=10)
        blocks.append([(inside.sel(index=index), axes) for index, axes in zip(INDICES, block.flat, strict=False)])
        if figure.panel:
            title = shared.short(setting_and_level(figure.panel, level), 110)
            # Blank lines lift the name of the row above the correlations, which stand on the same line of titles.
            block[0, 0].set_title(f"{title}\n\n\n" if figure.hue else f"{title}\n\n", loc="left", fontweight="bold")
    return drawing, blocks


def _annotate(axes: Axes, figure: DiversityFigure, cells: xr.Dataset) -> None:
    """Print the rank correlation of index and measure above the panel."""
    pooled, n_cells = rank_correlation(cells, figure.y)
    text = f"r {_two_decimals(pooled)}, {n_cells} cells" if n_cells else "undefined"
    if not n_cells:
        axes.set(xticks=[], yticks=[])
    if figure.hue and np.isfinite(pooled):
        within = mean_within([part for _, part in shared.split(cells, figure.hue)], figure.y)
        text += f"\nwithin colours r {_two_decimals(within)}"
    axes.set_title(text, loc="right", fontsize=10, color=NEUTRAL)


def _two_decimals(correlation: float) -> str:
    return "undefined" if np.isnan(correlation) else f"= {correlation:.2f}".replace("-", "−")


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
