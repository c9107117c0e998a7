"""Level of a factor at which a measure is least, with confidence sets, and its slope along another factor.

The vertex of the parabola through the least level and its neighbours is a smooth function of the means for a given
least level.  So the slope is computed for every level in a confidence set of the least level, and the largest p-value
is used (Berger and Boos 1994); a share of the level is spent on that set.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from simstudy.design.answerable import level
from simstudy.design.document import Optimum, OptimumSlope
from simstudy.verdicts import evidence as ev
from simstudy.verdicts.comparisons import Bounds, Comparison, Selected, leverages, undecided, within
from simstudy.verdicts.estimates import Array, Estimates

POSSIBLE = 0.01
"""Share of draws below which a level of the factor is not among the possible optima."""
SPENT = 0.2
"""Share of the level that is spent on confidence sets of the least levels; the rest is for the slope."""
CURVED = 2.0
"""Curvature in MCSE above which a vertex is treated as a smooth function of the means."""
MOST_WAYS = 512
"""Most combinations of possible least levels for a verdict."""


class Profile(NamedTuple):
    """Levels (x,) of a factor, and values (x,) of a measure, minimised over the tuned factors."""

    levels: Array
    values: Array

    @property
    def least(self) -> int:
        """Position of the level with the least value."""
        return int(np.argmin(self.values))

    @property
    def bracketed(self) -> bool:
        """True if the neighbours of the least value are known, so that it is not at the end of known values."""
        return bool(np.isfinite(self.values[max(self.least - 1, 0) : self.least + 2]).all())

    @property
    def refined(self) -> float:
        """Vertex of the parabola in ln x through the least value and its neighbours; at an end, the level itself."""
        x, k, shift = np.log(self.levels), self.least, 0.0
        if 0 < k < len(x) - 1:
            (a, b, c), (fa, fb, fc) = x[k - 1 : k + 2], self.values[k - 1 : k + 2]
            # Products of differences from the middle level.
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
            predicted = theory_profile(np.array(columns[0], float), columns[1:], of.theory.values[every_cell])
            if not predicted.bracketed:
                continue
            value = float(predicted.levels[predicted.least])
        assert value is not None  # a design without either is refused
        # Levels without a value are left out: the measure is conditional on estimates that exist.
        cells = [cell for cell in every_cell if np.isfinite(of.estimates.values[cell])]
        text = f"optimal {claim.x} for {claim.measure}{of.place(every_cell[0], *tuning)}"
        bounds = value / claim.ratio, value * claim.ratio
        levels = np.array([float(of.estimates.conditions[cell][claim.x]) for cell in cells])
        inside = (bounds[0] <= levels) & (levels <= bounds[1])
        if inside.all() or not inside.any():
            where = "every level with a value lies" if inside.any() else "no level with a value lies"
            yield undecided(text, f"{where} within the ratio")
            continue
        pairs, values = of.estimates.differences(cells), of.estimates.values[cells]
        larger = ev.p_above(pairs, 0.0)
        best = int(np.argmin(np.where(inside, values, np.inf)))

        def confidence(level: float, levels: Array = levels, larger: Array = larger) -> Bounds:
            possible = levels[ev.possible_minima(larger) >= level]
            return float(possible.min()), float(possible.max())

        reasons = (ev.why_no_verdict(pairs.at(far, best)) for far in np.flatnonzero(~inside).tolist())
        why = next(filter(None, reasons), "")
        found, evidence = float(levels[np.argmin(values)]), ev.least_among(inside, larger)
        yield Comparison(text, found, np.nan, *bounds, value, evidence, confidence, tuple(cells), why)


def optimum_shares(of: Selected, along: Sequence[str]) -> Array:
    """Return the share of draws in which each cell has the least value among cells that differ only ``along`` these."""
    shares = np.full(len(of.estimates.values), np.nan)
    for group in of.groups(*along):
        draws = of.estimates.draws(group)
        least = np.argmin(np.where(np.isnan(draws), np.inf, draws), axis=1)
        shares[group] = np.bincount(least, minlength=len(group)) / len(draws)
    return shares


def theory_profile(levels: Array, tuned: Sequence[Sequence[Any]], values: Array) -> Profile:
    """Return the theoretical minima over tuned factors; infinite where a neighbour without theory may be smaller."""
    ranks = np.array([np.unique(column, return_inverse=True)[1] for column in tuned]).reshape(len(tuned), len(levels))
    known, distinct, least = np.where(np.isnan(values), np.inf, values), np.unique(levels), []
    for each in distinct:
        inside = np.flatnonzero(levels == each)
        best = inside[np.argmin(known[inside])]
        neighbours = np.abs(ranks[:, inside] - ranks[:, [best]]).sum(axis=0) <= 1
        least.append(known[best] if np.isfinite(known[inside][neighbours]).all() else np.inf)
    return Profile(distinct, np.array(least))


class Vertex(NamedTuple):
    """A possible optimum in ln x, and its derivatives with respect to the measure in cells."""

    value: float
    terms: dict[int, float]


Path = list[tuple[float, Array, list[int]]]
"""For each level z of another factor: ln x in ascending order, and the cells along it."""


def optimum_slopes(claim: OptimumSlope, of: Selected) -> Iterator[Comparison]:
    """Yield, for each combination of the other factors, the slope of the optimum in ln of the factor ``along``."""
    for cells in of.groups(claim.along, claim.x):
        table: dict[float, dict[float, int]] = defaultdict(dict)
        for cell in cells:
            levels = of.estimates.conditions[cell]
            if np.isfinite(of.estimates.values[cell]):  # a cell without a value is left out
                table[float(levels[claim.along])][float(levels[claim.x])] = cell
        path = [(z, np.log(sorted(by_x)), [by_x[x] for x in sorted(by_x)]) for z, by_x in table.items()]
        if len(path) >= 2:
            yield _compared(claim, of, path, of.place(cells[0], claim.along, claim.x))


def _compared(claim: OptimumSlope, of: Selected, path: Path, place: str) -> Comparison:
    """Return the comparison of the slope of optima with the claim, in the worst case of possible least levels."""
    leverage, log_log = leverages(np.log([z for z, *_ in path])), claim.scale == "log_log"

    def slope(vertices: Sequence[Vertex]) -> ev.Contrast:
        """Return the slope with its error by the delta method; without error if all optima are at ends."""
        value, terms = 0.0, defaultdict[int, float](float)
        for weight, vertex in zip(leverage, vertices, strict=True):
            value += weight * (vertex.value if log_log else np.exp(vertex.value))
            for cell, derivative in vertex.terms.items():
                terms[cell] += weight * derivative * (1.0 if log_log else np.exp(vertex.value))
        if terms:
            return of.estimates.combine(terms).moved(value)
        degrees = of.estimates.degrees([*range(len(of.estimates.values))]).min()
        return of.estimates.judged(ev.Contrast(value, 0.0, int(of.estimates.n_blocks.min()), degrees, 0.0, 0.0))

    least = [int(np.argmin(of.estimates.values[cells])) for *_, cells in path]
    estimated = [_vertex(of.estimates, x, cells, k)[0] for (_, x, cells), k in zip(path, least, strict=True)]
    found, bounds = slope(estimated), within(claim)
    possible = [_possible(of.estimates, x, cells, SPENT * of.level / len(path)) for _, x, cells in path]
    ways = [slope(each) for each in itertools.product(*possible)] if math.prod(map(len, possible)) <= MOST_WAYS else []
    evidence, why = ev.NOTHING, f"levels may be least in more than {MOST_WAYS} ways"
    if ways:
        together = ev.Contrast(*(np.array(column, float) for column in zip(*ways, strict=True)))
        each = ev.evidence_between(together, bounds)
        evidence = ev.all_hold(ev.Evidence(*(np.minimum(p.max(axis=0) / (1.0 - SPENT), 1.0) for p in each)))
        why = next(filter(None, map(ev.why_no_verdict, ways)), "")

    def confidence(level: float) -> Bounds:
        reach = [ev.interval(way, (1.0 - SPENT) * level) for way in ways]
        return min((low for low, _ in reach), default=-np.inf), max((high for _, high in reach), default=np.inf)

    rests_on = tuple(itertools.chain(*(cells for *_, cells in path)))
    kind = "log-log slope" if log_log else "slope in the logarithm"
    text = f"{kind} of optimal {claim.x} along {claim.along} = {', '.join(f'{z:g}' for z, *_ in path)}{place}"
    numbers = float(found.value), float(found.mcse), *bounds, claim.value
    return Comparison(text, *numbers, evidence, confidence, rests_on, why, float(found.widening))


def _possible(estimates: Estimates, x: Array, cells: list[int], level: float) -> list[Vertex]:
    found: list[Vertex] = []
    for k in np.flatnonzero(ev.possible_minima(ev.p_above(estimates.differences(cells), 0.0)) >= level).tolist():
        vertex, curvature = _vertex(estimates, x, cells, k)
        middles = (x[k - 1 : k + 1] + x[k : k + 2]) / 2 if curvature else x
        if curvature is None:
            found.append(vertex)
        elif curvature.value > CURVED * curvature.error:
            found.append(vertex._replace(value=float(np.clip(vertex.value, *middles))))
        else:  # anywhere in its range, represented by both ends
            found += [Vertex(float(middle), {}) for middle in middles]
    return found


def _vertex(estimates: Estimates, x: Array, cells: list[int], k: int) -> tuple[Vertex, ev.Contrast | None]:
    """Return the optimum if level k is least, and the curvature there; at an end, the level itself and None."""
    if k in (0, len(x) - 1):
        return Vertex(float(x[k]), {}), None
    three, (start, centre, stop) = cells[k - 1 : k + 2], x[k - 1 : k + 2]
    first, second = centre - start, stop - centre
    d_left, d_right = np.array([[-1 / first, 1 / first, 0.0], [0.0, -1 / second, 1 / second]])
    left, right = (d @ estimates.values[three] for d in (d_left, d_right))
    bend, width, middle = right - left, (stop - start) / 2, (start + centre) / 2
    slope_step = estimates.combine(dict(zip(three, d_right - d_left, strict=True)))
    if bend == 0.0:
        return Vertex(float(centre), {}), slope_step
    terms = dict(zip(three, width * (left * d_right - right * d_left) / bend**2, strict=True))
    return Vertex(float(middle - width * left / bend), terms), slope_step
