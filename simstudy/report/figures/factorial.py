"""Figures of all cells of a factorial grid, or of all indices: kinds "nested_loop", "lollipop", "zip" and "ordering".

A nested loop shows cells side by side in the order of loops over the factors, of which the last varies fastest; stairs
below show their levels (Rücker and Schwarzer 2014, BMC Medical Research Methodology 14:129).
"""

import itertools
import math
import textwrap
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simstudy.design.answerable import level
from simstudy.design.document import LollipopFigure, NestedLoopFigure, OrderingFigure, PanelFigure, ZipFigure
from simstudy.design.measures import INDICES, coordinates_of
from simstudy.report.figures import shared
from simstudy.report.figures.shared import COLOURS, DASHED, NEUTRAL, RING, Entries, Look, by_source, short
from simstudy.report.labels import COVERAGE, level_name, measure_name, number, setting_and_level, setting_name
from simstudy.results import SPARSE

Loops = dict[str, list[Any]]
LEVELS = "levels"
"""Label of the axes that show the levels of the factors."""
_AIM: dict[str, Any] = {"color": "black", "linestyle": (0, (1, 1.5)), "linewidth": 1.2}
_PALE: dict[str, Any] = {"linewidth": 4.0, "alpha": 0.3, "zorder": 1.5}


def nested_loop_figure(figure: NestedLoopFigure, cells: xr.Dataset, margin: float | None = None) -> Drawing:
    """Draw the measure of each colour in every combination of the factors that are not colour or panel."""
    cells, loops = _looped(cells, figure)
    deviations = shared.Strips(cells, figure.y, margin)
    # A single factor has its levels on the axis, without stairs.
    heights = [3.6] if len(loops) == 1 else [3.0, 0.3 + 0.52 * len(loops)]
    heights[1:1] = deviations.heights
    drawing, looks, panels, drawn = shared.panelled(figure, cells, *heights, columns=1)
    for _, parts, axes, *below in panels:
        strips = below[: len(deviations.heights)]
        for look, coloured in parts:
            _steps(axes, figure, coloured, loops, look, shift=min(APART, 0.8 / len(looks)) * look.place)
            for strip in strips:
                deviations.draw(strip, positions(coloured, loops).astype(float), coloured, look)
        deviations.settle(strips)
        shared.set_scales(axes, "linear", figure.y_scale)
        if len(loops) == 1:
            ((name, levels),) = loops.items()
            texts, step = [short(level_name(each), 40) for each in levels], 1 + len(levels) // 64
            lowest, turned = (axes, *strips)[-1], {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
            lowest.set_xticks(range(0, len(levels), step), texts[::step], fontsize=8.5, **turned)
            lowest.set(xlabel=setting_name(name), xlim=(-0.5, len(levels) - 0.5))
        else:
            _stairs(below[-1], loops)
    combination = "level" if len(loops) == 1 else "combination of the levels below"
    text = f"steps: Monte Carlo ± {COVERAGE} MCSE, one step for each {combination}"
    entries: Entries = [(RING | {"markersize": 3.5, "linestyle": "-"}, text)]
    if "theory" in shared.drawn_in(drawn):
        entries.append((_PALE, "broad pale steps: theory, exact where there is such, or else leading order"))
    if figure.target is not None:
        for axes in drawn:
            axes.axhline(figure.target, zorder=1, label="target", **_AIM)
        entries.append((_AIM, f"black dots: aimed at, {number(figure.target)}"))
    entries += [*deviations.entries(), *shared.settle_y(drawn, figure.y_scale, measure_name(figure.y))]
    shared.legends(drawing, looks, entries, figure.hue)
    return drawing


def _looped(cells: xr.Dataset, figure: PanelFigure) -> tuple[xr.Dataset, Loops]:
    """Return cells and the factors that are not colour or panel, as one factor if few combinations occur."""
    loops = shared.varying(cells, figure.grid, figure.hue, figure.panel)
    rows = zip(*(shared.levels_of(cells, name) for name in loops), strict=True)
    texts = [", ".join(short(level_name(each), 24) for each in row) for row in rows]
    if math.prod(map(len, loops.values())) <= SPARSE * max(len({*texts}), 1):
        return cells, loops
    name = short(", ".join(map(setting_name, loops)), 60)
    return cells.assign_coords({name: ("cell", np.array(texts, object))}), {name: [*dict.fromkeys(texts)]}


def positions(cells: xr.Dataset, loops: Loops) -> np.ndarray:
    """Return the place of each cell in the nested loops, counted from 0."""
    place = np.zeros(cells.sizes["cell"], int)
    for name, levels in loops.items():
        place = place * len(levels) + np.array([levels.index(each) for each in shared.levels_of(cells, name)])
    return place


def _steps(axes: Axes, figure: NestedLoopFigure, cells: xr.Dataset, loops: Loops, look: Look, shift: float) -> None:
    """Draw a colour as steps and theory as pale steps; marks of different colours are shifted by ``shift``."""
    place, size = positions(cells, loops), math.prod(map(len, loops.values()))
    values, theory = by_source(cells, figure.y, "empirical"), shared.theory_of(cells, figure.y)
    steps, pale, bars = np.full((3, size), np.nan)
    for line, each in ((steps, values), (pale, theory)):
        line[place] = np.where(shared.visible(each, figure.y_scale), each, np.nan)
    bars[place] = COVERAGE * cells[f"{figure.y}_mcse"].values
    edges = np.arange(size + 1) - 0.5
    axes.stairs(steps, edges, baseline=None, color=look.colour, linewidth=1.4, label="empirical")
    shared.draw_marks(axes, look, np.arange(size) + shift, steps, yerr=bars, markersize=3.5, markeredgewidth=1)
    if np.isfinite(pale).any():
        axes.stairs(pale, edges, baseline=None, color=look.colour, label="theory", **_PALE)


def _stairs(axes: Axes, loops: Loops) -> None:
    """Draw and list the levels of each factor as stairs, the outermost factor on top."""
    sizes = [*map(len, loops.values())]
    edges = np.arange(math.prod(sizes) + 1) - 0.5
    for row, (name, levels) in enumerate(loops.items()):
        base, steps = len(loops) - 1 - row, np.indices(sizes)[row].ravel()
        axes.stairs(base + 0.5 * steps / max(len(levels) - 1, 1), edges, baseline=None, color=NEUTRAL, linewidth=1.1)
        text = f"{setting_name(name)}: {', '.join(map(level_name, levels))}"
        # In the space above the stairs.
        axes.text(-0.5, base + 0.75, short(text, 130), fontsize=8.5, va="center", color=NEUTRAL)
    axes.set(yticks=[], ylim=(-0.1, len(loops)), xlim=(-0.5, len(edges) - 1.5), label=LEVELS)
    axes.tick_params(labelbottom=False, bottom=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.grid(False)


MOST_STICKS = 16
"""Most sticks without panels; with more, the factor with the most levels makes panels."""
APART = 0.22
"""Distance between the colours of a row or step, in rows or steps."""
_THEORY: dict[str, Any] = {"marker": "|", "linestyle": "", "color": "black", "markersize": 11, "zorder": 4}


def lollipop_figure(figure: LollipopFigure, cells: xr.Dataset) -> Drawing:
    """Draw a row for each combination of the factors that are not colour or panel, with a stick for each colour."""
    target = figure.target or 0.0
    cells, loops = _looped(cells, figure)
    if not figure.panel and len(loops) > 1 and cells.sizes["cell"] > MOST_STICKS:
        figure = figure.model_copy(update={"panel": max(loops, key=lambda name: len(loops[name]))})
        del loops[str(figure.panel)]
    # In the order of `positions`.
    names = [", ".join(short(level_name(each), 24) for each in every) for every in itertools.product(*loops.values())]
    n_hues = len({*shared.levels_of(cells, figure.hue)})
    drawing, looks, panels, drawn = shared.panelled(figure, cells, 0.9 + max(0.32, 0.16 * n_hues) * len(names))
    for _, parts, axes in panels:
        for look, part in parts:
            rows = positions(part, loops) + min(APART, 0.8 / n_hues) * look.place
            values, theory = by_source(part, figure.y, "empirical"), shared.theory_of(part, figure.y)
            axes.hlines(rows, target, values, color=look.colour, linewidth=1.4, label="stick")
            shared.draw_marks(axes, look, values, rows, xerr=COVERAGE * part[f"{figure.y}_mcse"].values, capsize=2.5)
            if np.isfinite(theory).any():
                axes.plot(theory, rows, label="theory", **_THEORY)
        axes.axvline(target, color=NEUTRAL, linewidth=1.0, label="target")
        axes.set(xlabel=measure_name(figure.y), ylim=(len(names) - 0.5, -0.5))
        axes.grid(axis="y", visible=False)
        axes.set_yticks(range(len(names)), names)
    shared.label_y(drawn, textwrap.fill(", ".join(map(setting_name, loops)), shared.characters(drawn[0], "height")))
    ends = np.array([axes.get_xlim() for axes in drawn])
    for axes in drawn:
        axes.set_xlim(ends.min(), ends.max())
    entries: Entries = [f"sticks: Monte Carlo ± {COVERAGE} MCSE, from {number(target)}"]
    if "theory" in shared.drawn_in(drawn):
        entries.append((_THEORY, "bars: theory, exact where there is such, or else leading order"))
    shared.legends(drawing, looks, entries, figure.hue)
    return drawing


_COLOURS, _LIMITS = {COLOURS[0]: "covers the truth", COLOURS[1]: "does not"}, "#f3d98b"


def zip_figure(figure: ZipFigure, cells: xr.Dataset) -> Drawing:
    """Draw the intervals of the first replicates of each cell minus the true value, without failed replicates."""
    names, rows = shared.varying(cells, figure.grid), coordinates_of(cells)
    titles = [", ".join(setting_and_level(name, level(row, name)) for name in names) for row in rows]
    coverage = zip(by_source(cells, "coverage", "empirical"), cells.coverage_mcse.values, strict=True)
    drawing, grid = shared.canvas(len(titles), 3.4)
    for axes, ends, title, (share, mcse) in zip(grid.flat, cells.interval.values, titles, coverage, strict=False):
        lower, upper, truth = ends[np.isfinite(ends).all(axis=1)].T
        lower, upper = lower - truth, upper - truth
        with np.errstate(divide="ignore", invalid="ignore"):
            far = np.abs(lower + upper) / (upper - lower)
        order = np.argsort(np.nan_to_num(far, nan=np.inf), kind="stable")
        lower, upper, covers = lower[order], upper[order], ((lower <= 0) & (upper >= 0))[order]
        n = max(len(covers), 1)
        for part, (colour, text) in zip((covers, ~covers), _COLOURS.items(), strict=True):
            style = {"color": colour, "linewidth": min(2.0, 220.0 / n), "label": text}
            axes.hlines(100.0 * (np.flatnonzero(part) + 0.5) / n, lower[part], upper[part], **style)
        axes.axvline(0.0, color="black", linewidth=0.8)
        axes.set(xlabel="interval minus the truth", ylim=(0, 100))
        low, high = 100.0 * (share - COVERAGE * mcse), 100.0 * (share + COVERAGE * mcse)
        axes.axhspan(low, high, color=_LIMITS, zorder=0, linewidth=0, label="limits")
        said = f"coverage {100.0 * share:.3g} % ({low:.3g} to {high:.3g})"
        above = textwrap.fill(title, shared.characters(axes)) + "\n" * bool(title)
        axes.set_title(above + said, loc="left", fontsize=10)
    for axes in grid[:, 0]:
        axes.set_ylabel("centile of distance over half length")
    entries: Entries = [({"color": colour}, text) for colour, text in _COLOURS.items()]
    text = f"coverage ± {COVERAGE} MCSE: intervals above it should not cover"
    entries.append(({"color": _LIMITS, "linewidth": 7}, text))
    shared.legends(drawing, {}, entries)
    return drawing


def ordering_figure(figure: OrderingFigure, cells: xr.Dataset) -> Drawing:
    """Draw a row for each index that is not constant; ``wrong_pair_share`` of cells is that of this figure."""
    orders = np.isfinite(cells.wrong_pair_share.values).any(axis=0)
    cells = cells.isel(index=orders | ~orders.any())
    names = cells.index.values.tolist()
    constant = [name for name in INDICES if name not in names]
    drawing, looks, panels, _ = shared.panelled(figure, cells, 3.4)
    for _, parts, axes in panels:
        axes.axvline(0.5, color=NEUTRAL, label="no relation", zorder=1, **DASHED)
        for look, coloured in parts:
            first = coloured.isel(cell=0)  # the share is equal in all cells of a colour
            bars = COVERAGE * first.wrong_pair_share_mcse.values
            rows = np.arange(len(names)) + min(APART, 0.8 / len(looks)) * look.place
            shared.draw_marks(axes, look, first.wrong_pair_share.values, rows, xerr=bars, capsize=2.5)
        shared.set_scales(axes, "linear", "linear")
        axes.set(xlim=(-0.04, 1.04), ylim=(len(names) - 0.5, -0.5), xlabel="pairs in the wrong order")
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(labelleft=shared.is_first(axes), left=False)
    text = f"points: share of pairs of which the more diverse has the larger {measure_name(figure.y)} ± {COVERAGE} MCSE"
    dashed = "dashed: an index without any relation to it; 0: a strictly decreasing relation"
    left_out = f"not drawn, because equal or undefined in all cells: {', '.join(constant)}"
    shared.legends(drawing, looks, [(RING, text), (DASHED, dashed), *([left_out] if constant else [])], figure.hue)
    return drawing
