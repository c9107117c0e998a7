"""How an optimum moves along another factor: its slope.

The vertex of the parabola through the least level and its neighbours is smooth in the means while the least level
stays the same.  So it is taken for every level that may be the least (a confidence set of the least level), and the
worst of the p-values counts (Berger and Boos 1994): a share of the level is spent on that set.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from simstudy.design.document import OptimumSlope
from simstudy.verdicts.comparisons import Bounds, Comparison, Selected, leverages, within
from simstudy.verdicts.estimates import Array, Estimates
from simstudy.verdicts.evidence import (
    NOTHING,
    Contrast,
    Evidence,
    all_hold,
    evidence_between,
    interval,
    p_above,
    possible_minima,
    why_no_verdict,
)

DOUBT = 0.2
"""Share of the level that is spent on which levels may be least; the rest is for the statistic."""
CURVED = 2.0
"""Curvature in MCSE above which a vertex is taken for a smooth function of the means."""
MOST_WAYS = 512
"""Ways in which levels may be least beyond which there is no verdict."""


class Vertex(NamedTuple):
    """A possible optimum in ln x, and its derivatives by the measure in cells."""

    value: float
    terms: dict[int, float]


class Profile(NamedTuple):
    """Cells along x at one level z of another factor, in increasing order of ln x."""

    z: float
    x: Array
    cells: list[int]


def optimum_slopes(claim: OptimumSlope, of: Selected) -> Iterator[Comparison]:
    """Yield, for each combination of the other factors, the slope of the optimum in ln of the factor ``along``."""
    for cells in of.groups(claim.along, claim.x):
        table: dict[float, dict[float, int]] = defaultdict(dict)
        for cell in cells:
            levels = of.estimates.conditions[cell]
            if np.isfinite(of.estimates.values[cell]):  # a cell without a value is left out
                table[float(levels[claim.along])][float(levels[claim.x])] = cell
        profiles = [Profile(z, np.log(sorted(by_x)), [by_x[x] for x in sorted(by_x)]) for z, by_x in table.items()]
        if len(profiles) >= 2:
            yield _compared(claim, of, profiles, of.place(cells[0], claim.along, claim.x))


def _compared(claim: OptimumSlope, of: Selected, profiles: list[Profile], place: str) -> Comparison:
    """Compare the slope of optima with that claimed, in the worst of the ways in which levels may be least."""
    leverage, log_log = leverages(np.log([each.z for each in profiles])), claim.scale == "log_log"

    def slope(vertices: Sequence[Vertex]) -> Contrast:
        """Return it with the error that derivatives give; certain where all optima lie at ends of their levels."""
        value, terms = 0.0, defaultdict[int, float](float)
        for weight, vertex in zip(leverage, vertices, strict=True):
            value += weight * (vertex.value if log_log else np.exp(vertex.value))
            for cell, derivative in vertex.terms.items():
                terms[cell] += weight * derivative * (1.0 if log_log else np.exp(vertex.value))
        if terms:
            return of.estimates.combine(terms).moved(value)
        degrees = of.estimates.degrees([*range(len(of.estimates.values))]).min()
        return of.estimates.looked(Contrast(value, 0.0, int(of.estimates.n_blocks.min()), degrees, 0.0, 0.0))

    estimated = []
    for _, x, cells in profiles:
        k = int(np.argmin(of.estimates.values[cells]))
        ends = k in (0, len(x) - 1)
        vertex = Vertex(float(x[k]), {}) if ends else _parabola(of.estimates, x[k - 1 : k + 2], cells[k - 1 : k + 2])[0]
        estimated.append(vertex)
    found, bounds = slope(estimated), within(claim)
    possible = [_possible(of.estimates, profile, DOUBT * of.level / len(profiles)) for profile in profiles]
    few = math.prod(map(len, possible)) <= MOST_WAYS
    ways = [slope(vertices) for vertices in itertools.product(*possible)] if few else []
    evidence, why = NOTHING, f"levels may be least in more than {MOST_WAYS} ways"
    if ways:
        each = evidence_between(Contrast(*(np.array(column, float) for column in zip(*ways, strict=True))), bounds)
        evidence = all_hold(Evidence(*(np.minimum(p.max(axis=0) / (1.0 - DOUBT), 1.0) for p in each)))
        why = next(filter(None, map(why_no_verdict, ways)), "")

    def confidence(level: float) -> Bounds:
        reach = [interval(way, (1.0 - DOUBT) * level) for way in ways]
        return min((low for low, _ in reach), default=-np.inf), max((high for _, high in reach), default=np.inf)

    rests_on = tuple(itertools.chain(*(each.cells for each in profiles)))
    kind = "log-log slope" if log_log else "slope in the logarithm"
    text = f"{kind} of optimal {claim.x} along {claim.along} = {', '.join(f'{each.z:g}' for each in profiles)}{place}"
    numbers = float(found.value), float(found.mcse), *bounds, claim.value
    return Comparison(text, *numbers, evidence, confidence, rests_on, why, float(found.widening))


def _possible(estimates: Estimates, profile: Profile, level: float) -> list[Vertex]:
    _, x, cells = profile
    found: list[Vertex] = []
    for k in np.flatnonzero(possible_minima(p_above(estimates.differences(cells), 0.0)) >= level).tolist():
        if k in (0, len(x) - 1):
            found.append(Vertex(float(x[k]), {}))
            continue
        vertex, curvature = _parabola(estimates, x[k - 1 : k + 2], cells[k - 1 : k + 2])
        middles = (x[k - 1 : k + 1] + x[k : k + 2]) / 2
        if curvature.value > CURVED * curvature.error:
            found.append(vertex._replace(value=float(np.clip(vertex.value, *middles))))
        else:  # anywhere in its range, so at both ends
            found += [Vertex(float(middle), {}) for middle in middles]
    return found


def _parabola(estimates: Estimates, x: Array, three: Sequence[int]) -> tuple[Vertex, Contrast]:
    first, second = np.diff(x)
    a, b, c = three
    d_left, d_right = {a: -1 / first, b: 1 / first}, {b: -1 / second, c: 1 / second}
    left, right = (sum(k * estimates.values[cell] for cell, k in d.items()) for d in (d_left, d_right))
    bend, width, middle = right - left, (x[2] - x[0]) / 2, (x[0] + x[1]) / 2
    slope_step = estimates.combine({cell: d_right.get(cell, 0.0) - d_left.get(cell, 0.0) for cell in three})
    if bend == 0.0:
        return Vertex(float(x[1]), {}), slope_step
    terms = {cell: width * (left * d_right.get(cell, 0.0) - right * d_left.get(cell, 0.0)) / bend**2 for cell in three}
    return Vertex(float(middle - width * left / bend), terms), slope_step
