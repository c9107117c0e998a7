"""From a claim to comparisons: estimates with their Monte Carlo error and the interval in which the claim puts them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from simstudy.design.claims import AgreesWithTheory, Equals, LargerThan, Monotone, Slope
from simstudy.design.settings.cell import by_levels, label, level, selected
from simstudy.verdicts.claimed import claimed
from simstudy.verdicts.estimates import Estimates


class Comparison(NamedTuple):
    """An estimate and the interval in which the claim puts it.

    A statistic that is no smooth function of estimates has ``draws`` from its distribution in place of degrees.
    """

    statistic: str
    estimate: float
    mcse: float
    lower: float
    upper: float
    claimed: float
    degrees: int
    draws: np.ndarray | None = None


class Predictions(NamedTuple):
    """Values of one measure by theory, (cell,), with bounds of their numerical errors: 0 for a closed form."""

    values: np.ndarray
    errors: np.ndarray


def agreement(
    claim: AgreesWithTheory, estimates: Estimates, chosen: list[int], factors: tuple[str, ...], theory: Predictions
) -> Iterator[Comparison]:
    """Ratios of estimate to theory; a numerical error of the theory counts as one more standard error."""
    valid = [cell for cell in chosen if np.isfinite(theory.values[cell]) and theory.values[cell] != 0.0]
    share = "" if len(valid) == len(chosen) else f", one of {len(valid)} cells with theory among {len(chosen)}"
    for cell in valid:
        ratio, mcse, degrees = estimates.combine({cell: 1.0 / theory.values[cell]})
        error = float(np.hypot(mcse, ratio * theory.errors[cell] / theory.values[cell]))
        text = f"{claim.measure} / {claim.source}{at(estimates.coordinates[cell], factors)}{share}"
        yield Comparison(text, ratio, error, 1 - claim.margin, 1 + claim.margin, 1.0, degrees)


def strata(
    estimates: Estimates, chosen: list[int], factors: tuple[str, ...], within: tuple[str, ...]
) -> Iterator[list[int]]:
    """Yield the cells of each combination of factors other than those ``within``, in the order of the first of them."""
    for cells in by_levels(estimates.coordinates, (name for name in factors if name not in within), chosen):
        yield sorted(cells, key=lambda cell: float(estimates.coordinates[cell][within[0]]))


def groups_by(factors: tuple[str, ...], estimates: Estimates, chosen: list[int]) -> Iterator[list[int]]:
    """Yield the chosen cells with each combination of levels of some factors; all of them without any."""
    yield from by_levels(estimates.coordinates, factors, chosen)


def nothing_to_compare(estimates: Estimates, cells: list[int], factors: tuple[str, ...]) -> Comparison:
    """A comparison that decides nothing: a single cell on its line must not pass for support."""
    text = f"a single cell{at(estimates.coordinates[cells[0]], factors)}"
    return Comparison(text, np.nan, np.nan, np.nan, np.nan, np.nan, 1)


def steps(claim: Monotone, estimates: Estimates, chosen: list[int], factors: tuple[str, ...]) -> Iterator[Comparison]:
    """Yield the step of the measure between every two neighbours along x, other factors fixed."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    for cells in strata(estimates, chosen, factors, (claim.x,)):
        if len(cells) < 2:
            yield nothing_to_compare(estimates, cells, factors)
        for left, right in itertools.pairwise(cells):
            step, mcse, degrees = estimates.combine({right: sign, left: -sign})
            start, stop = (estimates.coordinates[cell][claim.x] for cell in (left, right))
            place = at(estimates.coordinates[left], [name for name in factors if name != claim.x])
            text = f"{claim.direction.removesuffix('ing')}e of {claim.measure}, {claim.x} {start:g} → {stop:g}{place}"
            yield Comparison(text, step, mcse, 0.0, np.inf, 0.0, degrees)


def slopes(claim: Slope, estimates: Estimates, chosen: list[int], factors: tuple[str, ...]) -> Iterator[Comparison]:
    """Least-squares slope; on a logarithmic scale of y by the delta method."""
    value = claimed(claim.value)
    for cells in strata(estimates, chosen, factors, (claim.x,)):
        if len(cells) < 2:
            yield nothing_to_compare(estimates, cells, factors)
            continue
        x = np.array([estimates.coordinates[cell][claim.x] for cell in cells], float)
        x = np.log(x) if claim.scale != "linear" else x
        leverage = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        y = estimates.values[cells]
        derivative = 1.0 / y if claim.scale == "log_log" else np.ones_like(y)
        _, mcse, degrees = estimates.combine(dict(zip(cells, leverage * derivative, strict=True)))
        slope = float(leverage @ (np.log(y) if claim.scale == "log_log" else y))
        place = at(estimates.coordinates[cells[0]], [name for name in factors if name != claim.x])
        text = f"{claim.scale.replace('_', '-')} slope of {claim.measure} in {claim.x}{place}"
        yield Comparison(text, slope, mcse, value - claim.margin, value + claim.margin, value, degrees)


def differences(
    claim: Equals | LargerThan, estimates: Estimates, chosen: list[int], factors: tuple[str, ...]
) -> Iterator[Comparison]:
    """Yield the measure in each cell, or its difference or ratio to the cell to compare with (delta method)."""
    stated = claimed(claim.value)
    bounds = (stated, np.inf) if isinstance(claim, LargerThan) else (
        stated - claim.margin, stated + claim.margin,
    )  # fmt: skip
    for cell in chosen:
        coordinates = estimates.coordinates[cell]
        terms, text = {cell: 1.0}, f"{claim.index or claim.measure}{at(coordinates, factors)}"
        if claim.versus is not None:
            wanted = {name: level(coordinates, name) for name in factors} | claim.versus
            partner = next((i for i, c in enumerate(estimates.coordinates) if selected(c, wanted)), cell)
            if partner == cell:  # the cell to compare with, selected with the others; or none with equal factors
                continue
            terms, other = _comparing(claim.compared, estimates.values, cell, partner)
            text += other + at(claim.versus, tuple(claim.versus)).removeprefix(" at")
        value, mcse, degrees = estimates.combine(terms)
        if claim.versus is not None and claim.compared == "ratio":
            value = float(estimates.values[cell] / estimates.values[partner])
        yield Comparison(text, value, mcse, *bounds, stated, degrees)


def _comparing(compared: str, values: np.ndarray, cell: int, partner: int) -> tuple[dict[int, float], str]:
    """Factors of two cells in their difference, or in the linear part of their ratio; and the word for it."""
    if compared == "difference":
        return {cell: 1.0, partner: -1.0}, " minus"
    return {cell: 1.0 / values[partner], partner: -values[cell] / values[partner] ** 2}, " over"


def at(coordinates: dict[str, Any], factors: tuple[str, ...] | list[str]) -> str:
    """Return the levels of some factors in a cell as text; empty without factors."""
    named = ", ".join(f"{name} = {_level_text(level(coordinates, name))}" for name in factors)
    return f" at {named}" if named else ""


def _level_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(label(tuple(value) if isinstance(value, list) else value))
