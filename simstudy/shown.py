"""The statistics of results that figures show: computed here, so that drawing them is drawing alone."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from simstudy.design.figures import OptimumFigure
from simstudy.design.measures import THEORIES, coordinates_of
from simstudy.design.settings.levels import level
from simstudy.verdicts.estimates import Array
from simstudy.verdicts.optima import NEVER, Profile, told_profile


class Place(NamedTuple):
    """Optimum at one level of x: between levels by Monte Carlo and by each theory, and the levels possible."""

    x: float
    optimum: float
    lowest: float
    highest: float
    told: dict[str, float]


def places(figure: OptimumFigure, cells: xr.Dataset) -> list[Place]:
    """Return the optimum at each level of x at which the measure is defined, of cells that share the rest."""
    found, rows = [], coordinates_of(cells)
    # Both by their numbers, also a bandwidth that follows a rule.
    along, over = (cells[name].values.astype(float) for name in (figure.x, figure.over))
    for x in np.unique(along):
        inside = np.flatnonzero(along == x)
        levels, shares = over[inside], cells.optimum_share.values[inside]
        values = {source: by_source(cells, figure.y, source)[inside] for source in ("empirical", *THEORIES)}
        if not np.isfinite(values["empirical"]).any():
            continue
        possible = [each for each in np.unique(levels) if shares[levels == each].sum() >= NEVER]
        tuned = [[level(rows[cell], name) for cell in inside] for name in figure.tune]
        profiles = {source: told_profile(levels, tuned, values[source]) for source in THEORIES}
        told = {name: profile.refined if profile.in_sight else np.nan for name, profile in profiles.items()}
        known, distinct = np.where(np.isnan(values["empirical"]), np.inf, values["empirical"]), np.unique(levels)
        optimum = Profile(distinct, np.array([known[levels == each].min() for each in distinct])).refined
        found.append(Place(float(x), optimum, min(possible), max(possible), told))
    return found


def by_source(cells: xr.Dataset, measure: str, source: str) -> Array:
    """Return a measure in each cell by Monte Carlo (``empirical``) or a theory."""
    # Of variables: `sel` takes a hundred times as long, for each line of each figure.
    return cells.variables[measure].values[cells.indexes["source"].get_loc(source)]


class Residuals(NamedTuple):
    """Monte Carlo over theory − 1 in each cell, and its MCSE; NaN where no theory has a value other than 0."""

    values: Array
    mcse: Array


def residuals(cells: xr.Dataset, measure: str) -> Residuals:
    """Return how far estimates of an averaged measure are from theory: the exact one where that has a value."""
    exact, leading = (by_source(cells, measure, source) for source in THEORIES)
    theory = np.where(np.isnan(exact), leading, exact)
    theory = np.where(theory == 0, np.nan, theory)
    ratio = by_source(cells, measure, "empirical") / theory
    return Residuals(ratio - 1, cells[f"{measure}_mcse"].values / np.abs(theory))
