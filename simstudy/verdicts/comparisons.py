"""What claims come down to: estimates with their error, the interval in which a claim puts the truth, the evidence.

And the kinds of claims that compare smooth functions of estimates: one function each, which yields comparisons.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy import theory
from simstudy.design.claims import LEVEL, AgreesWithTheory, Equals, LargerThan, Monotone, Printed, Slope
from simstudy.design.formulas import Formula
from simstudy.design.settings.ensembles import FibonacciCombination, GeometricCombination, weights_of
from simstudy.design.settings.levels import by_levels, label, level, selected
from simstudy.verdicts.estimates import Estimates
from simstudy.verdicts.evidence import NOTHING, Contrast, Evidence, beside, doubt, every, evidence_between, interval

Bounds = tuple[float, float]


class Predictions(NamedTuple):
    """Values of one measure by theory, (condition,), with bounds of their numerical errors: 0 for a closed form."""

    values: np.ndarray
    errors: np.ndarray


class Selected(NamedTuple):
    """What a claim speaks of: all that the engine knows."""

    estimates: Estimates  # The measure under all conditions of the grid, which are called its cells
    chosen: list[int]  # The cells that the claim selects
    factors: tuple[str, ...]  # Factors of the grid
    theory: Predictions | None = None  # What theory says of the measure in these cells, for claims that compare with it
    diversity: Any = None  # Estimates of the diversity index in these cells, for claims that compare with one
    level: float = LEVEL  # At which the claim is judged: statistics of optima divide it between two questions
    # Cells whose estimates have no Monte Carlo error, and why: no verdict rests on them
    doubtful: Mapping[int, str] = MappingProxyType({})

    def groups(self, *without: str) -> Iterator[list[int]]:
        """Yield the chosen cells of each combination of the other factors, in the order of the first of these."""
        names = (name for name in self.factors if name not in without)
        for cells in by_levels(self.estimates.conditions, names, self.chosen):
            yield sorted(cells, key=lambda cell: float(self.estimates.conditions[cell][without[0]]))

    def place(self, cell: int, *without: str) -> str:
        """Return the levels of the other factors in a cell as text."""
        return at(self.estimates.conditions[cell], [name for name in self.factors if name not in without])

    def partner(self, cell: int, versus: Mapping[str, Any]) -> int | None:
        """Return the cell to compare with, other factors equal; None if that is the cell itself, or is not there."""
        conditions = self.estimates.conditions
        wanted = {name: level(conditions[cell], name) for name in self.factors} | dict(versus)
        found = next((i for i, each in enumerate(conditions) if selected(each, wanted)), cell)
        return None if found == cell else found


class OrderedPairs(NamedTuple):
    """Pairs of cells, (pair,), that an index orders: the second has the larger index."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    estimate: NDArray[np.float64]
    mcse: NDArray[np.float64]
    evidence: Evidence


class Comparison(NamedTuple):
    """An estimate, the interval in which the claim puts it, and the evidence on that."""

    statistic: str  # What is estimated, in words
    # estimate, mcse: The error is NaN if the statistic is no smooth function of estimates; over the population of
    # query points and heads, where there is one
    estimate: float
    mcse: float
    # lower, upper, claimed: The interval claimed, and the value or bound that it was made of
    lower: float
    upper: float
    claimed: float
    evidence: Evidence  # On the truth being in the interval
    # From a level to the bounds beyond which the truth lies with less probability on each side, at all looks
    confidence: Callable[[float], Bounds]
    cells: tuple[int, ...] = ()  # What it is computed from
    doubt: str = ""  # Why there can be no verdict; empty if there can
    parts: tuple[Comparison, ...] = ()  # Comparisons that the evidence of this one comes from, if it is not its own
    given: float = np.nan  # Error given the points and heads that were drawn
    ordered: OrderedPairs | None = None  # Pairs of cells that it comes from, if it is on an order


def inside(statistic: str, contrast: Contrast, bounds: Bounds, stated: float, cells: Iterable[int] = ()) -> Comparison:
    """Return the comparison of a contrast with the interval in which a claim puts it; infinite bounds are none."""
    value, mcse, given = float(contrast.value), float(contrast.mcse), float(contrast.given)
    return Comparison(
        statistic,
        value,
        mcse,
        *bounds,
        stated,
        every(evidence_between(contrast, bounds)),
        partial(interval, contrast),
        tuple(cells),
        doubt(contrast),
        given=given,
    )


def undecided(statistic: str, why: str) -> Comparison:
    """Return a comparison that no replicate decides: a single cell on its line must not pass for support."""
    nothing = (np.nan, np.nan, np.nan, np.nan, np.nan)
    return Comparison(statistic, *nothing, NOTHING, lambda _: (-np.inf, np.inf), doubt=why)


def agreement(claim: AgreesWithTheory, of: Selected) -> Iterator[Comparison]:
    """Ratios of estimate to theory; a numerical error of the theory counts as one more standard error."""
    theory = of.theory
    assert theory is not None  # every claim that names a source has it
    valid = [cell for cell in of.chosen if np.isfinite(theory.values[cell]) and theory.values[cell] != 0.0]
    share = "" if len(valid) == len(of.chosen) else f", one of {len(valid)} cells with theory among {len(of.chosen)}"
    for cell in valid:
        ratio = of.estimates.combine({cell: 1.0 / theory.values[cell]})
        numerical = ratio.value * theory.errors[cell] / theory.values[cell]
        errors = {"mcse": np.hypot(ratio.mcse, numerical), "given": np.hypot(ratio.given, numerical)}
        text = f"{claim.measure} / {claim.source}{of.place(cell)}{share}"
        yield inside(text, ratio._replace(**errors), (1 - claim.margin, 1 + claim.margin), 1.0, (cell,))


def steps(claim: Monotone, of: Selected) -> Iterator[Comparison]:
    """Yield the step of the measure between every two neighbours along x, other factors fixed."""
    bounds = (0.0, np.inf) if claim.direction == "increasing" else (-np.inf, 0.0)
    for cells in of.groups(claim.x):
        if len(cells) < 2:
            yield undecided(claim.measure + of.place(cells[0]), "a single cell")
        for left, right in itertools.pairwise(cells):
            step = of.estimates.combine({right: 1.0, left: -1.0})
            start, stop = (of.estimates.conditions[cell][claim.x] for cell in (left, right))
            text = f"change of {claim.measure}, {claim.x} {start:g} → {stop:g}{of.place(left, claim.x)}"
            yield inside(text, step, bounds, 0.0, (left, right))


def slopes(claim: Slope, of: Selected) -> Iterator[Comparison]:
    """Least-squares slope; on a logarithmic scale of y by the delta method."""
    return _slopes(claim, claim.x, of)


def _slopes(claim: Slope | Printed, along: str, of: Selected) -> Iterator[Comparison]:
    log_log = claim.scale == "log_log"
    for cells in of.groups(along):
        if len(cells) < 2:
            yield undecided(claim.measure + of.place(cells[0]), "a single cell")
            continue
        x = np.array([of.estimates.conditions[cell][along] for cell in cells], float)
        leverage = leverages(x if claim.scale == "linear" else np.log(x))
        y = of.estimates.values[cells]
        slope = of.estimates.combine(dict(zip(cells, leverage * (1.0 / y if log_log else 1.0), strict=True)))
        slope = slope._replace(value=float(leverage @ (np.log(y) if log_log else y)))
        text = f"{claim.scale.replace('_', '-')} slope of {claim.measure} in {along}{of.place(cells[0], along)}"
        yield _as_stated(claim, text, slope, cells)


def leverages(x: np.ndarray) -> np.ndarray:
    """Return the factors of values at x whose sum of products is the least-squares slope."""
    return np.asarray((x - x.mean()) / ((x - x.mean()) ** 2).sum())


def differences(claim: Equals | Printed | LargerThan, of: Selected) -> Iterator[Comparison]:
    """Yield the measure in each cell, or its difference or ratio to the cell to compare with (delta method)."""
    if isinstance(claim, Printed) and claim.x is not None:
        yield from _slopes(claim, claim.x, of)
        return
    for cell in of.chosen:
        text = f"{claim.index or claim.measure}{of.place(cell)}"
        if claim.versus is None:
            yield _as_stated(claim, text, of.estimates.combine({cell: 1.0}), (cell,))
        elif (partner := of.partner(cell, claim.versus)) is not None:
            contrast, other = paired(of.estimates, cell, partner, claim.compared)
            text += other + at(claim.versus, claim.versus).removeprefix(" at")
            yield _as_stated(claim, text, contrast, (cell, partner))


def _as_stated(
    claim: Equals | Printed | LargerThan | Slope, text: str, contrast: Contrast, cells: Iterable[int]
) -> Comparison:
    """Return the comparison with what exceeds the value that a claim states, or is within its margin of it."""
    stated = claimed(claim.value)
    if isinstance(claim, LargerThan):
        return inside(text, contrast, (stated, np.inf), stated, cells)
    if not isinstance(claim, Printed):
        return inside(text, contrast, (stated - claim.margin, stated + claim.margin), stated, cells)
    contrast, reach = beside(contrast, claim.printed_mcse), claim.margin + claim.equivalent
    found = inside(text, contrast, (stated - reach, stated + reach), stated, cells)
    same = every(evidence_between(contrast, (stated - claim.margin, stated + claim.margin)))
    return found._replace(evidence=Evidence(same.against, found.evidence.in_favour))


def paired(
    estimates: Estimates, cell: int, partner: int, compared: Literal["difference", "ratio"]
) -> tuple[Contrast, str]:
    """Return one cell against another, by the delta method if it is a ratio, and the word for it."""
    if compared == "difference":
        return estimates.combine({cell: 1.0, partner: -1.0}), " minus"
    one, other = estimates.values[[cell, partner]]
    ratio = estimates.combine({cell: 1.0 / other, partner: -one / other**2})
    return ratio._replace(value=one / other), " over"


def at(levels: Mapping[str, Any], factors: Iterable[str]) -> str:
    """Return the levels of some factors in a cell as text; empty without factors."""
    named = ", ".join(f"{name} = {_level_text(level(dict(levels), name))}" for name in factors)
    return f" at {named}" if named else ""


def _level_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(label(tuple(value) if isinstance(value, list) else value))


def _query_averaged_heads(n_heads: int, head_dim: int, bandwidth: float) -> float:
    # Covariances of orthogonal heads average to 1 over n, variances to those of aligned heads.
    covariance = 1 / float(theory.averaged_noise_ratio(np.zeros(head_dim), bandwidth))
    return n_heads / (1 + (n_heads - 1) * covariance)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "tuned_risk_ratio": theory.tuned_risk_ratio,
    "correlation_floor": lambda head_dim, bandwidth: (1 - (1 / (1 + bandwidth**2)) ** 2) ** (head_dim / 2),
    "dot_product_floor": lambda length: theory.dot_product_correlation([length, 0.0], [0.0, length], np.eye(2)),
    "query_averaged_heads": _query_averaged_heads,
    "limiting_slope": theory.limiting_slope,
    "fibonacci_learners": lambda n_heads: theory.effective_learners(
        np.array(weights_of(FibonacciCombination(kind="fibonacci"), n_heads))
    ),
    "geometric_learners": lambda n_heads, ratio: theory.effective_learners(
        np.array(weights_of(GeometricCombination(kind="geometric", ratio=ratio), n_heads))
    ),
}
"""What evaluates each formula; its parameters are the fields of the record."""


def claimed(value: float | str | Formula) -> float:
    """Return the number that a claim states or quotes, or that its formula gives."""
    if isinstance(value, (float, str)):
        return float(value)
    return float(FUNCTIONS[value.kind](**value.model_dump(exclude={"kind"})))
