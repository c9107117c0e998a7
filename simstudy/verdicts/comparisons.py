"""From a claim to comparisons: estimates with their Monte Carlo error and the interval in which the claim puts them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.design.claims import LEVEL, AgreesWithTheory, Equals, LargerThan, Monotone, Printed, Slope
from simstudy.design.settings.cell import by_levels, label, level, selected
from simstudy.verdicts.claimed import claimed
from simstudy.verdicts.estimates import Estimates
from simstudy.verdicts.evidence import Contrast, doubt, interval, p_above, p_below
from simstudy.verdicts.logic import NOTHING, Evidence, every, together


class Predictions(NamedTuple):
    """Values of one measure by theory, (cell,), with bounds of their numerical errors: 0 for a closed form."""

    values: np.ndarray
    errors: np.ndarray


class Selected(NamedTuple):
    """What a claim speaks of.

    Attributes
    ----------
    estimates
        The measure in all cells of the grid.
    chosen
        The cells that the claim selects.
    factors
        Factors of the grid.
    theory
        What theory says of the measure in these cells, for claims that compare with it.
    diversity
        The diversity index in these cells, for claims that compare with one.
    level
        At which the claim is judged: statistics of optima divide it between two questions.
    """

    estimates: Estimates
    chosen: list[int]
    factors: tuple[str, ...]
    theory: Predictions | None = None
    diversity: Estimates | None = None
    level: float = LEVEL


class OrderedPairs(NamedTuple):
    """Pairs of cells that an index orders, in arrays (pair,).

    Attributes
    ----------
    first, second
        Cells with the smaller and the larger index.
    estimate, mcse
        Of the measure of the second minus that of the first.
    against, in_favour
        p-values of each pair alone: against the order claimed and for it.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    estimate: NDArray[np.float64]
    mcse: NDArray[np.float64]
    against: NDArray[np.float64]
    in_favour: NDArray[np.float64]


class Comparison(NamedTuple):
    """An estimate, the interval in which the claim puts it, and the evidence on that.

    Attributes
    ----------
    statistic
        What is estimated, in words.
    estimate, mcse
        The error is NaN if the statistic is no smooth function of estimates; over the population of query points and
        heads, where there is one.
    lower, upper, claimed
        The interval claimed, and the value or bound that it was made of.
    evidence
        On the truth being in the interval.
    confidence
        From a level to the bounds beyond which the truth lies with less probability on each side, at all looks.
    cells
        What it is computed from.
    doubt
        Why there can be no verdict; empty if there can.
    parts
        Comparisons that the evidence of this one comes from, if it is not its own.
    given
        Error given the points and heads that were drawn.
    ordered
        Pairs of cells that it comes from, if it is on an order.
    """

    statistic: str
    estimate: float
    mcse: float
    lower: float
    upper: float
    claimed: float
    evidence: Evidence
    confidence: Callable[[float], tuple[float, float]]
    cells: tuple[int, ...] = ()
    doubt: str = ""
    parts: tuple[Comparison, ...] = ()
    given: float = np.nan
    ordered: OrderedPairs | None = None


def inside(
    statistic: str, contrast: Contrast, bounds: tuple[float, float], stated: float, cells: tuple[int, ...] = ()
) -> Comparison:
    """Return the comparison of a contrast with the interval in which a claim puts it; infinite bounds are none."""
    lower, upper = bounds
    ends = [Evidence(p_below(contrast, lower), p_above(contrast, lower))] if np.isfinite(lower) else []
    ends += [Evidence(p_above(contrast, upper), p_below(contrast, upper))] if np.isfinite(upper) else []
    value, mcse = float(contrast.value), float(contrast.mcse)
    return Comparison(
        statistic, value, mcse, lower, upper, stated, every(together(ends)), partial(interval, contrast), cells,
        doubt(contrast), given=float(contrast.given),
    )  # fmt: skip


def undecided(statistic: str, why: str) -> Comparison:
    """Return a comparison that no replicate decides: a single cell on its line must not pass for support."""
    nothing = (np.nan, np.nan, np.nan, np.nan, np.nan)
    return Comparison(statistic, *nothing, NOTHING, lambda _: (-np.inf, np.inf), doubt=why)


def agreement(claim: AgreesWithTheory, of: Selected) -> Iterator[Comparison]:
    """Ratios of estimate to theory; a numerical error of the theory counts as one more standard error."""
    theory, estimates = of.theory, of.estimates
    assert theory is not None  # `judge` gives it to every claim that names a source
    valid = [cell for cell in of.chosen if np.isfinite(theory.values[cell]) and theory.values[cell] != 0.0]
    share = "" if len(valid) == len(of.chosen) else f", one of {len(valid)} cells with theory among {len(of.chosen)}"
    for cell in valid:
        ratio = estimates.combine({cell: 1.0 / theory.values[cell]})
        numerical = ratio.value * theory.errors[cell] / theory.values[cell]
        errors = {"mcse": np.hypot(ratio.mcse, numerical), "given": np.hypot(ratio.given, numerical)}
        text = f"{claim.measure} / {claim.source}{at(estimates.coordinates[cell], of.factors)}{share}"
        yield inside(text, ratio._replace(**errors), (1 - claim.margin, 1 + claim.margin), 1.0, (cell,))


def strata(
    estimates: Estimates, chosen: list[int], factors: tuple[str, ...], within: tuple[str, ...]
) -> Iterator[list[int]]:
    """Yield the cells of each combination of factors other than those ``within``, in the order of the first of them."""
    for cells in by_levels(estimates.coordinates, (name for name in factors if name not in within), chosen):
        yield sorted(cells, key=lambda cell: float(estimates.coordinates[cell][within[0]]))


def groups_by(factors: tuple[str, ...], estimates: Estimates, chosen: list[int]) -> Iterator[list[int]]:
    """Yield the chosen cells with each combination of levels of some factors; all of them without any."""
    yield from by_levels(estimates.coordinates, factors, chosen)


def steps(claim: Monotone, of: Selected) -> Iterator[Comparison]:
    """Yield the step of the measure between every two neighbours along x, other factors fixed."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    for cells in strata(of.estimates, of.chosen, of.factors, (claim.x,)):
        if len(cells) < 2:
            yield undecided(claim.measure + place(of, cells[0]), "a single cell")
        for left, right in itertools.pairwise(cells):
            step = of.estimates.combine({right: sign, left: -sign})
            start, stop = (of.estimates.coordinates[cell][claim.x] for cell in (left, right))
            text = f"{claim.direction.removesuffix('ing')}e of {claim.measure}, {claim.x} {start:g} → {stop:g}"
            yield inside(text + place(of, left, claim.x), step, (0.0, np.inf), 0.0, (left, right))


def slopes(claim: Slope, of: Selected) -> Iterator[Comparison]:
    """Least-squares slope; on a logarithmic scale of y by the delta method."""
    value = claimed(claim.value)
    for cells in strata(of.estimates, of.chosen, of.factors, (claim.x,)):
        if len(cells) < 2:
            yield undecided(claim.measure + place(of, cells[0]), "a single cell")
            continue
        x = np.array([of.estimates.coordinates[cell][claim.x] for cell in cells], float)
        x = np.log(x) if claim.scale != "linear" else x
        leverage = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        y = of.estimates.values[cells]
        derivative = 1.0 / y if claim.scale == "log_log" else np.ones_like(y)
        slope = of.estimates.combine(dict(zip(cells, leverage * derivative, strict=True)))
        slope = slope._replace(value=float(leverage @ (np.log(y) if claim.scale == "log_log" else y)))
        text = f"{claim.scale.replace('_', '-')} slope of {claim.measure} in {claim.x}{place(of, cells[0], claim.x)}"
        yield inside(text, slope, (value - claim.margin, value + claim.margin), value, tuple(cells))


def differences(claim: Equals | Printed | LargerThan, of: Selected) -> Iterator[Comparison]:
    """Yield the measure in each cell, or its difference or ratio to the cell to compare with (delta method)."""
    stated = claimed(claim.value)
    bounds = (stated, np.inf) if isinstance(claim, LargerThan) else (
        stated - claim.margin, stated + claim.margin,
    )  # fmt: skip
    estimates = of.estimates
    for cell in of.chosen:
        coordinates = estimates.coordinates[cell]
        contrast, text = estimates.combine({cell: 1.0}), f"{claim.index or claim.measure}{at(coordinates, of.factors)}"
        cells: tuple[int, ...] = (cell,)
        if claim.versus is not None:
            wanted = {name: level(coordinates, name) for name in of.factors} | claim.versus
            partner = next((i for i, c in enumerate(estimates.coordinates) if selected(c, wanted)), cell)
            if partner == cell:  # the cell to compare with, selected with the others; or none with equal factors
                continue
            contrast, other = paired(estimates, cell, partner, claim.compared)
            text += other + at(claim.versus, tuple(claim.versus)).removeprefix(" at")
            cells = (cell, partner)
        yield inside(text, contrast, bounds, stated, cells)


def paired(
    estimates: Estimates, cell: int, partner: int, compared: Literal["difference", "ratio"]
) -> tuple[Contrast, str]:
    """Return one cell against another, by the delta method if it is a ratio, and the word for it."""
    if compared == "difference":
        return estimates.combine({cell: 1.0, partner: -1.0}), " minus"
    one, other = estimates.values[[cell, partner]]
    ratio = estimates.combine({cell: 1.0 / other, partner: -one / other**2})
    return ratio._replace(value=one / other), " over"


def place(of: Selected, cell: int, *without: str) -> str:
    """Return the levels of the other factors in a cell as text."""
    return at(of.estimates.coordinates[cell], [name for name in of.factors if name not in without])


def at(coordinates: dict[str, Any], factors: tuple[str, ...] | list[str]) -> str:
    """Return the levels of some factors in a cell as text; empty without factors."""
    named = ", ".join(f"{name} = {_level_text(level(coordinates, name))}" for name in factors)
    return f" at {named}" if named else ""


def _level_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(label(tuple(value) if isinstance(value, list) else value))
