"""Where one measure stops to exceed another along a factor, and how sure that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simstudy.design.claims import Crossing
from simstudy.design.settings import cell as settings_of
from simstudy.verdicts.comparisons import Comparison, Selected, at, inside, place, strata, undecided
from simstudy.verdicts.evidence import Contrast
from simstudy.verdicts.logic import Evidence, every, some, together

Array = NDArray[np.float64]


def crossings(claim: Crossing, of: Selected) -> Iterator[Comparison]:
    """Yield, for each combination of the other factors, the x at which the measure falls below that of ``versus``."""
    for cells in strata(of.estimates, of.chosen, of.factors, (claim.x,)):
        pairs = [(cell, other) for cell in cells for other in _partners(claim, of, cell)]
        if not pairs:
            continue
        text = f"{claim.x} at which {claim.measure}{place(of, pairs[0][0], claim.x)} falls below that"
        text += at(claim.versus, tuple(claim.versus))
        if len(pairs) < 2:
            yield undecided(text, "a single pair of cells")
            continue
        own, others = [cell for cell, _ in pairs], [other for _, other in pairs]
        x = np.array([float(of.estimates.coordinates[cell][claim.x]) for cell in own])
        told = claim.value if of.theory is None else _told(x, of.theory.values[own] - of.theory.values[others])
        if told is not None:
            yield Line(of, pairs, x, f"excess of {claim.measure} at {claim.x}").compared(text, told, claim.ratio)


class Line:
    """Differences of paired cells at increasing levels x, linear in ln x between them."""

    def __init__(self, of: Selected, pairs: list[tuple[int, int]], x: Array, what: str) -> None:
        self._of, self._pairs, self._x, self._what = of, pairs, x, what
        self._difference = np.array([of.estimates.values[a] - of.estimates.values[b] for a, b in pairs])

    def compared(self, text: str, told: float, ratio: float) -> Comparison:
        """Return how the crossing compares with one that is told, up to a ratio.

        It is inside if all differences up to the lower end are positive, and one of those up to the upper end is not.
        """
        x, lower, upper = self._x, told / ratio, told * ratio
        first, last = bool(lower > x[0]), bool(upper < x[-1])
        cells = [cell for pair in self._pairs for cell in pair]
        if not (first or last):
            return undecided(text, "all levels lie within the ratio")
        # Beyond the levels there is nothing to show: a crossing that is not inside counts as at their end.
        left = [self._positive(place) for place in [*x[x < lower], lower] if first]
        middle = [self._positive(place) for place in [*x[(x > lower) & (x < upper)], upper] if last]
        # Beyond the lower end if all differences up to there are positive, beyond the upper one if the others are.
        beyond = {lower: every(together([part.evidence for part in left]))} if first else {}
        if last:
            beyond[upper] = _opposite(some(together([_opposite(part.evidence) for part in middle])))
        claims = [evidence if end == lower else _opposite(evidence) for end, evidence in beyond.items()]
        doubt = next((part.doubt for part in (*left, *middle) if part.doubt), "")
        found, *errors = self._found()
        return Comparison(
            text, found, errors[0], lower, upper, told, every(together(claims)), partial(self._confidence, beyond),
            tuple(cells), doubt, (*left, *middle), errors[1],
        )  # fmt: skip

    def _positive(self, place: float) -> Comparison:
        """The comparison of the difference at a place with 0."""
        after = int(np.searchsorted(self._x, place))
        weights = {after: 1.0}
        if self._x[after] != place:
            share = np.log(place / self._x[after - 1]) / np.log(self._x[after] / self._x[after - 1])
            weights = {after - 1: 1.0 - share, after: share}
        return inside(f"{self._what} = {place:g}", self._combined(weights), (0.0, np.inf), 0.0)

    def _combined(self, weights: dict[int, float]) -> Contrast:
        """The sum of differences at some levels, weighted."""
        terms: dict[int, float] = defaultdict(float)
        for position, weight in weights.items():
            own, other = self._pairs[position]
            terms[own] += weight
            terms[other] -= weight
        return self._of.estimates.combine(terms)

    def _found(self) -> tuple[float, float, float]:
        """Where the differences cross as estimated, its error by the delta method, and that given what was drawn."""
        found = float(crossing(self._x, self._difference[None])[0])
        after = int(np.searchsorted(self._x, found))
        if not 0 < after < len(self._x) or not self._difference[after] <= 0.0:
            return found, np.nan, np.nan
        start, stop = self._difference[after - 1 : after + 1]
        width = np.log(self._x[after] / self._x[after - 1]) / (start - stop) ** 2
        linear = self._combined({after - 1: -stop * width, after: start * width})
        return found, float(found * linear.mcse), float(found * linear.given)

    def _confidence(self, beyond: Mapping[float, Evidence], level: float) -> tuple[float, float]:
        """Levels between which the crossing lies: differences are positive up to one, and another is not.

        So do the ends that were claimed, by the evidence that decides the claim, on the crossing being beyond them.
        """
        positive = [self._positive(float(place)).evidence for place in self._x]
        falls = np.array([part.against for part in positive]) * len(positive) < level
        upper = float(self._x[np.argmax(falls)]) if falls.any() else np.inf
        sure = int(np.cumprod([part.in_favour < level for part in positive]).sum())
        lower = float(self._x[sure - 1]) if sure else -np.inf
        lower = max([lower, *(end for end, evidence in beyond.items() if evidence.in_favour < level)])
        return lower, min([upper, *(end for end, evidence in beyond.items() if evidence.against < level)])


def _opposite(evidence: Evidence) -> Evidence:
    return Evidence(*evidence[::-1])


def _partners(claim: Crossing, of: Selected, cell: int) -> list[int]:
    """The cell to compare with, if there is one: other factors equal."""
    coordinates = of.estimates.coordinates
    wanted = {name: settings_of.level(coordinates[cell], name) for name in of.factors} | claim.versus
    return [i for i, other in enumerate(coordinates) if i != cell and settings_of.selected(other, wanted)][:1]


def _told(x: Array, difference: Array) -> float | None:
    """Where theory puts a crossing; nowhere if that is no place inside, or beside a cell to which it does not apply."""
    place = float(crossing(x, difference[None])[0])
    return place if x[0] < place < x[-1] else None  # not if place is NaN


def crossing(x: Array, difference: Array) -> Array:
    """Return where differences first fall to 0, linear in ln x between levels; an end of x if they do not cross inside.

    Parameters
    ----------
    x : (x,) array
        Increasing, positive.
    difference : (draw, x) array

    Returns
    -------
    (draw,) array
    """
    below = difference <= 0.0
    after = np.where(below.any(axis=1), np.argmax(below, axis=1), len(x) - 1)
    inside = below.any(axis=1) & (after > 0)
    before, draw = np.maximum(after - 1, 0), np.arange(len(difference))
    start, stop = difference[draw, before], difference[draw, after]
    share = np.where(inside, start, 0.0) / np.where(inside, start - stop, 1.0)
    between = np.exp(np.log(x)[before] + share * (np.log(x)[after] - np.log(x)[before]))
    return np.where(inside, between, x[after])
