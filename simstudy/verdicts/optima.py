"""Where a measure is least along a factor, and how sure that is."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from simstudy.design.document import Optimum
from simstudy.design.settings.cell import level
from simstudy.verdicts.comparisons import Bounds, Comparison, Selected, undecided
from simstudy.verdicts.estimates import Array
from simstudy.verdicts.evidence import least_among, p_above, possible_minima, why_no_verdict

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
        """True if the neighbours of the optimum have a value, so that it is not where values end."""
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
    tuning = (claim.x, *claim.tune)
    for every_cell in of.groups(*tuning):
        value = claim.value
        if of.theory is not None:
            columns = [[level(of.estimates.conditions[cell], name) for cell in every_cell] for name in tuning]
            predicted = told_profile(np.array(columns[0], float), columns[1:], of.theory.values[every_cell])
            if not predicted.in_sight:
                continue
            value = float(predicted.levels[predicted.least])
        assert value is not None  # the design refuses a claim with neither
        # A level without a value is none: the measure is conditional on there being estimates.
        cells = [cell for cell in every_cell if np.isfinite(of.estimates.values[cell])]
        text = f"optimal {claim.x} for {claim.measure}{of.place(every_cell[0], *tuning)}"
        bounds = value / claim.ratio, value * claim.ratio
        levels = np.array([float(of.estimates.conditions[cell][claim.x]) for cell in cells])
        within = (bounds[0] <= levels) & (levels <= bounds[1])
        if within.all() or not within.any():
            where = "every level with a value lies" if within.any() else "no level with a value lies"
            yield undecided(text, f"{where} within the ratio")
            continue
        apart, values = of.estimates.differences(cells), of.estimates.values[cells]
        larger = p_above(apart, 0.0)
        best = int(np.argmin(np.where(within, values, np.inf)))

        def confidence(level: float, levels: Array = levels, larger: Array = larger) -> Bounds:
            possible = levels[possible_minima(larger) >= level]
            return float(possible.min()), float(possible.max())

        why = next(filter(None, (why_no_verdict(apart.at(far, best)) for far in np.flatnonzero(~within).tolist())), "")
        found, evidence = float(levels[np.argmin(values)]), least_among(within, larger)
        yield Comparison(text, found, np.nan, *bounds, value, evidence, confidence, tuple(cells), why)


def optimum_shares(of: Selected, within: Sequence[str]) -> Array:
    """Return the share of draws in which each cell is the least of those that differ ``within`` alone, for figures."""
    shares = np.full(len(of.estimates.values), np.nan)
    for group in of.groups(*within):
        draws = of.estimates.draws(group)
        least = np.argmin(np.where(np.isnan(draws), np.inf, draws), axis=1)
        shares[group] = np.bincount(least, minlength=len(group)) / len(draws)
    return shares


def told_profile(levels: Array, tuned: Sequence[Sequence[Any]], values: Array) -> Profile:
    """Return the least values by theory over tuned levels, infinite where a neighbour without theory may be better."""
    ranks = np.array([np.unique(column, return_inverse=True)[1] for column in tuned]).reshape(len(tuned), len(levels))
    known, distinct, least = np.where(np.isnan(values), np.inf, values), np.unique(levels), []
    for each in distinct:
        inside = np.flatnonzero(levels == each)
        best = inside[np.argmin(known[inside])]
        neighbours = np.abs(ranks[:, inside] - ranks[:, [best]]).sum(axis=0) <= 1
        least.append(known[best] if np.isfinite(known[inside][neighbours]).all() else np.inf)
    return Profile(distinct, np.array(least))
