"""The figures that a design declares, drawn from the labelled results.

Figures are made through Matplotlib's objects, without `pyplot`, so nothing global is left behind.
"""

from __future__ import annotations

import io
import textwrap
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from scipy import stats

from simstudy.design import claims
from simstudy.design.measures import INDICES, THEORIES
from simstudy.design.references import selected
from simstudy.report.figures.law import law_figure
from simstudy.report.figures.marks import (
    COVERAGE,
    NEUTRAL,
    THEORY_LINES,
    Entries,
    Look,
    legends,
    looks_of,
    split,
    strata,
    unshown,
)
from simstudy.report.figures.nested_loop import nested_loop
from simstudy.report.figures.optimum import optimum_figure
from simstudy.report.figures.ordering import ordering_figure
from simstudy.report.figures.panels import (
    MAX_COLUMNS,
    STYLE,
    canvas,
    characters,
    label_y,
    set_scales,
    share_y,
    tick_levels,
    visible,
)
from simstudy.report.labels import INDEX_NAMES, measure_name, setting, setting_and_level, setting_name

RESOLUTION = 150
"""Pixels of a PNG file to the inch."""


class Notes:
    """What the drawing has to admit to, collected while it is drawn and printed below it."""

    def __init__(self) -> None:
        self.exact = self.leading = self.joined = self.limit_fallback = False
        self.dropped = 0


def draw(figure: claims.Figure, name: str, results: xr.Dataset) -> Drawing:
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
                drawing = _curves(figure, cells)
            case "diversity":
                drawing = _one_index(figure, cells) if figure.index else _diversity(figure, cells)
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


def _chosen(figure: claims.Figure, results: xr.Dataset) -> xr.Dataset:
    settings = [str(name) for name, coordinate in results.coords.items() if coordinate.dims == ("cell",)]
    columns = {name: results[name].values for name in settings}
    rows = ({name: column[cell] for name, column in columns.items()} for cell in range(results.sizes["cell"]))
    grids = (figure.grid, *figure.beside)
    keep = [row["grid"] in grids and selected(row, figure.where) for row in rows]
    return results.isel(cell=np.flatnonzero(keep))


# ---------------------------------------------------------------- kind "curve"


def _curves(figure: claims.Figure, cells: xr.Dataset) -> Drawing:
    assert figure.x is not None  # the design refuses a curve without it
    panels = list(split(cells, figure.panel))
    drawing, grid = canvas(len(panels), 3.9 if len(panels) == 1 else 3.2)
    hidden, notes = unshown(figure, cells), Notes()
    looks = looks_of(cells, figure.hue)
    for axes, (level, inside) in zip(grid.flat, panels, strict=False):
        for hue, coloured in split(inside, figure.hue):
            for stratum in strata(coloured, hidden):
                _curve(axes, figure, stratum, looks[hue], notes)
        axes.set_xlabel(setting_name(figure.x))
        set_scales(axes, figure.x_scale, figure.y_scale)
        tick_levels(axes, inside[figure.x].values.astype(float), figure.x_scale)
        if figure.panel:
            axes.set_title(textwrap.fill(setting_and_level(figure.panel, level), characters(axes)), loc="left")
    share_y(list(grid.flat[: len(panels)]), figure.y_scale)
    label_y(grid, measure_name(figure.y), len(panels))
    legends(drawing, figure, looks, _reading(figure, hidden, notes))
    return drawing


def _curve(axes: Axes, figure: claims.Figure, stratum: xr.Dataset, look: Look, notes: Notes) -> None:
    """Draw the cells of one colour that differ in x alone: points with error bars, theory as lines, the limit."""
    stratum = stratum.isel(cell=np.argsort(stratum[figure.x].values, kind="stable"))
    x = stratum[figure.x].values.astype(float)
    empirical = stratum[figure.y].sel(source="empirical").values
    shown = visible(x, figure.x_scale) & visible(empirical, figure.y_scale)
    notes.dropped += int((np.isfinite(empirical) & np.isfinite(x) & ~shown).sum())
    bars = COVERAGE * stratum[f"{figure.y}_mcse"].values
    axes.errorbar(x[shown], empirical[shown], yerr=bars[shown], fmt=look.marker, color=look.colour, capsize=2.5,
                  elinewidth=1.1, markerfacecolor="white", markeredgewidth=1.3, zorder=3)  # fmt: skip
    told = _theories(axes, figure, stratum, look, notes)
    bridge = np.where(_beside_gap(told[shown]), empirical[shown], np.nan)
    if np.isfinite(bridge).sum() > 1:
        axes.plot(x[shown], bridge, ":", color=look.colour, linewidth=1.0, label="joined")
        notes.joined = True
    if figure.limit:
        _limit(axes, figure, stratum, look, notes)


def _theories(axes: Axes, figure: claims.Figure, stratum: xr.Dataset, look: Look, notes: Notes) -> np.ndarray:
    """Draw each theory as a line, and return where there is one: the values of either, NaN where none applies."""
    x, told = stratum[figure.x].values.astype(float), np.full(stratum.sizes["cell"], np.nan)
    for source in THEORIES:
        values = stratum[figure.y].sel(source=source).values
        line = np.where(visible(values, figure.y_scale) & visible(x, figure.x_scale), values, np.nan)
        if np.isfinite(line).any():
            marks: dict[str, Any] = {"marker": "_", "markersize": 12, "markevery": _isolated(line)}
            axes.plot(x, line, color=look.colour, label=source, **THEORY_LINES[source], **marks)
            setattr(notes, source, True)
        told = np.where(np.isnan(told), line, told)
    return told


def _beside_gap(line: np.ndarray) -> np.ndarray:
    """Which points have no value or a neighbour without one."""
    gap = np.concatenate([[False], np.isnan(line), [False]])
    return gap[1:-1] | gap[:-2] | gap[2:]


def _isolated(line: np.ndarray) -> list[int]:
    """Positions of values without a neighbour: a line shows nothing of them, so they need a mark."""
    apart = np.isnan(np.concatenate([[np.nan], line, [np.nan]]))
    return np.flatnonzero(~apart[1:-1] & apart[:-2] & apart[2:]).tolist()


def _limit(axes: Axes, figure: claims.Figure, stratum: xr.Dataset, look: Look, notes: Notes) -> None:
    """Draw the value of the limit measure at the largest x: what y tends to, told by a theory where one applies."""
    at_end = stratum[figure.limit].isel(cell=-1)
    source = next((name for name in THEORIES if np.isfinite(at_end.sel(source=name))), "empirical")
    value = float(at_end.sel(source=source))
    if visible(np.array(value), figure.y_scale):
        notes.limit_fallback |= source == "empirical"
        axes.axhline(value, linestyle=(0, (5, 3)), linewidth=1.0, color=look.colour, label="limit", zorder=1)


# ---------------------------------------------------------------- kind "diversity"


def _diversity(figure: claims.Figure, cells: xr.Dataset) -> Drawing:
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
    legends(drawing, figure, looks, [(Line2D([], [], linestyle=""), text), *_dropped(notes)])
    return drawing


def _one_index(figure: claims.Figure, cells: xr.Dataset) -> Drawing:
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
    legends(drawing, figure, looks, [(Line2D([], [], linestyle=""), text), *_dropped(notes)])
    return drawing


def _scatter(axes: Axes, figure: claims.Figure, cells: xr.Dataset, look: Look, notes: Notes) -> None:
    x, y = cells.hdi.values, cells[figure.y].sel(source="empirical").values
    shown = visible(x, figure.x_scale) & visible(y, figure.y_scale)
    notes.dropped += int((np.isfinite(x) & np.isfinite(y) & ~shown).sum())
    bars = [_bars(cells[name].values[shown]) for name in ("hdi_mcse", f"{figure.y}_mcse")]
    axes.errorbar(x[shown], y[shown], xerr=bars[0], yerr=bars[1], fmt=look.marker, color=look.colour,
                  elinewidth=1.0, markersize=4.5, markerfacecolor="white", markeredgewidth=1.2)  # fmt: skip


def _bars(mcse: np.ndarray) -> np.ndarray | None:
    """Half-lengths of error bars; None if nothing is uncertain, as an index computed from the heads alone."""
    return COVERAGE * mcse if (mcse > 0).any() else None


def _annotate(axes: Axes, figure: claims.Figure, cells: xr.Dataset) -> None:
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


# ---------------------------------------------------------------- legends


def _reading(figure: claims.Figure, hidden: list[str], notes: Notes) -> Entries:
    """Entries of the legend that say what points and lines are."""
    text = f"points: Monte Carlo ± {COVERAGE} MCSE" + (", line: leading order" if notes.leading else "")
    handle = Line2D([], [], color=NEUTRAL, marker="o", markerfacecolor="white")
    handle.set_linestyle("-" if notes.leading else "")
    entries = [(handle, text)]
    if notes.exact:
        entries.append(
            (Line2D([], [], color=NEUTRAL, **THEORY_LINES["exact"]), "broad pale line: exact theory at any n")
        )
    if notes.joined:
        entries.append((Line2D([], [], color=NEUTRAL, linestyle=":"), "dotted: joins points without theory"))
    if figure.limit and figure.x:
        x = setting(figure.x).symbol or setting(figure.x).words
        text = f"dashed: limit, {measure_name(figure.limit)} at the largest {x}"
        text += " (Monte Carlo where no theory applies)" if notes.limit_fallback else ""
        entries.append((Line2D([], [], color=NEUTRAL, linestyle=(0, (5, 3)), linewidth=1.0), text))
    if hidden:
        names = ", ".join(setting_name(name) for name in hidden)
        entries.append((Line2D([], [], linestyle=""), f"not told apart (one line for each value): {names}"))
    return entries + _dropped(notes)


def _dropped(notes: Notes) -> Entries:
    points = "1 point" if notes.dropped == 1 else f"{notes.dropped} points"
    return [(Line2D([], [], linestyle=""), f"{points} ≤ 0 left out of a log axis")] if notes.dropped else []
