"""Figures of kind "diversity": a measure against diversity indices of the heads."""

from __future__ import annotations

import textwrap

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from scipy import stats

from simstudy.design.figures import Figure
from simstudy.design.measures import INDICES
from simstudy.report.figures.marks import COVERAGE, NEUTRAL, Look, Notes, dropped, legends, looks_of, split
from simstudy.report.figures.panels import MAX_COLUMNS, canvas, characters, label_y, set_scales, share_y, visible
from simstudy.report.labels import INDEX_NAMES, measure_name, setting_and_level

# ---------------------------------------------------------------- kind "diversity"


def diversity_figure(figure: Figure, cells: xr.Dataset) -> Drawing:
    """Draw a measure against every diversity index, a row for each level of the panel."""
    rows = list(split(cells, figure.panel))
    per_row = -(-len(INDICES) // MAX_COLUMNS)
    drawing, grid = canvas(len(rows) * len(INDICES), 2.7)
    looks, notes = looks_of(cells, figure.hue), Notes()
    for position, (level, inside) in enumerate(rows):
        block = grid[position * per_row : (position + 1) * per_row]
        for axes, index in zip(block.flat, INDICES, strict=True):
            for hue, part in split(inside, figure.hue):
                _scatter(axes, figure, part.sel(index=index), looks[hue], notes)
            axes.set_xlabel(INDEX_NAMES[index], fontsize=10)
            set_scales(axes, figure.x_scale, figure.y_scale)
            _annotate(axes, figure, inside.sel(index=index))
        if figure.panel:
            title = textwrap.shorten(setting_and_level(figure.panel, level), 110, placeholder=" …")
            # Blank lines lift the name of the row above the correlations, which stand on the same line of titles.
            block[0, 0].set_title(f"{title}\n\n\n" if figure.hue else f"{title}\n\n", loc="left", fontweight="bold")
        share_y(list(block.flat), figure.y_scale, always=True)
        label_y(block, measure_name(figure.y), len(INDICES))
    text = f"bars: ± {COVERAGE} MCSE; r: Spearman's rank correlation over the cells"
    text += ", and its mean within colours" if figure.hue else ""
    legends(drawing, figure, looks, [(Line2D([], [], linestyle=""), text), *dropped(notes)])
    return drawing


def index_figure(figure: Figure, cells: xr.Dataset) -> Drawing:
    """Draw a panel for each level, each with a y axis of its own where they differ much."""
    panels = list(split(cells.sel(index=figure.index), figure.panel))
    drawing, grid = canvas(len(panels), 3.4)
    looks, notes = looks_of(cells, figure.hue), Notes()
    for axes, (level, inside) in zip(grid.flat, panels, strict=False):
        for hue, part in split(inside, figure.hue):
            _scatter(axes, figure, part, looks[hue], notes)
        set_scales(axes, figure.x_scale, figure.y_scale)
        if figure.panel:
            axes.set_title(textwrap.fill(setting_and_level(figure.panel, level), characters(axes)), loc="left")
        axes.set_xlabel(figure.index)
    share_y(list(grid.flat[: len(panels)]), figure.y_scale)
    label_y(grid, measure_name(figure.y), len(panels))
    text = f"bars: ± {COVERAGE} MCSE; {INDEX_NAMES[figure.index or '']}"
    legends(drawing, figure, looks, [(Line2D([], [], linestyle=""), text), *dropped(notes)])
    return drawing


def _scatter(axes: Axes, figure: Figure, cells: xr.Dataset, look: Look, notes: Notes) -> None:
    x, y = cells.hdi.values, cells[figure.y].sel(source="empirical").values
    shown = visible(x, figure.x_scale) & visible(y, figure.y_scale)
    notes.dropped += int((np.isfinite(x) & np.isfinite(y) & ~shown).sum())
    bars = [_bars(cells[name].values[shown]) for name in ("hdi_mcse", f"{figure.y}_mcse")]
    axes.errorbar(x[shown], y[shown], xerr=bars[0], yerr=bars[1], fmt=look.marker, color=look.colour,
                  elinewidth=1.0, markersize=4.5, markerfacecolor="white", markeredgewidth=1.2)  # fmt: skip


def _bars(mcse: np.ndarray) -> np.ndarray | None:
    """Half-lengths of error bars; None if nothing is uncertain, as an index computed from the heads alone."""
    return COVERAGE * mcse if (mcse > 0).any() else None


def _annotate(axes: Axes, figure: Figure, cells: xr.Dataset) -> None:
    """Print the rank correlation of index and measure above the panel."""
    parts = [_ranked(part, figure.y) for _, part in split(cells, figure.hue)]
    pooled, n_cells = _ranked(cells, figure.y)
    text = f"r {_two_decimals(pooled)}, {n_cells} cells" if n_cells else "undefined"
    if not n_cells:
        axes.set(xticks=[], yticks=[])
    if figure.hue and np.isfinite(pooled):
        # Correlations pooled over colours can differ in sign from those within each (Simpson 1951): show both.
        within = [correlation for correlation, _ in parts if np.isfinite(correlation)]
        text += f"\nwithin colours r {_two_decimals(float(np.mean(within)) if within else np.nan)}"
    axes.set_title(text, loc="right", fontsize=10, color=NEUTRAL)


def _ranked(cells: xr.Dataset, measure: str) -> tuple[float, int]:
    """Rank correlation of index and measure, and the number of cells in which both are defined."""
    x, y = cells.hdi.values, cells[measure].sel(source="empirical").values
    both = np.isfinite(x) & np.isfinite(y)
    return (rank_correlation(x[both], y[both]), int(both.sum())) if both.any() else (np.nan, 0)


def _two_decimals(correlation: float) -> str:
    return "undefined" if np.isnan(correlation) else f"= {correlation:.2f}".replace("-", "−")


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's rank correlation; NaN if x or y is constant.  Values that agree to 9 digits are ties."""
    # Indices that are equal by definition differ in the last bits: without ties these would decide the ranks.
    x, y = (np.round(values / max(np.abs(values).max(), np.finfo(float).tiny), 9) for values in (x, y))
    return float(stats.spearmanr(x, y).statistic) if np.ptp(x) > 0 and np.ptp(y) > 0 else float("nan")
