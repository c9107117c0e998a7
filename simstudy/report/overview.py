"""The figure of a study that declares none: what its first claim speaks of, or what it measures, over its factors."""

import math
from typing import Any

import numpy as np
import xarray as xr

from simstudy.design.document import Design
from simstudy.design.figures import BaseFigure, CurveFigure, LollipopFigure, NestedLoopFigure
from simstudy.design.measures import averaged_measures, coordinates_of
from simstudy.design.settings.levels import level
from simstudy.report.labels import measure_name, setting_name

MOST_STICKS = 40
"""Cells that sticks show; nested loops show more."""
METHODS = ("estimator", "method")
"""Factors that are best told apart by colour."""


def overview(design: Design, results: xr.Dataset) -> BaseFigure | None:
    """Return a curve where some factor is a number and two others can be told apart, or else every cell by itself."""
    claim = next(iter(design.claims.values()), None)
    grid = claim.grid if claim else next(iter(design.factors))
    cells = results.isel(cell=np.flatnonzero(results.grid.values == grid))
    precision = next(planned.precision for planned in design.cells if planned.grid == grid)
    asked = [claim.measure] if claim else []
    asked += [*precision.relative_mcse, *precision.absolute_mcse, *averaged_measures(results)]
    known = set(averaged_measures(results))
    y = next((name for name in asked if name in known and np.isfinite(cells[name][0]).any()), None)
    if y is None:
        return None
    rows = coordinates_of(cells)
    levels = {name: list(dict.fromkeys(level(row, name) for row in rows)) for name in design.factors[grid]}
    several = {name: found for name, found in levels.items() if len(found) > 1}
    numeric = [name for name, found in several.items() if not any(isinstance(each, str) for each in found)]
    x = getattr(claim, "x", None) or max(numeric, key=lambda name: len(several[name]), default=None)
    others = sorted((name for name in several if name != x), key=lambda name: name not in METHODS)
    title = measure_name(y) + (f" against {setting_name(x)}" if x else " in every cell")
    stated: dict[str, Any] = {"title": title, "grid": grid, "y": y, "hue": others[0] if others else None}
    if x and len(others) <= 2:
        return CurveFigure(x=x, panel=others[1] if others[1:] else None, **stated)
    if math.prod(map(len, several.values())) <= MOST_STICKS:
        return LollipopFigure(kind="lollipop", **stated)
    return NestedLoopFigure(kind="nested_loop", **stated)
