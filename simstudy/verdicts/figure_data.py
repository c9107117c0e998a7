"""The statistics that figures show: computed here, so that drawing them is drawing alone."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from simstudy.design.figures import BaseFigure, OptimumFigure, OrderingFigure
from simstudy.design.measures import INDICES, THEORIES, coordinates_of
from simstudy.design.settings.levels import by_levels, level, selected
from simstudy.execution.state import CellProgress
from simstudy.verdicts.comparisons import Selected
from simstudy.verdicts.estimates import Array, Estimates, estimates_of
from simstudy.verdicts.optima import NEVER, Profile, told_profile
from simstudy.verdicts.orderings import violated_share

SHARE_DRAWS = 999
"""Draws that give the error of a share of pairs."""


def stored_numbers(figure: BaseFigure, accounts: list[CellProgress], factors: tuple[str, ...]) -> dict[str, Array]:
    """Return what a figure shows of draws of the estimates, by name; NaN in cells that it does not select."""
    estimates = estimates_of(accounts, figure.y)
    chosen = [i for i, coordinates in enumerate(estimates.conditions) if selected(coordinates, figure.where)]
    of = Selected(estimates, chosen, factors)
    if isinstance(figure, OptimumFigure):
        return {"optimum_share": optimum_shares(of, (figure.over, *figure.tune))}
    assert isinstance(figure, OrderingFigure)  # no other one stores numbers
    indices = [estimates_of(accounts, "hdi", index) for index in INDICES]
    shares, errors = wrong_pairs(of, indices, tuple(name for name in (figure.hue, figure.panel) if name))
    return {"wrong_pair_share": shares, "wrong_pair_share_mcse": errors}


def optimum_shares(of: Selected, within: Sequence[str]) -> Array:
    """Return the share of draws in which each cell is the least of those that differ ``within`` alone."""
    shares = np.full(len(of.estimates.values), np.nan)
    for group in of.groups(*within):
        draws = of.estimates.draws(group)
        least = np.argmin(np.where(np.isnan(draws), np.inf, draws), axis=1)
        shares[group] = np.bincount(least, minlength=len(group)) / len(draws)
    return shares


def wrong_pairs(of: Selected, indices: Sequence[Estimates], apart: Sequence[str]) -> tuple[Array, Array]:
    """Return the share of pairs, within levels of ``apart``, that each index orders wrongly, and its MCSE."""
    shares, errors = (np.full((len(of.estimates.values), len(indices)), np.nan) for _ in range(2))
    for cells in by_levels(of.estimates.conditions, apart, of.chosen):
        draws = of.estimates.draws(cells, SHARE_DRAWS)
        for k, index in enumerate(indices):
            shares[cells, k] = violated_share(index.values[cells], -of.estimates.values[None, cells])[0]
            errors[cells, k] = violated_share(index.values[cells], -draws).std()
    return shares, errors


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


def z_scores(cells: xr.Dataset, measure: str, source: str) -> Array:
    """Return (Monte Carlo − theory) / error of each cell, numerical errors included; NaN where undefined."""
    errors = cells[f"{measure}_mcse"].values
    if source == "exact" and f"{measure}_numerical_error" in cells:
        errors = np.hypot(errors, np.nan_to_num(cells[f"{measure}_numerical_error"].values))
    gaps = by_source(cells, measure, "empirical") - by_source(cells, measure, source)
    return gaps / np.where(errors > 0, errors, np.nan)
