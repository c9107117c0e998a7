"""Comparisons: an estimate with its error, the interval that a claim states for the true value, and the evidence.

One function for each kind of claim on smooth functions of estimates yields the comparisons of such a claim.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from simstudy.design.answerable import by_levels, level, partners
from simstudy.design.document import LEVEL, AgreesWithTheory, Equals, LargerThan, Monotone, Slope, WithinMargin
from simstudy.design.settings.cell import label
from simstudy.verdicts.estimates import Estimates
from simstudy.verdicts.evidence import NOTHING, Contrast, Evidence, all_hold, evidence_between, interval, why_no_verdict

Bounds = tuple[float, float]


class Predictions(NamedTuple):
    """Theoretical values of one measure and bounds of their numerical errors, (condition,); 0 for closed forms."""

    values: np.ndarray
    errors: np.ndarray


class Selected(NamedTuple):
    """Cells that a claim selects, with the estimates and theory that it needs."""

    estimates: Estimates  # Of the measure in all cells of the grid
    chosen: list[int]  # The cells that the claim selects
    factors: tuple[str, ...]  # Factors of the grid
    theory: Predictions | None = None  # Of the measure, for claims that compare with theory
    diversity: Any = None  # Estimates of the diversity index in the cells, for claims on an index
    drawn: tuple[str, ...] = ()  # Factors whose levels were drawn from the domain of the grid
    unnamed: tuple[str, ...] = ()  # Factors that texts leave out, as their levels are averaged over
    level: float = LEVEL  # Level of the tests; a slope of optima divides it between two

    def groups(self, *without: str) -> Iterator[list[int]]:
        """Yield the chosen cells of each combination of the other factors, ordered by the first of ``without``."""
        names = (name for name in self.factors if name not in without)
        for cells in by_levels(self.estimates.conditions, names, self.chosen):
            yield sorted(cells, key=lambda cell: float(self.estimates.conditions[cell][without[0]]))

    def place(self, cell: int, *without: str) -> str:
        """Return as text the levels of a cell in all factors but those in ``without``."""
        unnamed = {*without, *self.unnamed}
        return at(self.estimates.conditions[cell], [name for name in self.factors if name not in unnamed])


class Comparison(NamedTuple):
    """An estimate, the interval that the claim states for the true value, and the evidence on it."""

    statistic: str  # What is estimated, in words
    estimate: float
    mcse: float  # NaN if the statistic is no smooth function of estimates
    # lower, upper, claimed: The claimed interval, and the value or bound from which it follows
    lower: float
    upper: float
    claimed: float
    evidence: Evidence  # On the true value being in the interval
    # Confidence bounds that hold at all looks, given the level of each side
    confidence: Callable[[float], Bounds]
    cells: tuple[int, ...] = ()  # Cells that the estimate is computed from
    reason: str = ""  # Why there can be no verdict; empty if one is possible
    widening: float = 1.0  # Printed error divided by the standard error


def inside(statistic: str, contrast: Contrast, bounds: Bounds, stated: float, cells: Iterable[int] = ()) -> Comparison:
    """Return the comparison of a contrast with the interval that a claim states; an infinite end is no bound."""
    evidence, reach = all_hold(evidence_between(contrast, bounds)), partial(interval, contrast)
    value, mcse = float(contrast.value), float(contrast.mcse + contrast.few)
    why, wider = why_no_verdict(contrast), float(contrast.widening)
    return Comparison(statistic, value, mcse, *bounds, stated, evidence, reach, tuple(cells), why, wider)


def undecided(statistic: str, why: str) -> Comparison:
    """Return a comparison without evidence, so that a claim with a single cell on a line is not supported."""
    nothing = np.nan, np.nan, np.nan, np.nan, np.nan
    return Comparison(statistic, *nothing, NOTHING, lambda _: (-np.inf, np.inf), reason=why)


def agreement(claim: AgreesWithTheory, of: Selected) -> Iterator[Comparison]:
    """Yield the ratio of estimate to theory in each cell; numerical errors of theory are added in quadrature."""
    theory = of.theory
    assert theory is not None  # every claim that names a source has a theory
    valid = [cell for cell in of.chosen if np.isfinite(theory.values[cell]) and theory.values[cell] != 0.0]
    share = "" if len(valid) == len(of.chosen) else f", one of {len(valid)} cells with theory among {len(of.chosen)}"
    for cell in valid:
        ratio = of.estimates.combine({cell: 1.0 / theory.values[cell]})
        ratio = ratio._replace(mcse=np.hypot(ratio.mcse, ratio.value * theory.errors[cell] / theory.values[cell]))
        text = f"{claim.measure} / {claim.source}{of.place(cell)}{share}"
        yield inside(text, ratio, (1 - claim.margin, 1 + claim.margin), 1.0, (cell,))


def steps(claim: Monotone, of: Selected) -> Iterator[Comparison]:
    """Yield the difference of the measure between each two neighbouring levels of x, other factors fixed."""
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
    """Yield the least-squares slope in x, other factors fixed; on a logarithmic scale of y by the delta method."""
    log_log = claim.scale == "log_log"
    for cells in of.groups(claim.x):
        if len(cells) < 2:
            yield undecided(claim.measure + of.place(cells[0]), "a single cell")
            continue
        x = np.array([of.estimates.conditions[cell][claim.x] for cell in cells], float)
        leverage = leverages(x if claim.scale == "linear" else np.log(x))
        y = of.estimates.values[cells]
        with np.errstate(divide="ignore", invalid="ignore"):  # some mean may have no logarithm
            slope = of.estimates.combine(dict(zip(cells, leverage * (1.0 / y if log_log else 1.0), strict=True)))
            slope = slope.moved(float(leverage @ (np.log(y) if log_log else y)))
        text = f"{claim.scale.replace('_', '-')} slope of {claim.measure} in {claim.x}{of.place(cells[0], claim.x)}"
        yield inside(text, slope, within(claim), claim.value, cells)


def leverages(x: np.ndarray) -> np.ndarray:
    """Return weights of values at x, whose weighted sum is the least-squares slope."""
    return np.asarray((x - x.mean()) / ((x - x.mean()) ** 2).sum())


def within(claim: WithinMargin) -> Bounds:
    """Return the interval of the claimed value ± its margin."""
    return claim.value - claim.margin, claim.value + claim.margin


def differences(claim: Equals | LargerThan, of: Selected) -> Iterator[Comparison]:
    """Yield the measure in each cell, or its difference from or ratio to the measure in a reference cell."""
    bounds = (claim.value, np.inf) if isinstance(claim, LargerThan) else within(claim)
    other = partners(of.estimates.conditions, of.factors, claim.versus or {}, of.chosen)
    for cell in of.chosen:
        text = f"{claim.index or claim.measure}{of.place(cell)}"
        if claim.versus is None:
            yield inside(text, of.estimates.combine({cell: 1.0}), bounds, claim.value, (cell,))
        elif (partner := other.get(cell)) is not None:
            contrast, word = paired(of.estimates, cell, partner, claim.compared)
            text += word + at(claim.versus, claim.versus).removeprefix(" at")
            yield inside(text, contrast, bounds, claim.value, (cell, partner))


def paired(
    estimates: Estimates, cell: int, partner: int, compared: Literal["difference", "ratio"]
) -> tuple[Contrast, str]:
    """Return the difference or ratio of two cells, a ratio with its error by the delta method, and a word for it."""
    if compared == "difference":
        return estimates.combine({cell: 1.0, partner: -1.0}), " minus"
    one, other = estimates.values[cell], estimates.values[partner] or np.nan  # there is no ratio to 0
    ratio = estimates.combine({cell: 1.0 / other, partner: -one / other**2})

    def beyond(bound: float) -> Contrast:
        terms = {cell: 1.0, partner: -bound} if np.isfinite(bound) else {partner: -np.sign(bound)}
        return estimates.combine({each: np.sign(other) * factor for each, factor in terms.items()})

    return ratio.moved(one / other)._replace(beyond=beyond), " over"


def at(levels: Mapping[str, Any], factors: Iterable[str]) -> str:
    """Return the levels of these factors as text; empty without factors."""
    values = {name: level(dict(levels), name) for name in factors}
    texts = {name: f"{value:g}" if isinstance(value, float) else label(value) for name, value in values.items()}
    return f" at {', '.join(f'{name} = {text}' for name, text in texts.items())}" if texts else ""
