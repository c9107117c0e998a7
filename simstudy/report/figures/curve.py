"""Figures against a number on x: kinds "curve", "optimum" and "diversity"."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from simstudy.design.answerable import level
from simstudy.design.document import CurveFigure, DiversityFigure, OptimumFigure
from simstudy.design.measures import THEORIES, coordinates_of
from simstudy.report.figures import shared
from simstudy.report.figures.shared import RING, THEORY_LINES, Entries, Look, by_source
from simstudy.report.labels import COVERAGE, INDEX_NAMES, THEORY_NAMES, measure_name, number, setting_name
from simstudy.verdicts.optima import POSSIBLE, Profile, theory_profile


def curve_figure(figure: CurveFigure, cells: xr.Dataset, margin: float | None = None) -> Drawing:
    """Draw a measure against a factor: a line per hue, a panel per level, and strips of deviations from theory."""
    cells = cells[[figure.y, f"{figure.y}_mcse"]]  # each selection copies all variables
    deviations = shared.Strips(cells, figure.y, margin)
    height = 2.9 if deviations.limit else 3.2
    drawing, looks, panels, drawn = shared.panelled(figure, cells, height, *deviations.heights, alone=0.7)
    hidden = shared.varying(cells, figure.grid, figure.x, figure.hue, figure.panel)
    for inside, parts, axes, *strips in panels:
        for look, coloured in parts:
            for _, stratum in shared.split(coloured, *hidden):
                _curve(axes, figure, stratum, look)
            for strip in strips:
                shift = min(shared.STRIP_APART, shared.WIDEST / len(looks)) * look.place
                deviations.draw(strip, coloured[figure.x].values.astype(float), coloured, look, shift)
        deviations.settle(strips)
        shared.set_scales(axes, figure.x_scale, figure.y_scale)
        shared.tick_levels(axes, inside[figure.x].values.astype(float), figure.x_scale)
        (axes, *strips)[-1].set_xlabel(setting_name(figure.x))
    seen = shared.drawn_in(drawn)
    leading = "leading" in seen
    text = f"points: Monte Carlo ± {COVERAGE} MCSE" + (", line: leading order" if leading else "")
    entries: Entries = [(RING | {"linestyle": "-" if leading else ""}, text)]
    entries += [(THEORY_LINES["exact"], "broad pale line: exact theory at any n")] if "exact" in seen else []
    entries += [({"linestyle": ":"}, "dotted: joins points without theory")] if "joined" in seen else []
    entries += _hidden_factors(hidden)
    entries += shared.left_out(figure, cells[figure.x].values.astype(float), by_source(cells, figure.y, "empirical"))
    entries += [*deviations.entries(), *shared.settle_y(drawn, figure.y_scale, measure_name(figure.y))]
    shared.legends(drawing, looks, entries, figure.hue)
    return drawing


def _curve(axes: Axes, figure: CurveFigure, stratum: xr.Dataset, look: Look) -> None:
    """Draw the cells of one colour that differ only in x: points with error bars, theory as lines."""
    stratum = stratum.isel(cell=np.argsort(stratum[figure.x].values, kind="stable"))
    x = stratum[figure.x].values.astype(float)
    values = {name: by_source(stratum, figure.y, name) for name in ("empirical", *THEORIES)}
    seen = {name: shared.visible(x, figure.x_scale) & shared.visible(y, figure.y_scale) for name, y in values.items()}
    theory = {name: np.where(seen[name], values[name], np.nan) for name in THEORIES}
    for source, line in theory.items():
        # A value without a neighbour needs a mark, as it is not on a line.
        alone = ~np.isnan(line) & ~_neighbours(~np.isnan(line))
        _draw_theory(axes, x, line, source, look, markersize=12, markevery=np.flatnonzero(alone).tolist())
    shown, y = seen["empirical"], values["empirical"][seen["empirical"]]
    shared.draw_marks(axes, look, x[shown], y, yerr=COVERAGE * stratum[f"{figure.y}_mcse"].values[shown], capsize=2.5)
    unknown = np.isnan([line[shown] for line in theory.values()]).all(axis=0)
    bridge = np.where(unknown | _neighbours(unknown), y, np.nan)
    if np.isfinite(bridge).sum() > 1:
        axes.plot(x[shown], bridge, ":", color=look.colour, linewidth=1.0, label="joined")


def _neighbours(chosen: Any) -> np.ndarray:
    return np.append(chosen[1:], False) | np.append(False, chosen[:-1])


def _draw_theory(axes: Axes, x: np.ndarray, y: np.ndarray, source: str, look: Look, **marks: Any) -> None:
    """Draw the values of a theory as a line, if there are any."""
    if np.isfinite(y).any():
        axes.plot(x, y, color=look.colour, label=source, marker="_", **THEORY_LINES[source], **marks)


def _hidden_factors(hidden: Iterable[str]) -> Entries:
    names = ", ".join(map(setting_name, hidden))
    return [f"not told apart (one line for each value): {names}"] if names else []


class Place(NamedTuple):
    """Optimum at one level of x, interpolated, by Monte Carlo and each theory; and the range of possible levels."""

    x: float
    optimum: float
    lowest: float
    highest: float
    predicted: dict[str, float]


def places(figure: OptimumFigure, cells: xr.Dataset) -> list[Place]:
    """Return the optimum at each level of x with a defined measure, for cells that are equal in other factors."""
    found, rows = [], coordinates_of(cells)
    # As numbers, also for bandwidths by a rule.
    along, over = (cells[name].values.astype(float) for name in (figure.x, figure.over))
    for x in np.unique(along):
        inside = np.flatnonzero(along == x)
        levels, shares = over[inside], cells.optimum_share.values[inside]
        values = {source: by_source(cells, figure.y, source)[inside] for source in ("empirical", *THEORIES)}
        if not np.isfinite(values["empirical"]).any():
            continue
        possible = [each for each in np.unique(levels) if shares[levels == each].sum() >= POSSIBLE]
        tuned = [[level(rows[cell], name) for cell in inside] for name in figure.tune]
        profiles = {source: theory_profile(levels, tuned, values[source]) for source in THEORIES}
        predicted = {name: profile.refined if profile.bracketed else np.nan for name, profile in profiles.items()}
        known, distinct = np.where(np.isnan(values["empirical"]), np.inf, values["empirical"]), np.unique(levels)
        optimum = Profile(distinct, np.array([known[levels == each].min() for each in distinct])).refined
        found.append(Place(float(x), optimum, min(possible), max(possible), predicted))
    return found


APART = 0.09
"""Distance between the bars of two colours, as a share of the distance between two levels of x."""


def optimum_figure(figure: OptimumFigure, cells: xr.Dataset) -> Drawing:
    """Draw the optimum of each colour against x; ``optimum_share`` of cells is that of this figure."""
    drawing, looks, panels, drawn = shared.panelled(figure, cells, 3.2, alone=0.7)
    hidden = shared.varying(cells, figure.grid, figure.x, figure.over, *figure.tune, figure.hue, figure.panel)
    levels = np.unique(cells[figure.over].values.astype(float))
    for inside, parts, axes in panels:
        for look, coloured in parts:
            for _, stratum in shared.split(coloured, *hidden):
                path = places(figure, stratum)
                x, best, *ends = np.array([place[:4] for place in path]).reshape(-1, 4).T
                # Shifted by a share of the least distance between two levels.
                steps = np.diff(np.unique(np.log(x) if figure.x_scale == "log" else x))
                aside = APART * look.place * (steps.min() if len(steps) else 1.0)
                moved = np.exp(np.log(x) + aside) if figure.x_scale == "log" else x + aside
                bars = np.maximum([best - ends[0], ends[1] - best], 0.0)
                shared.draw_marks(axes, look, moved, best, yerr=bars, capsize=2.5)
                for source in THEORIES:
                    theory = np.array([place.predicted[source] for place in path])
                    _draw_theory(axes, moved, theory, source, look, markersize=9)
        axes.set_xlabel(setting_name(figure.x))
        shared.set_scales(axes, figure.x_scale, "log")
        shared.tick_levels(axes, inside[figure.x].values.astype(float), figure.x_scale)
        # With a margin, as optima are often at the outermost levels.
        axes.set_ylim(levels[0] / 1.2, levels[-1] * 1.2)
        axes.set_yticks(levels, [*map(number, levels)])
        axes.set_yticks([], minor=True)
    shared.label_y(drawn, f"best {setting_name(figure.over)}")
    tuned = f", best {', '.join(setting_name(name) for name in figure.tune)} at each level" if figure.tune else ""
    text = f"points: least {measure_name(figure.y)}{tuned}, between levels by a parabola in the logarithm"
    sets = f"bars: levels that are best in {POSSIBLE:.0%} or more of the draws from the joint distribution of estimates"
    entries: Entries = [(RING, text), ({"marker": "|", "markersize": 10, "linestyle": ""}, sets)]
    with_theory = [source for source in THEORIES if source in shared.drawn_in(drawn)]
    entries += [(THEORY_LINES[each], f"line: {THEORY_NAMES[each]}, where it has an optimum") for each in with_theory]
    shared.legends(drawing, looks, entries + _hidden_factors(hidden), figure.hue)
    return drawing


def diversity_figure(figure: DiversityFigure, cells: xr.Dataset) -> Drawing:
    """Draw a measure against a diversity index, a panel for each level."""
    cells = cells.sel(index=figure.index)
    drawing, looks, panels, drawn = shared.panelled(figure, cells, 3.4)
    for _, parts, axes in panels:
        for look, part in parts:
            y = by_source(part, figure.y, "empirical")
            shown = shared.visible(part.hdi.values, figure.x_scale) & shared.visible(y, figure.y_scale)
            bars = (COVERAGE * part[name].values[shown] for name in ("hdi_mcse", f"{figure.y}_mcse"))
            # An index that is computed from the heads alone has no error.
            x_bars, y_bars = (each if (each > 0).any() else None for each in bars)
            shared.draw_marks(axes, look, part.hdi.values[shown], y[shown], xerr=x_bars, yerr=y_bars)
        shared.set_scales(axes, figure.x_scale, figure.y_scale)
        axes.set_xlabel(figure.index)
    notes = shared.settle_y(drawn, figure.y_scale, measure_name(figure.y))
    words = [f"bars: ± {COVERAGE} MCSE; {INDEX_NAMES[figure.index]}", *notes]
    if len({axes.get_xlim() for axes in drawn}) > 1:
        words.append("panels have x axes of their own")
    left_out = shared.left_out(figure, cells.hdi.values, by_source(cells, figure.y, "empirical"))
    shared.legends(drawing, looks, [*words, *left_out], figure.hue)
    return drawing
