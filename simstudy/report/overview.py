"""Which figures a study has: those of its design, or one of its first claim or measure over its factors."""

import math
from typing import Any

import numpy as np
import xarray as xr

from simstudy.design.claims import AgreesWithTheory
from simstudy.design.document import Declared, Design
from simstudy.design.figures import BaseFigure, CurveFigure, LollipopFigure, NestedLoopFigure
from simstudy.design.measures import averaged_measures, coordinates_of
from simstudy.design.settings.levels import level
from simstudy.report.labels import OVERVIEW, measure_name, setting_name
from simstudy.results import factors_of

MOST_STICKS = 40
"""Cells that sticks show; nested loops show more."""


def figures_of(design: Declared, results: xr.Dataset) -> dict[str, BaseFigure]:
    """Return the figures that a design declares, or one of its first claim or measure if it declares none.

    That is a curve where some factor is a number and two others can be told apart, or else shows every cell by itself.
    """
    if design.figures:
        return dict(design.figures)
    claim, factors = next(iter(design.claims.values()), None), factors_of(results)
    grid = claim.grid if claim else next(iter(factors))
    cells = results.isel(cell=np.flatnonzero(results.grid.values == grid))
    planned = [each for each in getattr(design, "cells", ()) if each.grid == grid]
    precision = planned[0].precision if planned else vars(design)["precision"]
    asked = [*([claim.measure] if claim else []), *precision.relative_mcse, *precision.absolute_mcse]
    measures = averaged_measures(results)
    y = next((each for each in (*asked, *measures) if each in measures and np.isfinite(cells[each][0]).any()), None)
    if y is None:
        return {}
    levels = {name: list(dict.fromkeys(level(row, name) for row in coordinates_of(cells))) for name in factors[grid]}
    several = {name: found for name, found in levels.items() if len(found) > 1}
    numeric = [name for name, found in several.items() if not any(isinstance(each, str) for each in found)]
    x = getattr(claim, "x", None) or max(numeric, key=lambda name: len(several[name]), default=None)
    others = sorted((name for name in several if name != x), key=lambda name: name not in ("estimator", "method"))
    title = measure_name(y) + (f" against {setting_name(x)}" if x else " in every cell")
    stated: dict[str, Any] = {"title": title, "grid": grid, "y": y, "hue": others[0] if others else None}
    if x and len(others) <= 2:
        return {OVERVIEW: CurveFigure(x=x, panel=others[1] if others[1:] else None, **stated)}
    if math.prod(map(len, several.values())) <= MOST_STICKS:
        return {OVERVIEW: LollipopFigure(kind="lollipop", **stated)}
    return {OVERVIEW: NestedLoopFigure(kind="nested_loop", **stated)}


def margin_of(design: Design, figure: BaseFigure) -> float | None:
    """Return the least relative difference from theory that a claim allows what a figure shows; None without any."""
    # The first figure stands beside the first claim, which answers the question, whatever grid that is judged on.
    beside = [*design.claims.values()][:1] if [figure] == [*design.figures.values()][:1] else []
    about = (c for c in design.claims.values() if isinstance(c, AgreesWithTheory) and c.measure == figure.y)
    return min((claim.margin for claim in about if claim.grid == figure.grid or claim in beside), default=None)
