"""Plots for analysts: the drawings of the report, of any results and with any factors, as Matplotlib's axes.

``from simstudy import plots``.  Each function returns the axes of its panels; ``axes[0].figure`` is the drawing, to be
saved or changed.  Nothing of `matplotlib.pyplot` is used, and nothing global changed.
"""

from typing import Any, get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing

from simstudy.analysis import Where, find_cell
from simstudy.design.figures import CurveFigure, LollipopFigure, NestedLoopFigure, PanelFigure, Scale
from simstudy.design.measures import averaged_measures
from simstudy.design.mistakes import hint, validated
from simstudy.errors import UserError
from simstudy.replicates.replay import INTERVAL
from simstudy.report.figures import draw
from simstudy.report.figures.beside_theory import STRIP
from simstudy.report.figures.factorial import LEVELS, draw_zip
from simstudy.report.figures.shared import COVERAGE, NEUTRAL, canvas, own_style
from simstudy.results import Results, cells_of, named_grid, setting_of


def curve(
    results: Results,
    y: str,
    x: str,
    *,
    grid: str | None = None,
    hue: str | None = None,
    panel: str | None = None,
    where: dict[str, Any] | None = None,
    x_scale: Scale = "linear",
    y_scale: Scale = "linear",
) -> np.ndarray:
    """Draw a measure against a factor with error bars of ± 1.96 MCSE, theory as lines, residuals in a strip below.

    Parameters
    ----------
    results
        What `simstudy.run` or `simstudy.open_results` returned, or the folder or name of a study.
    y
        Name of a measure, in the unit that the results state; ``"mse"``, say.
    x
        A numeric factor of the grid.
    grid
        Name of the grid; may be left out if the study has only one.
    hue, panel
        Factors told apart by colour and by panel.
    where
        Settings and the level that each must have, to select cells: ``{"n_keys": 400}``.
    x_scale, y_scale
        ``"linear"`` or ``"log"``.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (panels,)
        Without the strips, which are in the drawing: ``axes[0].figure``.

    Raises
    ------
    UserError
        If the results have no such measure, grid or factor.

    Examples
    --------
    >>> axes = curve(results, "correlation", "angle", grid="closed-form", hue="bandwidth")  # doctest: +SKIP
    >>> axes[0].figure.savefig("correlation.png")  # doctest: +SKIP
    """
    results = cells_of(results)
    if x in results.coords and results[x].dtype.kind not in "iuf":
        raise UserError(f"x = {x!r}: its levels are no numbers; give it as hue or panel, or use nested_loop")
    return _drawn(CurveFigure, results, grid, where, y=y, x=x, hue=hue, panel=panel, x_scale=x_scale, y_scale=y_scale)


def nested_loop(
    results: Results,
    y: str,
    *,
    grid: str | None = None,
    hue: str | None = None,
    panel: str | None = None,
    where: dict[str, Any] | None = None,
    y_scale: Scale = "linear",
    target: float | None = None,
) -> np.ndarray:
    """Draw a measure in every cell of a grid, above stairs that show the levels of its factors.

    Parameters
    ----------
    results, y, grid, hue, panel, where, y_scale
        As of `curve`.
    target
        Value that is aimed at, drawn as a line.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (panels,)
        Without strips and stairs.

    Raises
    ------
    UserError
        If the results have no such measure, grid or factor.
    """
    how = {"hue": hue, "panel": panel, "y_scale": y_scale, "target": target}
    return _drawn(NestedLoopFigure, results, grid, where, y=y, **how)


def lollipop(
    results: Results,
    y: str,
    *,
    grid: str | None = None,
    hue: str | None = None,
    panel: str | None = None,
    where: dict[str, Any] | None = None,
    target: float | None = None,
) -> np.ndarray:
    """Draw a measure in every cell of a grid as a stick from its target, or from 0.

    Parameters
    ----------
    results, y, grid, hue, panel, where
        As of `curve`.
    target
        Value that is aimed at, such as 0.95 for coverage.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (panels,)
        A row for each combination of the factors that neither colour nor panel shows.

    Raises
    ------
    UserError
        If the results have no such measure, grid or factor.
    """
    return _drawn(LollipopFigure, results, grid, where, y=y, hue=hue, panel=panel, target=target)


def zip_plot(source: Results | pd.DataFrame, cell: Where | None = None) -> np.ndarray:
    """Draw intervals of a cell of a simulation, the worst on top, with the Monte Carlo limits of the coverage.

    See Morris, White and Crowther (2019, Statistics in Medicine 38, 2074).

    Parameters
    ----------
    source
        Results whose design has a figure of kind ``zip``: the intervals are stored.  Or rows of one method in one
        setting of a table of `simstudy.estimates`, with ``lower``, ``upper`` and ``truth``.
    cell
        Of results, number of a cell or levels of factors: ``{"n": 40}``.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (1,)
        One panel.

    Raises
    ------
    UserError
        If there are no intervals.
    """
    rows, coverage = np.empty((0, len(INTERVAL))), None
    if isinstance(source, pd.DataFrame):
        rows = source.reindex(columns=[*INTERVAL]).to_numpy(float)
    elif "interval" in (results := cells_of(source)):
        number = find_cell(results, 0 if cell is None else cell, "cell")
        rows = results.interval.values[number]
        coverage = float(results.coverage.values[0, number]), float(results.coverage_mcse.values[number])
    if not np.isfinite(rows).all(axis=1).any():
        raise UserError("no intervals are stored; state a figure of kind zip, or give a table of simstudy.estimates")
    return _panels(draw_zip(rows, coverage))


@own_style()
def agreement(
    table: pd.DataFrame, first: Any, second: Any, of: str = "estimate", *, method: str = "method"
) -> np.ndarray:
    """Draw how two methods agree in the same data sets: a scatter plot, and differences over means.

    See Bland and Altman (1986, The Lancet 327, 307).

    Parameters
    ----------
    table
        As of `simstudy.performance`; only data sets of one setting.
    first, second
        Two methods.
    of, method
        Columns of what is compared, and of methods.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (2,)
        With the line of equality; with the mean difference and ± 1.96 standard deviations of differences.

    Raises
    ------
    UserError
        If a method or column is missing, or a data set has two rows of a method.
    """
    if missing := [each for each in ("dataset", method, of) if each not in table]:
        raise UserError(f"{missing[0]!r}: no column of the table; it has {', '.join(map(str, table))}")
    rows = table[table[method].isin([first, second])]
    if {first, second} - {*rows[method]} or rows.duplicated(["dataset", method]).any():
        raise UserError(f"{first!r}, {second!r}: give two methods of the table, with one row for each data set")
    x, y = rows.pivot(index="dataset", columns=method, values=of)[[first, second]].dropna().to_numpy(float).T
    _, grid = canvas(2, 4.0)
    left, right = grid.flat
    left.plot(x, y, ".", alpha=0.5)
    left.axline((x.mean(), x.mean()), slope=1.0, color=NEUTRAL, linewidth=0.8)
    left.set(xlabel=f"{of}, {first}", ylabel=f"{of}, {second}")
    right.plot((x + y) / 2.0, y - x, ".", alpha=0.5)
    for height in (y - x).mean() + COVERAGE * (y - x).std(ddof=1) * np.array([-1.0, 0.0, 1.0]):
        right.axhline(height, color=NEUTRAL, linewidth=0.8)
    right.set(xlabel="mean of both", ylabel=f"{second} − {first}")
    return np.array([left, right])


def _drawn(
    kind: type[PanelFigure], results: Results, grid: str | None, where: dict[str, Any] | None, **entries: Any
) -> np.ndarray:
    results = cells_of(results)
    grid, known = named_grid(results, grid)
    where = {setting_of(name): level for name, level in (where or {}).items()}
    for name in ("x", "hue", "panel"):
        if (factor := entries.get(name)) is not None:
            entries[name] = setting_of(factor)
            if entries[name] not in known:
                raise UserError(f"{factor!r}: no factor of grid {grid!r}; {hint(factor, list(known))}")
    measures, y = averaged_measures(results), entries["y"]
    if y not in measures:
        raise UserError(f"y = {y!r}: not in these results; {hint(y, measures)}")
    (name,) = get_args(kind.model_fields["kind"].annotation)
    figure = validated(kind, {"kind": name, "title": y, "grid": grid, "where": where, **entries}, place=f"plots.{name}")
    return _panels(draw(figure, y, results))


def _panels(drawing: Drawing) -> np.ndarray:
    return np.array([axes for axes in drawing.axes if axes.get_visible() and axes.get_label() not in (STRIP, LEVELS)])
