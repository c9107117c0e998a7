"""Figures of the report for any results and factors, as axes of Matplotlib.

``from simstudy import plots``.  Each function returns the axes of its panels; ``axes[0].figure`` is the figure, to be
saved or changed.  `matplotlib.pyplot` is not used, and no global setting is changed.
"""

from typing import Any

import numpy as np
import pandas as pd

from simstudy.design.answerable import PlannedGrid, refer
from simstudy.design.document import CurveFigure, LollipopFigure, NestedLoopFigure, PanelFigure
from simstudy.design.measures import averaged_measures, coordinates_of
from simstudy.design.settings.records import hint, tags, validated
from simstudy.errors import UserError
from simstudy.judging.table import real
from simstudy.report.figures import draw
from simstudy.report.figures.factorial import LEVELS
from simstudy.report.figures.shared import NEUTRAL, STRIP, canvas, figure_style
from simstudy.report.labels import COVERAGE
from simstudy.results import METHOD, Results, cells_of, factors_of, setting_of

KINDS: dict[str, type[PanelFigure]] = {tags(each)[0]: each for each in (CurveFigure, NestedLoopFigure, LollipopFigure)}


def plot(
    results: Results, kind: str, y: str, *, grid: str | None = None, where: dict[str, Any] | None = None, **entries: Any
) -> np.ndarray:
    """Draw a measure with error bars of ± 1.96 MCSE and with theory, like a figure of a design.

    Parameters
    ----------
    results
        Results of `simstudy.run` or `simstudy.open_results`, or the folder or name of a study.
    kind
        ``"curve"``, over a numeric factor ``x`` with residuals in a strip below; ``"nested_loop"``, every cell above
        stairs that show the levels of factors; or ``"lollipop"``, every cell as a stick from a ``target``, or from 0.
    y
        Name of a measure, such as ``"mse"``, in the unit that the results state.
    grid
        Name of the grid; may be left out if the study has only one.
    where
        Settings and the level that each must have, to select cells: ``{"n_keys": 400}``.
    **entries
        Further entries of such figures: ``hue`` and ``panel``, factors shown by colour and by panel; ``x_scale``
        and ``y_scale``, ``"linear"`` or ``"log"``; ``target``, such as 0.95 for coverage.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (panels,)
        The panels; strips and stairs are in the drawing, ``axes[0].figure``.

    Raises
    ------
    UserError
        If the results lack the measure, grid or factor, or figures of this kind lack an entry.

    Examples
    --------
    >>> axes = plot(results, "curve", "correlation", x="angle", hue="bandwidth")  # doctest: +SKIP
    >>> axes[0].figure.savefig("correlation.png")  # doctest: +SKIP
    """
    if kind not in KINDS:
        raise UserError(f"kind = {kind!r}: choose one of {', '.join(KINDS)}")
    results = cells_of(results)
    rows, factors = coordinates_of(results), factors_of(results)
    measures = [each for each in averaged_measures(results) if results[each].notnull().any()]
    if grid is None and len(factors) > 1:
        raise UserError(f"grid: left out, but these results have several; choose one of {', '.join(factors)}")
    entries |= {each: setting_of(entries[each]) for each in ("x", "hue", "panel") if entries.get(each) is not None}
    where = {setting_of(name): level for name, level in where.items()} if isinstance(where, dict) else where or {}
    stated = {"kind": kind, "title": y, "grid": grid or min(factors), "where": where, "y": y, **entries}
    figure = validated(KINDS[kind], stated, place=f"plots.{kind}")
    grids = {name: PlannedGrid(each, [row for row in rows if row["grid"] == name]) for name, each in factors.items()}
    refer(grids, {"figure": figure}, f"plots.{kind}")
    if y not in measures:
        raise UserError(f"y = {y!r}: not in these results; {hint(y, measures)}")
    drawing = draw(figure, y, results)
    return np.array([each for each in drawing.axes if each.get_visible() and each.get_label() not in (STRIP, LEVELS)])


@figure_style()
def agreement(
    table: pd.DataFrame, first: Any, second: Any, of: str = "estimate", *, method: str = METHOD
) -> np.ndarray:
    """Draw the agreement of two methods on the same data sets: a scatter plot, and differences over means.

    See Bland and Altman (1986, The Lancet 327, 307).

    Parameters
    ----------
    table
        As for `simstudy.performance`, with data sets of one setting only.
    first, second
        Two methods.
    of, method
        Columns of the compared numbers and of methods.

    Returns
    -------
    array of matplotlib.axes.Axes, shape (2,)
        Scatter plot with the line of equality; differences with their mean ± 1.96 standard deviations.

    Raises
    ------
    UserError
        If a method or column is missing, a data set has two rows of a method, or fewer than two pairs are finite.
    """
    if not isinstance(table, pd.DataFrame):
        raise UserError(f"table: a {type(table).__name__}; give a pandas.DataFrame (of polars: to_pandas())")
    if missing := [each for each in ("dataset", method, of) if each not in table]:
        raise UserError(f"{missing[0]!r}: no column of the table; it has {', '.join(map(str, table))}")
    rows = table[table[method].isin([first, second])]
    if {first, second} - {*rows[method]} or rows.duplicated(["dataset", method]).any():
        raise UserError(f"{first!r}, {second!r}: give two methods of the table, with one row for each data set")
    pairs = rows.assign(**{of: real(of, rows[of])}).pivot(index="dataset", columns=method, values=of)[[first, second]]
    x, y = pairs[np.isfinite(pairs).all(axis=1)].to_numpy().T
    if len(x) < 2:
        raise UserError(f"{of}: finite for both methods in {len(x)} of {len(pairs)} data sets; give two at least")
    left, right = canvas(2, 4.0)[1].flat
    left.plot(x, y, ".", alpha=0.5)
    left.axline((x.mean(), x.mean()), slope=1.0, color=NEUTRAL, linewidth=0.8)
    left.set(xlabel=f"{of}, {first}", ylabel=f"{of}, {second}")
    right.plot((x + y) / 2.0, y - x, ".", alpha=0.5)
    for height in (y - x).mean() + COVERAGE * (y - x).std(ddof=1) * np.array([-1.0, 0.0, 1.0]):
        right.axhline(height, color=NEUTRAL, linewidth=0.8)
    right.set(xlabel="mean of both", ylabel=f"{second} − {first}")
    return np.array([left, right])
