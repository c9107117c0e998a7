"""Figures against a number on x: kinds "curve", "optimum" and "law"."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from simstudy.design.figures import CurveFigure, LawFigure, OptimumFigure
from simstudy.design.measures import THEORIES
from simstudy.report.figures import beside_theory, shared
from simstudy.report.figures.shared import COVERAGE, DASHED, NEUTRAL, RING, THEORY_LINES, Entries, Look, Notes
from simstudy.report.labels import THEORY_NAMES, measure_name, number, setting, setting_name
from simstudy.results import factors_of
from simstudy.verdicts.figure_data import LawShare, Place, Residuals, by_source, law_shares, places, residuals
from simstudy.verdicts.optima import NEVER


def curve_figure(figure: CurveFigure, cells: xr.Dataset) -> Drawing:
    """Draw a measure against a factor, a line for each hue, a panel for each level, and strips where theory speaks."""
    names = {figure.y, f"{figure.y}_mcse", "inapplicable", *([figure.limit] if figure.limit else [])}
    cells = cells[sorted(names)]  # each part copies all variables that it has
    limit = beside_theory.reach(residuals(cells, figure.y))
    heights = (2.9, 3.6, beside_theory.HEIGHT) if limit else (3.2, 3.9)
    drawing, grid, panels, *strips = shared.panelled(figure, cells, *heights)
    hidden, notes = shared.unshown(figure, cells, figure.x), Notes()
    notes.uncovered = not beside_theory.covered(cells, figure.y).any()
    looks = shared.looks_of(cells, figure.hue)
    for position, (axes, inside) in enumerate(panels):
        for hue, coloured in shared.split(inside, figure.hue):
            for stratum in shared.strata_of(coloured, hidden):
                _curve(axes, figure, stratum, looks[hue], notes)
            if limit:
                x = coloured[figure.x].values.astype(float)
                shift = beside_theory.side_by_side(list(looks).index(hue), len(looks))
                found = residuals(coloured, figure.y)
                notes.beyond += beside_theory.draw_residuals(
                    strips[0].flat[position], x, found, looks[hue], limit, shift
                )
        shared.set_scales(axes, figure.x_scale, figure.y_scale)
        shared.tick_levels(axes, inside[figure.x].values.astype(float), figure.x_scale)
        [grid, *strips][-1].flat[position].set_xlabel(setting_name(figure.x))
    drawn = [axes for axes, _ in panels]
    aimed = shared.aim(drawn, figure.target)
    shared.share_y(drawn, figure.y_scale)
    words = shared.from_zero(drawn, figure.y_scale)
    shared.label_y(grid, measure_name(figure.y), len(panels))
    if limit:
        beside_theory.settle_strips(list(strips[0].flat[: len(panels)]), list(strips[0][:, 0]), limit)
    entries = [*_reading(figure, hidden, notes), *aimed, *beside_theory.uncovered_entries(cells, figure.y)]
    entries += beside_theory.residual_entries(notes.beyond) if limit else []
    shared.legends(drawing, looks, [*entries, *words], figure.hue)
    return drawing


def _curve(axes: Axes, figure: CurveFigure, stratum: xr.Dataset, look: Look, notes: Notes) -> None:
    """Draw the cells of one colour that differ in x alone: points with error bars, theory as lines, the limit."""
    stratum = stratum.isel(cell=np.argsort(stratum[figure.x].values, kind="stable"))
    values = _theories(axes, figure, stratum, look, notes)
    x = stratum[figure.x].values.astype(float)
    empirical = by_source(stratum, figure.y, "empirical")
    shown = shared.visible(x, figure.x_scale) & shared.visible(empirical, figure.y_scale)
    notes.dropped += int((np.isfinite(empirical) & np.isfinite(x) & ~shown).sum())
    bars = COVERAGE * stratum[f"{figure.y}_mcse"].values
    known = beside_theory.covered(stratum, figure.y) | notes.uncovered
    beside_theory.draw_points(axes, x[shown], empirical[shown], bars[shown], known[shown], look,
                capsize=2.5, elinewidth=1.1, markeredgewidth=1.3)  # fmt: skip
    gap = np.isnan(np.concatenate([[0.0], values[shown], [0.0]]))
    bridge = np.where(gap[1:-1] | gap[:-2] | gap[2:], empirical[shown], np.nan)
    if np.isfinite(bridge).sum() > 1:
        axes.plot(x[shown], bridge, ":", color=look.colour, linewidth=1.0, label="joined")
        notes.joined = True
    if figure.limit:  # what y tends to, told by a theory where one applies
        at_end = stratum[figure.limit].isel(cell=-1)
        source = next((name for name in THEORIES if np.isfinite(at_end.sel(source=name))), "empirical")
        value = float(at_end.sel(source=source))
        if shared.visible(np.array(value), figure.y_scale):
            notes.limit_fallback |= source == "empirical"
            axes.axhline(value, color=look.colour, label="limit", zorder=1, **DASHED)


def _theories(axes: Axes, figure: CurveFigure, stratum: xr.Dataset, look: Look, notes: Notes) -> np.ndarray:
    """Draw each theory as a line that joins the levels, and return the value of either at each, or NaN."""
    x, told = stratum[figure.x].values.astype(float), np.full(stratum.sizes["cell"], np.nan)
    for source in THEORIES:
        values = by_source(stratum, figure.y, source)
        line = np.where(shared.visible(values, figure.y_scale) & shared.visible(x, figure.x_scale), values, np.nan)
        if np.isfinite(line).any():
            # A line shows nothing of a value without a neighbour.
            gap = np.isnan(np.concatenate([[np.nan], line, [np.nan]]))
            alone = np.flatnonzero(~gap[1:-1] & gap[:-2] & gap[2:]).tolist()
            marks: dict[str, Any] = {"marker": "_", "markersize": 12, "markevery": alone}
            axes.plot(x, line, color=look.colour, label=source, **THEORY_LINES[source], **marks)
            setattr(notes, source, True)
        told = np.where(np.isnan(told), line, told)
    return told


def _reading(figure: CurveFigure, hidden: list[str], notes: Notes) -> Entries:
    text = f"points: Monte Carlo ± {COVERAGE} MCSE" + (", line: leading order" if notes.leading else "")
    entries: Entries = [(RING | {"linestyle": "-" if notes.leading else ""}, text)]
    entries += [(THEORY_LINES["exact"], "broad pale line: exact theory at any n")] if notes.exact else []
    entries += [({"linestyle": ":"}, "dotted: joins points without theory")] if notes.joined else []
    if figure.limit:
        x = setting(figure.x).symbol or setting(figure.x).words
        text = f"dashed: limit, {measure_name(figure.limit)} at the largest {x}"
        text += " (Monte Carlo where no theory applies)" if notes.limit_fallback else ""
        entries.append((DASHED, text))
    if hidden:
        entries.append(f"not told apart (one line for each value): {', '.join(map(setting_name, hidden))}")
    return entries + shared.dropped(notes)


APART = 0.09
"""Distance between the bars of two colours, as a share of the distance between two levels of x."""


def optimum_figure(figure: OptimumFigure, cells: xr.Dataset) -> Drawing:
    """Draw the optimum of each colour against x; cells hold ``optimum_share`` of this figure alone."""
    drawing, grid, panels = shared.panelled(figure, cells, 3.2, 3.9)
    looks = shared.looks_of(cells, figure.hue)
    hidden = shared.unshown(figure, cells, figure.x, figure.over, *figure.tune)
    told: set[str] = set()
    for axes, inside in panels:
        for position, (hue, coloured) in enumerate(shared.split(inside, figure.hue)):
            shift = APART * (position - (len(looks) - 1) / 2)
            for stratum in shared.strata_of(coloured, hidden):
                told |= _path(axes, places(figure, stratum), figure.x_scale, looks[hue], shift)
        axes.set_xlabel(setting_name(figure.x))
        shared.set_scales(axes, figure.x_scale, "log")
        shared.tick_levels(axes, inside[figure.x].values.astype(float), figure.x_scale)
    levels = np.unique(cells[figure.over].values.astype(float))
    for axes, _ in panels:
        # Some room beside the outermost levels, as optima often stand there.
        axes.set_ylim(levels[0] / 1.2, levels[-1] * 1.2)
        axes.yaxis.set_major_locator(FixedLocator(levels.tolist()))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    shared.label_y(grid, f"best {setting_name(figure.over)}", len(panels))
    shared.legends(drawing, looks, _reading_of_optima(figure, hidden, told), figure.hue)
    return drawing


def _path(axes: Axes, path: list[Place], scale: str, look: Look, shift: float) -> set[str]:
    """Draw optima with their uncertainty sets, theory as lines; return the theories that have any."""
    x = np.array([place.x for place in path])
    best = np.array([place.optimum for place in path])
    below, above = (np.array([getattr(place, name) for place in path]) for name in ("lowest", "highest"))
    bars = np.maximum([best - below, above - best], 0.0)
    # Moved aside by a share of the least distance between two levels.
    steps = np.diff(np.unique(np.log(x) if scale == "log" else x))
    aside = shift * (steps.min() if len(steps) else 1.0)
    moved = np.exp(np.log(x) + aside) if scale == "log" else x + aside
    axes.errorbar(moved, best, yerr=bars, fmt=look.marker, color=look.colour, capsize=2.5, elinewidth=1.1,
                  markerfacecolor="white", markeredgewidth=1.3, zorder=3)  # fmt: skip
    drawn = set()
    for source in THEORIES:
        line = np.array([place.told[source] for place in path])
        if np.isfinite(line).any():
            marks: dict[str, Any] = {"marker": "_", "markersize": 9}
            axes.plot(moved, line, color=look.colour, label=source, **THEORY_LINES[source], **marks)
            drawn.add(source)
    return drawn


def _reading_of_optima(figure: OptimumFigure, hidden: list[str], told: set[str]) -> Entries:
    tuned = f", best {', '.join(setting_name(name) for name in figure.tune)} at each level" if figure.tune else ""
    text = f"points: least {measure_name(figure.y)}{tuned}, between levels by a parabola in the logarithm"
    bars = f"bars: levels that are best in {NEVER:.0%} or more of the draws from the joint distribution of estimates"
    entries: Entries = [(RING, text), ({"marker": "|", "markersize": 10, "linestyle": ""}, bars)]
    for source in THEORIES:
        if source in told:
            entries.append((THEORY_LINES[source], f"line: {THEORY_NAMES[source]}, where it has an optimum"))
    if hidden:
        entries.append(f"not told apart (one line for each value): {', '.join(map(setting_name, hidden))}")
    return entries


def law_figure(figure: LawFigure, cells: xr.Dataset) -> Drawing:
    """Draw what is found against the law, a colour for each grid, and below that the share by which it misses it."""
    drawing, ((axes,),), ((strip,),) = shared.canvas(1, 4.6, beside_theory.HEIGHT)
    names = (figure.grid, *figure.beside)
    looks = {name: Look.of(position) for position, name in enumerate(names)}
    shares = {name: _shares(cells, name) for name in names}
    law, _, found, _ = every = np.hstack(list(shares.values()))
    limit = beside_theory.reach(_missed(every)) or 1.0
    beyond: list[float] = []
    for name, look in looks.items():
        x, x_mcse, y, y_mcse = shares[name]
        axes.errorbar(x, y, xerr=COVERAGE * x_mcse, yerr=COVERAGE * y_mcse, fmt=look.marker, color=look.colour,
                      elinewidth=1.1, markerfacecolor="white", markeredgewidth=1.3, zorder=3)  # fmt: skip
        beyond += beside_theory.draw_residuals(strip, x, _missed(shares[name]), look, limit)
    # Linear in x, as an estimate of the covariance may be negative; logarithmic in y, as the law may fail by far.
    line = np.linspace(found.min() / 1.5, law.max() * 1.1, 200)
    axes.plot(line, line, color=NEUTRAL, label="law", zorder=1, **DASHED)
    shared.set_scales(axes, "linear", "log")
    axes.set_ylabel("variance of the average / variance of one")
    strip.set_xlabel("variance by the law / variance of one member")
    beside_theory.settle_strips([strip], [strip], limit, "found/law − 1")
    entries: Entries = [
        (RING, f"points: average of M members ± {COVERAGE} MCSE"),
        (DASHED, "dashed: the law ρ + (1−ρ)/M, its terms from the smallest M of each kind"),
    ]
    shared.legends(drawing, looks, entries + beside_theory.residual_entries(beyond, "found over the law − 1"))
    return drawing


def _shares(cells: xr.Dataset, grid: str) -> np.ndarray:
    """What `LawShare` holds, for each ensemble of a grid: (4, ensembles)."""
    inside = cells.isel(cell=np.flatnonzero(cells.grid.values == grid))
    return np.array(law_shares(inside, factors_of(cells)[grid])).reshape(-1, len(LawShare._fields)).T


def _missed(shares: np.ndarray) -> Residuals:
    """What is found over the law − 1, both errors taken for independent; NaN where the law is not positive."""
    law, law_mcse, found, found_mcse = shares
    law = np.where(law > 0, law, np.nan)
    return Residuals(found / law - 1, np.hypot(found_mcse, found / law * law_mcse) / law)
