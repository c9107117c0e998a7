"""The figure of a study that declares none: what its first claim speaks of, or what it measures, over its factors."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from simstudy.design.claims import BaseClaim
from simstudy.design.figures import BaseFigure, CurveFigure, LollipopFigure, NestedLoopFigure
from simstudy.design.measures import averaged_measures, coordinates_of
from simstudy.design.settings.levels import level
from simstudy.report.labels import measure_name, setting_name
from simstudy.results import factors_of

MOST_STICKS = 40
"""Cells that sticks show; nested loops show more."""


def overview(claims: Mapping[str, BaseClaim], wanted: Mapping[str, Any], results: xr.Dataset) -> BaseFigure | None:
    """Return a curve where some factor is a number and two others can be told apart, or else every cell by itself."""
    claim, factors = next(iter(claims.values()), None), factors_of(results)
    grid = claim.grid if claim else next(iter(factors))
    cells = results.isel(cell=np.flatnonzero(results.grid.values == grid))
    asked = [*([claim.measure] if claim else []), *wanted[grid], *averaged_measures(results)]
    y = next((name for name in asked if name in averaged_measures(results) and np.isfinite(cells[name][0]).any()), None)
    if y is None:
        return None
    levels = {name: list(dict.fromkeys(level(row, name) for row in coordinates_of(cells))) for name in factors[grid]}
    several = {name: found for name, found in levels.items() if len(found) > 1}
    numeric = [name for name, found in several.items() if not any(isinstance(each, str) for each in found)]
    x = getattr(claim, "x", None) or max(numeric, key=lambda name: len(several[name]), default=None)
    others = sorted((name for name in several if name != x), key=lambda name: name not in ("estimator", "method"))
    title = measure_name(y) + (f" against {setting_name(x)}" if x else " in every cell")
    stated: dict[str, Any] = {"title": title, "grid": grid, "y": y, "hue": others[0] if others else None}
    if x and len(others) <= 2:
        return CurveFigure(x=x, panel=others[1] if others[1:] else None, **stated)
    if math.prod(map(len, several.values())) <= MOST_STICKS:
        return LollipopFigure(kind="lollipop", **stated)
    return NestedLoopFigure(kind="nested_loop", **stated)
