"""Where a measure is least along a factor, or stops to exceed another, and how sure that is."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from simstudy.design.claims import Crossing, Optimum, OptimumClaim
from simstudy.design.settings.levels import level
from simstudy.verdicts.comparisons import Bounds, Comparison, Selected, at, inside, undecided
from simstudy.verdicts.estimates import Array
from simstudy.verdicts.evidence import Contrast, Evidence, every, least_among, p_above, possible_minima, some, together

NEVER = 0.01
"""Share of draws below which a value of the factor is not among the possible optima."""


class Profile(NamedTuple):
    """Least values along a factor, others tuned: levels (x,) and values (x,)."""

    levels: Array
    values: Array

    @property
    def least(self) -> int:
        """Number of the level of least value."""
        return int(np.argmin(self.values))

    @property
    def in_sight(self) -> bool:
        """Whether the neighbours of the optimum have a value, so that it is not where values end."""
        return bool(np.isfinite(self.values[max(self.least - 1, 0) : self.least + 2]).all())

    @property
    def refined(self) -> float:
        """Vertex of the parabola in ln x through the least value and its neighbours, or the end of the levels."""
        x, k, shift = np.log(self.levels), self.least, 0.0
        if 0 < k < len(x) - 1:
            (a, b, c), (fa, fb, fc) = x[k - 1 : k + 2], self.values[k - 1 : k + 2]
            # Differences from the middle level, as the vertex is that of the parabola through them.
            left, right = (b - a) * (fb - fc), (b - c) * (fb - fa)
            with np.errstate(invalid="ignore"):
                shift = 0.5 * ((b - a) * left - (b - c) * right) / (left - right) if left != right else 0.0
        return float(np.exp(x[k] - shift))


def optima(claim: Optimum, of: Selected) -> Iterator[Comparison]:
    """Yield, for each combination of the other factors, the level of x at which the measure is least."""
    within = (claim.x, *claim.tune)
    for every_cell in of.groups(*within):
        value = claim.value
        if of.theory is not None:
            told = told_of(of, every_cell, claim)
            if not told.in_sight:
                continue
            value = float(told.levels[told.least])
        assert value is not None  # the design refuses a claim with neither
        # A level without a value is none: the measure is conditional on there being estimates.
        cells = [cell for cell in every_cell if np.isfinite(of.estimates.values[cell])]
        text = f"optimal {claim.x} for {claim.measure}{of.place(every_cell[0], *within)}"
        yield _compared(text, of, cells, claim.x, (value / claim.ratio, value * claim.ratio), value)


def _compared(text: str, of: Selected, cells: list[int], x: str, bounds: Bounds, value: float) -> Comparison:
    """Compare the cell of least measure with the levels of x between bounds; each cell outside is a part."""
    conditions = [of.estimates.conditions[cell] for cell in cells]
    levels = np.array([float(each[x]) for each in conditions])
    within = (bounds[0] <= levels) & (levels <= bounds[1])
    if within.all() or not within.any():
        where = "every level with a value lies" if within.any() else "no level with a value lies"
        return undecided(text, f"{where} within the ratio")
    apart = of.estimates.differences(cells)
    larger = p_above(apart, 0.0)
    values = of.estimates.values[cells]
    best = int(np.argmin(np.where(within, values, np.inf)))
    tuned = [name for name in of.factors if name != x and len({str(level(each, name)) for each in conditions}) > 1]
    beside = f"over {x} = {levels[best]:g}{at(conditions[best], tuned)}"

    def part(other: int) -> Comparison:
        text = f"excess at {x} = {levels[other]:g} {beside}{at(conditions[other], tuned)}"
        found = inside(text, apart.at(other, best), (0.0, np.inf), 0.0, (cells[other], cells[best]))
        return found._replace(evidence=Evidence(larger[best, other], larger[other, best]))

    parts = tuple(part(other) for other in np.flatnonzero(~within).tolist())

    def confidence(level: float) -> Bounds:
        possible = levels[possible_minima(larger) >= level]
        return float(possible.min()), float(possible.max())

    doubt = next((part.doubt for part in parts if part.doubt), "")
    found = float(levels[np.argmin(values)])
    evidence = least_among(within, larger)
    return Comparison(text, found, np.nan, *bounds, value, evidence, confidence, tuple(cells), doubt, parts)


def told_of(of: Selected, cells: list[int], claim: OptimumClaim) -> Profile:
    """Profile by theory of cells that differ in x and in what is tuned alone."""
    assert of.theory is not None  # asked of claims that name a source alone
    columns = [[level(of.estimates.conditions[cell], name) for cell in cells] for name in (claim.x, *claim.tune)]
    return told_profile(np.array(columns[0], float), columns[1:], of.theory.values[cells])


def told_profile(levels: Array, tuned: Sequence[Sequence[Any]], values: Array) -> Profile:
    """Return the least values by theory over tuned levels, infinite where a neighbour without theory may be better."""
    ranks = np.array([np.unique(column, return_inverse=True)[1] for column in tuned]).reshape(len(tuned), len(levels))
    known, distinct, least = np.where(np.isnan(values), np.inf, values), np.unique(levels), []
    for each in distinct:
        inside = np.flatnonzero(levels == each)
        best = inside[np.argmin(known[inside])]
        beside = np.abs(ranks[:, inside] - ranks[:, [best]]).sum(axis=0) <= 1
        least.append(known[best] if np.isfinite(known[inside][beside]).all() else np.inf)
    return Profile(distinct, np.array(least))


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
        told = claim.value
        if of.theory is not None:
            told = crossing(line.x, line.differences(of.theory.values))
            # Theory may put it nowhere inside, or beside a cell without theory.
            if not line.x[0] < told < line.x[-1]:
                continue
        assert told is not None  # the design refuses a claim with neither
        yield line.compared(text, told, claim.ratio)


class Line:
    """Differences of paired cells at increasing levels x, linear in ln x between them."""

    def __init__(self, of: Selected, pairs: list[tuple[int, int]], factor: str, what: str) -> None:
        self._of, self._pairs, self._what = of, pairs, f"{what} at {factor}"
        self.x = np.array([float(of.estimates.conditions[own][factor]) for own, _ in pairs])

    def differences(self, values: Array) -> Array:
        """Return the values of one cell of each pair, less those of the other."""
        return np.array([values[own] - values[other] for own, other in self._pairs])

    def compared(self, text: str, told: float, ratio: float) -> Comparison:
        """Return how the crossing compares with one that is told, up to a ratio.

        It is inside if all differences up to the lower end are positive, and one of those up to the upper end is not.
        """
        x, lower, upper = self.x, told / ratio, told * ratio
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
            text,
            found,
            mcse,
            lower,
            upper,
            told,
            every(together(claims)),
            partial(self._confidence, beyond),
            tuple(cell for pair in self._pairs for cell in pair),
            next((p.doubt for p in parts if p.doubt), ""),
            parts,
            given,
        )

    def _positive(self, place: float) -> Comparison:
        after = int(np.searchsorted(self.x, place))
        weights = {after: 1.0}
        if self.x[after] != place:
            share = np.log(place / self.x[after - 1]) / np.log(self.x[after] / self.x[after - 1])
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
        x, difference = self.x, self.differences(self._of.estimates.values)
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
        positive = [self._positive(float(place)).evidence for place in self.x]
        falls = np.array([part.against for part in positive]) * len(positive) < level
        upper = float(self.x[np.argmax(falls)]) if falls.any() else np.inf
        sure = int(np.cumprod([part.in_favour < level for part in positive]).sum())
        lower = float(self.x[sure - 1]) if sure else -np.inf
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
