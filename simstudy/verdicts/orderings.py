"""Does a diversity index order the cells as a measure does? The share of pairs of cells in the wrong order."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from simstudy.design.claims import ViolatedPairs
from simstudy.design.settings.levels import by_levels
from simstudy.verdicts.comparisons import Bounds, Comparison, Selected, at
from simstudy.verdicts.estimates import Array
from simstudy.verdicts.evidence import NOTHING, Evidence, failing_weigh_at_most, p_above, p_below

TIE = 1e-9
"""Values of an index closer than this, relative to the largest, are equal: they differ by rounding alone."""
N_BOUNDS = 101
"""Bounds that are tried for the confidence interval of a share, beside the one that is claimed."""
HALVINGS = 30
"""How often the gap between two of them, where the evidence turns, is halved to find the end of the interval."""


def violations(claim: ViolatedPairs, of: Selected) -> Iterator[Comparison]:
    """Yield, for each level of ``by``, the share of pairs of cells that the index puts in the wrong order."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    tried = np.sort([*np.linspace(0.0, 1.0, N_BOUNDS), claim.at_most])
    by = (claim.by,) if claim.by else ()
    for cells in by_levels(of.estimates.conditions, (*by, *of.drawn), of.chosen):
        share = violated_share(of.diversity.values[cells], sign * of.estimates.values[None, cells])[0]
        parts = _evidence_on_pairs(of, cells, sign)

        def evidence(bound: float, parts: Evidence = parts) -> Evidence:
            n_pairs = parts.against.size
            return failing_weigh_at_most(bound, np.full(n_pairs, 1.0 / n_pairs), parts) if n_pairs else NOTHING

        def confidence(level: float, evidence: Callable[[float], Evidence] = evidence) -> Bounds:
            """From the last of ever weaker bounds that is contradicted to the first that is supported."""
            contradicted, _ = _turn(lambda bound: evidence(bound).against >= level, tried)
            _, supported = _turn(lambda bound: evidence(bound).in_favour < level, tried)
            return min(contradicted, supported), max(contradicted, supported)

        text = f"share of pairs whose {claim.measure} is not {claim.direction} in {claim.against}"
        text += f", {len(cells)} cells{at(of.estimates.conditions[cells[0]], (*by, *of.drawn))}"
        bounds, most = (-np.inf, claim.at_most), claim.at_most
        yield Comparison(text, float(share), np.nan, *bounds, most, evidence(most), confidence, tuple(cells))


def _evidence_on_pairs(of: Selected, cells: list[int], sign: float) -> Evidence:
    index, measure = tied(of.diversity.values[cells]), of.estimates.differences(cells)
    first, second = np.nonzero(index[:, None] < index)
    rises, falls = p_below(measure, 0.0)[first, second], p_above(measure, 0.0)[first, second]
    alone = Evidence(falls, rises) if sign > 0 else Evidence(rises, falls)
    unsure = p_below(of.diversity.differences(cells), 0.0)[first, second]
    return Evidence(*(np.maximum(p, unsure) for p in alone))


def _turn(holds: Callable[[float], Any], bounds: Array) -> Bounds:
    """Two neighbouring numbers at the first turn of ever weaker bounds from "does not hold" to "holds"."""
    # One by one: the evidence for a weaker bound, of which more is at stake, may be less.
    first = next((k for k, bound in enumerate(bounds) if holds(float(bound))), len(bounds) - 1)
    stronger, weaker = float(bounds[max(first - 1, 0)]), float(bounds[first])
    if first == 0 or not holds(weaker):
        return weaker, weaker
    for _ in range(HALVINGS):
        middle = (stronger + weaker) / 2
        stronger, weaker = (stronger, middle) if holds(middle) else (middle, weaker)
    return stronger, weaker


def tied(values: Array) -> Array:
    """Return values with those that rounding alone tells apart made equal."""
    unit = TIE * max(np.nanmax(np.abs(values), initial=0.0), np.finfo(float).tiny)
    ties: Array = np.round(values / unit) * unit
    return ties


def violated_share(index: Array, measure: Array) -> Array:
    """Return the share of pairs with measure_i > measure_j among those with index_i < index_j: (draw,)."""
    order = np.argsort(index, kind="stable")
    x, y = tied(index)[order], measure[:, order]
    violated, pairs = np.zeros(len(y)), 0
    for i in range(len(x) - 1):
        larger = x > x[i]
        violated += (y[:, i, None] > y[:, larger]).sum(axis=1)
        pairs += int(larger.sum())
    return violated / pairs if pairs else np.full(len(y), np.nan)
