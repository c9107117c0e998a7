"""Figures of diversity indices: a measure against them, kind "diversity", and how they order cells, kind "ordering"."""

import textwrap

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simstudy.design.figures import DiversityFigure, OrderingFigure
from simstudy.design.measures import INDICES
from simstudy.report.figures import shared
from simstudy.report.figures.shared import COVERAGE, DASHED, NEUTRAL, RING, Look, Notes
from simstudy.report.labels import INDEX_NAMES, measure_name, setting_and_level
from simstudy.verdicts.figure_data import by_source, mean_within, rank_correlation


def diversity_figure(figure: DiversityFigure, cells: xr.Dataset) -> Drawing:
    """Draw a measure against every diversity index, or against one."""
    cells = cells[["hdi", "hdi_mcse", figure.y, f"{figure.y}_mcse"]]  # each part copies all variables that it has
    return _one_index(figure, figure.index, cells) if figure.index else _all_indices(figure, cells)


def _all_indices(figure: DiversityFigure, cells: xr.Dataset) -> Drawing:
    """Draw a row of panels for each level of the panel, a panel for each index."""
    rows = list(shared.split(cells, figure.panel))
    per_row = -(-len(INDICES) // shared.MAX_COLUMNS)
    drawing, grid = shared.canvas(len(rows) * per_row * shared.MAX_COLUMNS, 2.7)
    drawn: list[Axes] = []
    looks, notes = shared.looks_of(cells, figure.hue), Notes()
    for position, (level, inside) in enumerate(rows):
        block = grid[position * per_row : (position + 1) * per_row]
        drawn.extend(block.flat[: len(INDICES)])
        for axes in block.flat[len(INDICES) :]:
            axes.set_visible(False)
        for axes, index in zip(block.flat, INDICES, strict=False):
            for hue, part in shared.split(inside, figure.hue):
                _scatter(axes, figure, part.sel(index=index), looks[hue], notes)
            axes.set_xlabel(INDEX_NAMES[index], fontsize=10)
            shared.set_scales(axes, figure.x_scale, figure.y_scale)
            _annotate(axes, figure, inside.sel(index=index))
        if figure.panel:
            title = textwrap.shorten(setting_and_level(figure.panel, level), 110, placeholder=" …")
            # Blank lines lift the name of the row above the correlations, which stand on the same line of titles.
            block[0, 0].set_title(f"{title}\n\n\n" if figure.hue else f"{title}\n\n", loc="left", fontweight="bold")
        shared.share_y(list(block.flat[: len(INDICES)]), figure.y_scale, always=True)
        shared.label_y(block, measure_name(figure.y), len(INDICES))
    text = f"bars: ± {COVERAGE} MCSE; r: Spearman's rank correlation over the cells"
    text += ", and its mean within colours" if figure.hue else ""
    shared.legends(drawing, looks, [text, *shared.from_zero(drawn, figure.y_scale), *shared.dropped(notes)], figure.hue)
    return drawing


def _one_index(figure: DiversityFigure, index: str, cells: xr.Dataset) -> Drawing:
    """Draw a panel for each level, each with a y axis of its own where they differ much."""
    drawing, grid, panels = shared.panelled(figure, cells.sel(index=index), 3.4, 3.4)
    looks, notes = shared.looks_of(cells, figure.hue), Notes()
    for axes, inside in panels:
        for hue, part in shared.split(inside, figure.hue):
            _scatter(axes, figure, part, looks[hue], notes)
        shared.set_scales(axes, figure.x_scale, figure.y_scale)
        axes.set_xlabel(index)
    drawn = [axes for axes, _ in panels]
    shared.share_y(drawn, figure.y_scale)
    shared.label_y(grid, measure_name(figure.y), len(panels))
    words = [f"bars: ± {COVERAGE} MCSE; {INDEX_NAMES[index]}", *shared.from_zero(drawn, figure.y_scale)]
    words += ["panels have x axes of their own"] if len({axes.get_xlim() for axes in drawn}) > 1 else []
    shared.legends(drawing, looks, [*words, *shared.dropped(notes)], figure.hue)
    return drawing


def _scatter(axes: Axes, figure: DiversityFigure, cells: xr.Dataset, look: Look, notes: Notes) -> None:
    x, y = cells.hdi.values, by_source(cells, figure.y, "empirical")
    shown = shared.visible(x, figure.x_scale) & shared.visible(y, figure.y_scale)
    notes.dropped += int((np.isfinite(x) & np.isfinite(y) & ~shown).sum())
    errors = (cells[name].values[shown] for name in ("hdi_mcse", f"{figure.y}_mcse"))
    # Nothing is uncertain of an index that is computed from the heads alone.
    bars = [COVERAGE * each if (each > 0).any() else None for each in errors]
    axes.errorbar(x[shown], y[shown], xerr=bars[0], yerr=bars[1], fmt=look.marker, color=look.colour,
                  elinewidth=1.0, markersize=4.5, markerfacecolor="white", markeredgewidth=1.2)  # fmt: skip


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
    drawing, grid, panels = shared.panelled(figure, cells, 3.4, 3.4)
    looks = shared.looks_of(cells, figure.hue)
    for axes, inside in panels:
        axes.axvline(NO_RELATION, color=NEUTRAL, label="no relation", zorder=1, **DASHED)
        for position, (hue, coloured) in enumerate(shared.split(inside, figure.hue)):
            first = coloured.isel(cell=0)  # all cells of one colour are compared with one another
            rows = np.arange(len(names)) + APART * (position - (len(looks) - 1) / 2)
            bars = COVERAGE * first.wrong_pair_share_mcse.values
            axes.errorbar(first.wrong_pair_share.values, rows, xerr=bars, fmt=looks[hue].marker,
                          color=looks[hue].colour, capsize=2.5, elinewidth=1.1, markerfacecolor="white",
                          markeredgewidth=1.3, zorder=3)  # fmt: skip
        shared.set_scales(axes, "linear", "linear")
        axes.set(xlim=(-0.04, 1.04), ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(labelleft=axes in grid[:, 0], left=False)
        axes.set_xlabel("pairs in the wrong order")
    text = f"points: share of pairs of which the more diverse has the larger {measure_name(figure.y)} ± {COVERAGE} MCSE"
    dashed = "dashed: an index without any relation to it; 0: a strictly decreasing relation"
    left_out = f"not drawn, because equal or undefined in all cells: {', '.join(constant)}"
    shared.legends(drawing, looks, [(RING, text), (DASHED, dashed), *([left_out] if constant else [])], figure.hue)
    return drawing
