"""Plots for analysts: the drawings of the report, of any results and with any factors, as Matplotlib's axes.

``from simstudy import plots``.  Each function returns the axes of its panels; ``axes[0].figure`` is the drawing, to be
saved or changed.  Nothing of `matplotlib.pyplot` is used, and nothing global changed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing

from simstudy.analysis import Where, find_cell
from simstudy.design.document import Design
from simstudy.design.figures import CurveFigure, LollipopFigure, NestedLoopFigure, PanelFigure, Scale
from simstudy.design.load import load_design
from simstudy.design.measures import averaged_measures
from simstudy.design.mistakes import hint, validated
from simstudy.design.own_code import require_trust
from simstudy.errors import UserError
from simstudy.replicates.replay import INTERVAL, intervals_of, select
from simstudy.report.figures import draw, draw_z_scores
from simstudy.report.figures.beside_theory import STRIP
from simstudy.report.figures.factorial import LEVELS, draw_zip
from simstudy.report.figures.whole import compared_measures
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


def z_scores(results: Results, *measures: str) -> np.ndarray:
    """Draw (Monte Carlo − theory) / error of all cells against normal quantiles: by chance they follow the line.

    Parameters
    ----------
    results
        As of `curve`.
    *measures : str
        Names of measures; all that theory speaks of by default.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (measures,)
        A panel for each measure.

    Raises
    ------
    UserError
        If no cell has both an error and a value by theory.
    """
    results = cells_of(results)
    known = compared_measures(results)
    for name in measures or ("",):
        if name not in known and (name or not known):
            raise UserError(f"measures = {name!r}: nothing to compare with theory; {hint(name, known)}")
    drawing = draw_z_scores(results, *measures)
    assert drawing is not None
    return _panels(drawing)


def zip_plot(
    source: Results | Design | Mapping[str, Any],
    cell: Where | str,
    *,
    replicates: int = 400,
    profile: str = "quick",
    trust: Iterable[str | Path] = (),
) -> np.ndarray:
    """Draw intervals of a cell of a simulation, the worst on top, with the Monte Carlo limits of the coverage.

    See Morris, White and Crowther (2019, Statistics in Medicine 38, 2074).

    Parameters
    ----------
    source
        Results whose design has a figure of kind ``zip``: the intervals are stored.  Or a design, as for
        `simstudy.run`: replicates are then computed again from their numbers, so that functions must be trusted.
    cell
        Number of a cell, or levels of factors: ``{"n": 40}``, or of a design ``"n=40, method=wald"``.
    replicates
        How many of the first replicates are drawn, of a design.
    profile, trust
        As for `simstudy.run`.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (1,)
        One panel.

    Raises
    ------
    UserError
        If there are no intervals, or the functions are not trusted.
    """
    if isinstance(source, xr.DataTree | xr.Dataset):
        results = cells_of(source)
        number = find_cell(results, int(cell) if isinstance(cell, str) else cell, "cell")
        if "interval" not in results or not np.isfinite(results.interval.values[number]).all(axis=-1).any():
            raise UserError(f"cell = {cell!r}: no intervals are stored; state a figure of kind zip, or give the design")
        coverage = float(results.coverage.values[0, number]), float(results.coverage_mcse.values[number])
        return _panels(draw_zip(results.interval.values[number], coverage))
    loaded = source if isinstance(source, Design) else load_design(source, profile, trust)
    chosen = loaded.cells[select(loaded, str(cell))].cell
    require_trust([chosen])
    rows = intervals_of(chosen, replicates)
    if not np.isfinite(rows).all(axis=1).any():
        raise UserError(f"cell = {cell!r}: its replicates give no {', '.join(INTERVAL)}; take one with intervals")
    return _panels(draw_zip(rows))


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
