"""Figures of every cell of a factorial grid: kinds "nested_loop", "lollipop", "winners" and "zip".

In a nested loop, cells stand side by side in the order of loops over the factors, the last of the grid running fastest;
stairs below show which levels they have (Rücker and Schwarzer 2014, BMC Medical Research Methodology 14:129).
"""

import itertools
import textwrap
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simstudy.design.figures import LollipopFigure, NestedLoopFigure, WinnersFigure, ZipFigure
from simstudy.report.figures import beside_theory, shared
from simstudy.report.figures.shared import COLOURS, COVERAGE, NEUTRAL, RING, Entries, Look, own_style
from simstudy.report.labels import level_name, measure_name, number, setting_and_level, setting_name
from simstudy.results import factors_of
from simstudy.verdicts.figure_data import by_source, residuals

Loops = dict[str, list[Any]]
LEVELS = "levels"
"""Label of the axes that show the levels of the factors."""
_PALE: dict[str, Any] = {"linewidth": 4.0, "alpha": 0.3, "zorder": 1.5}


def nested_loop_figure(figure: NestedLoopFigure, cells: xr.Dataset) -> Drawing:
    """Draw the measure of each colour in every combination of the factors that neither colour nor panel shows."""
    panels = list(shared.split(cells, figure.panel))
    loops = {name: list(dict.fromkeys(shared.levels_of(cells, name))) for name in shared.unshown(figure, cells)}
    limit, beyond = beside_theory.reach(residuals(cells, figure.y)), list[float]()
    # A single factor is named on the axis: stairs would show nothing.
    heights = [3.6] if len(loops) == 1 else [3.0, 0.3 + 0.42 * len(loops)]
    drawing, *grids = shared.canvas(
        len(panels), heights[0], *([beside_theory.HEIGHT] if limit else []), *heights[1:], columns=1
    )
    grid = np.hstack(grids)
    looks = shared.looks_of(cells, figure.hue)
    theory = False
    for (axes, *below), (level, inside) in zip(grid, panels, strict=True):
        strips = below[:1] if limit else []
        for hue, coloured in shared.split(inside, figure.hue):
            theory |= _steps(axes, figure, coloured, loops, looks[hue], not limit)
            for strip in strips:
                place = positions(coloured, loops).astype(float)
                beyond += beside_theory.draw_residuals(strip, place, residuals(coloured, figure.y), looks[hue], limit)
        beside_theory.settle_strips(strips, strips, limit)
        shared.set_scales(axes, "linear", figure.y_scale)
        axes.set_ylabel(measure_name(figure.y))
        if len(loops) == 1:
            _names((axes, *strips)[-1], *loops.items())
        else:
            _stairs(below[-1], loops)
        if figure.panel:
            axes.set_title(textwrap.shorten(setting_and_level(figure.panel, level), 110, placeholder=" …"), loc="left")
    drawn = list(grid[:, 0])
    aimed = shared.aim(drawn, figure.target)
    shared.share_y(drawn, figure.y_scale)
    entries = [*_reading(loops, theory), *aimed, *beside_theory.uncovered_entries(cells, figure.y)]
    entries += beside_theory.residual_entries(beyond) if limit else []
    shared.legends(drawing, looks, [*entries, *shared.from_zero(drawn, figure.y_scale)], figure.hue)
    return drawing


def positions(cells: xr.Dataset, loops: Loops) -> np.ndarray:
    """Return the place of each cell in the nested loops, counted from 0."""
    place = np.zeros(cells.sizes["cell"], int)
    for name, levels in loops.items():
        place = place * len(levels) + np.array([levels.index(level) for level in shared.levels_of(cells, name)])
    return place


def _steps(
    axes: Axes, figure: NestedLoopFigure, cells: xr.Dataset, loops: Loops, look: Look, unspoken: bool
) -> bool:  # fmt: skip
    """Draw a colour as steps, theory as pale ones; return whether there is any. ``unspoken``: nowhere at all."""
    size = int(np.prod([len(levels) for levels in loops.values()]))
    place = positions(cells, loops)
    exact, leading = (by_source(cells, figure.y, source) for source in ("exact", "leading"))
    lines = []
    for values in (by_source(cells, figure.y, "empirical"), np.where(np.isnan(exact), leading, exact)):
        line = np.full(size, np.nan)
        line[place] = np.where(shared.visible(values, figure.y_scale), values, np.nan)
        lines.append(line)
    bars, known = np.full(size, np.nan), np.ones(size, bool)
    bars[place] = COVERAGE * cells[f"{figure.y}_mcse"].values
    known[place] = beside_theory.covered(cells, figure.y) | unspoken
    edges = np.arange(size + 1) - 0.5
    axes.stairs(lines[0], edges, baseline=None, color=look.colour, linewidth=1.4, label="empirical")
    beside_theory.draw_points(axes, np.arange(size), lines[0], bars, known, look, markersize=3.5, elinewidth=1.0)
    if np.isfinite(lines[1]).any():
        axes.stairs(lines[1], edges, baseline=None, color=look.colour, label="theory", **_PALE)
    return bool(np.isfinite(lines[1]).any())


def _stairs(axes: Axes, loops: Loops) -> None:
    """Draw the levels of every factor as a flight of stairs, the outermost on top, and list them beside it."""
    inner = int(np.prod([len(levels) for levels in loops.values()]))
    edges = np.arange(inner + 1) - 0.5
    outer = 1
    for row, (name, levels) in enumerate(loops.items()):
        inner //= len(levels)
        steps = np.tile(np.repeat(np.arange(len(levels)), inner), outer)
        outer *= len(levels)
        base = len(loops) - 1 - row
        axes.stairs(base + 0.62 * steps / max(len(levels) - 1, 1), edges, baseline=None, color=NEUTRAL, linewidth=1.1)
        text = f"{setting_name(name)}: {', '.join(level_name(level) for level in levels)}"
        # In the room that is left above the stairs.
        axes.text(-0.5, base + 0.8, textwrap.shorten(text, 130, placeholder=" …"), fontsize=8.5, va="center",
                  color=NEUTRAL)  # fmt: skip
    axes.set(yticks=[], ylim=(-0.1, len(loops)), xlim=(-0.5, len(edges) - 1.5), label=LEVELS)
    axes.tick_params(labelbottom=False, bottom=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.grid(False)


def _names(axes: Axes, loop: tuple[str, list[Any]]) -> None:
    name, levels = loop
    texts = [textwrap.shorten(level_name(level), 40, placeholder=" …") for level in levels]
    axes.set_xticks(range(len(levels)), texts, rotation=30, ha="right", rotation_mode="anchor", fontsize=8.5)
    axes.set(xlabel=setting_name(name), xlim=(-0.5, len(levels) - 0.5))


def _reading(loops: Loops, theory: bool) -> Entries:
    combination = "level" if len(loops) == 1 else "combination of the levels below"
    text = f"steps: Monte Carlo ± {COVERAGE} MCSE, one step for each {combination}"
    pale = (_PALE, "broad pale steps: theory, exact where there is such, or else leading order")
    return [(RING | {"markersize": 3.5, "linestyle": "-"}, text), *([pale] if theory else [])]


APART = 0.22
"""Distance of the colours of one row, in rows."""
_THEORY: dict[str, Any] = {"marker": "|", "linestyle": "", "color": "black", "markersize": 11, "zorder": 4}


def lollipop_figure(figure: LollipopFigure, cells: xr.Dataset) -> Drawing:
    """Draw a row for each combination of levels that neither colour nor panel shows, a stick for each colour in it."""
    loops = {name: list(dict.fromkeys(shared.levels_of(cells, name))) for name in shared.unshown(figure, cells)}
    n_rows = int(np.prod([len(levels) for levels in loops.values()]))
    looks = shared.looks_of(cells, figure.hue)
    height = 0.9 + max(0.32, 0.16 * len(looks)) * n_rows
    drawing, grid, panels = shared.panelled(figure, cells, height, height)
    told = False
    for axes, inside in panels:
        for position, (hue, coloured) in enumerate(shared.split(inside, figure.hue)):
            step = min(APART, 0.8 / len(looks))
            rows = positions(coloured, loops) + step * (position - (len(looks) - 1) / 2)
            told |= _sticks(axes, figure, coloured, rows, looks[hue])
        axes.axvline(figure.target or 0.0, color=NEUTRAL, linewidth=1.0, label="target")
        axes.set(xlabel=measure_name(figure.y), ylim=(n_rows - 0.5, -0.5))
        axes.grid(axis="y", visible=False)
        axes.set_yticks(range(n_rows), [""] * n_rows)
    # In the order of `positions`.
    names = [", ".join(map(level_name, levels)) for levels in itertools.product(*loops.values())]
    for axes in grid[:, 0]:
        axes.set_yticks(range(n_rows), [textwrap.shorten(name, 40, placeholder=" …") for name in names])
        axes.set_ylabel(", ".join(map(setting_name, loops)))
    entries: Entries = [f"sticks: Monte Carlo ± {COVERAGE} MCSE, from {number(figure.target or 0.0)}"]
    entries += [(_THEORY, "bars: theory, exact where there is such, or else leading order")] if told else []
    shared.legends(drawing, looks, entries, figure.hue)
    return drawing


def _sticks(axes: Axes, figure: LollipopFigure, cells: xr.Dataset, rows: np.ndarray, look: Look) -> bool:
    """Draw the sticks of one colour, and theory as bars; return whether there is any."""
    values, exact, leading = (by_source(cells, figure.y, source) for source in ("empirical", "exact", "leading"))
    axes.hlines(rows, figure.target or 0.0, values, color=look.colour, linewidth=1.4, label="stick")
    axes.errorbar(values, rows, xerr=COVERAGE * cells[f"{figure.y}_mcse"].values, fmt=look.marker, color=look.colour,
                  markerfacecolor="white", capsize=2.5, elinewidth=1.1, zorder=3)  # fmt: skip
    theory = np.where(np.isnan(exact), leading, exact)
    if told := bool(np.isfinite(theory).any()):
        axes.plot(theory, rows, label="theory", **_THEORY)
    return told


def winners_figure(figure: WinnersFigure, cells: xr.Dataset) -> Drawing:
    """Draw a field for each level of x and row, in the colour of the best level there."""
    rows, columns = list(shared.split(cells, figure.rows)), list(dict.fromkeys(shared.levels_of(cells, figure.x)))
    looks = shared.looks_of(cells, figure.over)
    drawing, ((axes,),) = shared.canvas(1, 1.2 + 0.9 * len(rows))
    for place, (_, inside) in enumerate(rows):
        for each, there in shared.split(inside, figure.x):
            values, theory = (by_source(there, figure.y, source) for source in ("empirical", "exact"))
            if not np.isfinite(values).any():
                continue
            known = bool(np.isfinite(theory).all())
            least = int(np.nanargmin(theory if known else values))
            column, error = columns.index(each), float(there[f"{figure.y}_mcse"].values[least])
            look = looks[shared.levels_of(there, figure.over)[least]]
            axes.plot(column, place + 0.28, look.marker, color=look.colour, markersize=11, zorder=3)
            axes.fill_between([column - 0.48, column + 0.48], place - 0.48, place + 0.48, color=look.colour, alpha=0.22)
            text = f"{values[least]:.2g}\n± {error:.1g}" + (f"\n({theory[least]:.2g})" if known else "")
            axes.text(column, place - 0.2, text, ha="center", va="center", fontsize=8.5)
    axes.set_xticks(range(len(columns)), [level_name(each) for each in columns])
    axes.set_yticks(range(len(rows)), [setting_and_level(figure.rows, row) if figure.rows else "" for row, _ in rows])
    axes.set(xlabel=setting_name(figure.x), xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(rows) - 0.5))
    axes.grid(False)
    reading = f"least {measure_name(figure.y)} ± MCSE; by exact theory where there is one (in brackets)"
    shared.legends(drawing, looks, [reading], figure.over)
    return drawing


def zip_figure(figure: ZipFigure, cells: xr.Dataset) -> Drawing:
    """Draw the intervals of the first replicates of each cell."""
    factors = [name for name in factors_of(cells)[figure.grid] if len(set(shared.levels_of(cells, name))) > 1]
    levels = [shared.levels_of(cells, name) for name in factors]
    drawing, grid = shared.canvas(cells.sizes["cell"], 3.4)
    for cell, (axes, rows) in enumerate(zip(grid.flat, cells.interval.values, strict=False)):
        text = ", ".join(setting_and_level(name, each[cell]) for name, each in zip(factors, levels, strict=True))
        _zip(axes, rows, textwrap.fill(text, shared.characters(axes)) + "\n" if text else "")
    return _with_legend(drawing, grid)


@own_style()
def draw_zip(rows: np.ndarray) -> Drawing:
    """Draw intervals less the truth, from a row (lower, upper, truth) for each replicate; NaN in those that failed."""
    drawing, grid = shared.canvas(1, 4.8)
    _zip(grid[0, 0], rows, "")
    return _with_legend(drawing, grid)


def _with_legend(drawing: Drawing, grid: np.ndarray) -> Drawing:
    for axes in grid[:, 0]:
        axes.set_ylabel("centile of distance over half length")
    shared.legends(drawing, {None: Look.of(0)}, [({"color": colour}, text) for colour, text in _COLOURS.items()])
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
    axes.set_title(title + textwrap.fill(said, shared.characters(axes)), loc="left", fontsize=10)
