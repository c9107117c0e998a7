"""Where one measure stops to exceed another along a factor, and how sure that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simstudy.design.claims import Crossing
from simstudy.verdicts.comparisons import Bounds, Comparison, Selected, at, inside, undecided
from simstudy.verdicts.evidence import Contrast
from simstudy.verdicts.logic import Evidence, every, some, together

Array = NDArray[np.float64]


def crossings(claim: Crossing, of: Selected) -> Iterator[Comparison]:
    """Yield, for each combination of the other factors, the x at which the measure falls below that of ``versus``."""
    for cells in of.groups(claim.x):
        partners = [(cell, of.partner(cell, claim.versus)) for cell in cells]
        pairs = [(cell, partner) for cell, partner in partners if partner is not None]
        if not pairs:
            continue
        text = f"{claim.x} at which {claim.measure}{of.place(pairs[0][0], claim.x)} falls below that"
        text += at(claim.versus, claim.versus)
        if len(pairs) < 2:
            yield undecided(text, "a single pair of cells")
            continue
        line = Line(of, pairs, claim.x, f"excess of {claim.measure}")
        told = claim.value if of.theory is None else line.told(of.theory.values)
        if told is not None:
            yield line.compared(text, told, claim.ratio)


class Line:
    """Differences of paired cells at increasing levels x, linear in ln x between them."""

    def __init__(self, of: Selected, pairs: list[tuple[int, int]], factor: str, what: str) -> None:
        self._of, self._pairs, self._what = of, pairs, f"{what} at {factor}"
        self._x = np.array([float(of.estimates.conditions[own][factor]) for own, _ in pairs])

    def _differences(self, values: Array) -> Array:
        return np.array([values[own] - values[other] for own, other in self._pairs])

    def told(self, theory: Array) -> float | None:
        """Return where theory puts the crossing; nowhere if that is no place inside, or beside a cell without it."""
        place = crossing(self._x, self._differences(theory))
        return place if self._x[0] < place < self._x[-1] else None  # not if place is NaN

    def compared(self, text: str, told: float, ratio: float) -> Comparison:
        """Return how the crossing compares with one that is told, up to a ratio.

        It is inside if all differences up to the lower end are positive, and one of those up to the upper end is not.
        """
        x, lower, upper = self._x, told / ratio, told * ratio
        # Beyond the levels there is nothing to show: a crossing that is not inside counts as at their end.
        left = [self._positive(place) for place in [*x[x < lower], lower] if lower > x[0]]
        middle = [self._positive(place) for place in [*x[(x > lower) & (x < upper)], upper] if upper < x[-1]]
        if not (parts := (*left, *middle)):
            return undecided(text, "all levels lie within the ratio")
        beyond, claims = {}, []
        if left:
            beyond[lower] = every(together([part.evidence for part in left]))
            claims.append(beyond[lower])
        if middle:
            claims.append(some(together([part.evidence.opposite for part in middle])))
            beyond[upper] = claims[-1].opposite
        found, mcse, given = self._found()
        return Comparison(
            text, found, mcse, lower, upper, told, every(together(claims)), partial(self._confidence, beyond),
            tuple(cell for pair in self._pairs for cell in pair), next((p.doubt for p in parts if p.doubt), ""),
            parts, given,
        )  # fmt: skip

    def _positive(self, place: float) -> Comparison:
        after = int(np.searchsorted(self._x, place))
        weights = {after: 1.0}
        if self._x[after] != place:
            share = np.log(place / self._x[after - 1]) / np.log(self._x[after] / self._x[after - 1])
            weights = {after - 1: 1.0 - share, after: share}
        return inside(f"{self._what} = {place:g}", self._combined(weights), (0.0, np.inf), 0.0)

    def _combined(self, weights: dict[int, float]) -> Contrast:
        terms: dict[int, float] = defaultdict(float)
        for position, weight in weights.items():
            own, other = self._pairs[position]
            terms[own] += weight
            terms[other] -= weight
        return self._of.estimates.combine(terms)

    def _found(self) -> tuple[float, float, float]:
        """Where the differences cross as estimated, its error by the delta method, and that given what was drawn."""
        x, difference = self._x, self._differences(self._of.estimates.values)
        found = crossing(x, difference)
        after = int(np.searchsorted(x, found))
        if not 0 < after < len(x) or not difference[after] <= 0.0:
            return found, np.nan, np.nan
        start, stop = difference[after - 1 : after + 1]
        width = np.log(x[after] / x[after - 1]) / (start - stop) ** 2
        linear = self._combined({after - 1: -stop * width, after: start * width})
        return found, float(found * linear.mcse), float(found * linear.given)

    def _confidence(self, beyond: Mapping[float, Evidence], level: float) -> Bounds:
        """Levels between which the crossing lies, the claimed ends among them."""
        positive = [self._positive(float(place)).evidence for place in self._x]
        falls = np.array([part.against for part in positive]) * len(positive) < level
        upper = float(self._x[np.argmax(falls)]) if falls.any() else np.inf
        sure = int(np.cumprod([part.in_favour < level for part in positive]).sum())
        lower = float(self._x[sure - 1]) if sure else -np.inf
        lower = max([lower, *(end for end, evidence in beyond.items() if evidence.in_favour < level)])
        return lower, min([upper, *(end for end, evidence in beyond.items() if evidence.against < level)])


def crossing(x: Array, difference: Array) -> float:
    """Return where differences (x,) first fall to 0, linear in ln x between levels x, or an end of x."""
    below = difference <= 0.0
    after = int(np.argmax(below)) if below.any() else len(x) - 1
    if not (after and below[after]):
        return float(x[after])
    start, stop = difference[after - 1 : after + 1]
    left, right = np.log(x)[after - 1 : after + 1]
    return float(np.exp(left + start / (start - stop) * (right - left)))
