"""Share of pairs of cells that a diversity index and a measure order differently."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from simstudy.design.answerable import by_levels
from simstudy.design.document import ViolatedPairs
from simstudy.verdicts.comparisons import Bounds, Comparison, Selected, at
from simstudy.verdicts.estimates import Array, Estimates
from simstudy.verdicts.evidence import Evidence, at_most_fail, p_above, p_below

TIE = 1e-9
"""Values of an index that differ by less, relative to the largest, are treated as equal."""
SHARE_DRAWS = 999
"""Number of draws for the error of a share of pairs in a figure."""


def violations(claim: ViolatedPairs, of: Selected) -> Iterator[Comparison]:
    """Yield, for each level of ``by``, the share of pairs of cells that the index puts in the wrong order."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    by = (claim.by,) if claim.by else ()
    for cells in by_levels(of.estimates.conditions, (*by, *of.drawn), of.chosen):
        share = violated_share(of.diversity.values[cells], sign * of.estimates.values[None, cells])[0]
        index, measure = tied(of.diversity.values[cells]), of.estimates.differences(cells)
        first, second = np.nonzero(index[:, None] < index)
        rises, falls = p_below(measure, 0.0)[first, second], p_above(measure, 0.0)[first, second]
        unsure = p_below(of.diversity.differences(cells), 0.0)[first, second]
        sides = (falls, rises) if sign > 0 else (rises, falls)
        parts = Evidence(*(np.maximum(p, unsure) for p in sides))
        n_pairs = parts.against.size
        found = at_most_fail(parts) if n_pairs else Evidence(np.ones(1), np.ones(1))
        evidence = Evidence(*(p[math.floor((claim.at_most + TIE) * n_pairs)] for p in found))

        def confidence(level: float, found: Evidence = found, n: int = max(n_pairs, 1)) -> Bounds:
            """Return the largest share that is contradicted and the smallest that is supported as bounds."""
            turns = [np.append(holds, True).argmax() / n for holds in (found.against >= level, found.in_favour < level)]
            return float(min(turns)), float(max(turns))

        text = f"share of pairs whose {claim.measure} is not {claim.direction} in {claim.against}"
        text += f", {len(cells)} cells{at(of.estimates.conditions[cells[0]], (*by, *of.drawn))}"
        numbers = float(share), np.nan, -np.inf, claim.at_most, claim.at_most
        yield Comparison(text, *numbers, evidence, confidence, tuple(cells))


def wrong_pairs(of: Selected, indices: Sequence[Estimates], factors: Sequence[str]) -> tuple[Array, Array]:
    """Return the share of pairs, within levels of ``factors``, that each index orders wrongly, and its MCSE."""
    shares, errors = (np.full((len(of.estimates.values), len(indices)), np.nan) for _ in range(2))
    for cells in by_levels(of.estimates.conditions, factors, of.chosen):
        draws = of.estimates.draws(cells, SHARE_DRAWS)
        for k, index in enumerate(indices):
            shares[cells, k] = violated_share(index.values[cells], -of.estimates.values[None, cells])[0]
            errors[cells, k] = violated_share(index.values[cells], -draws).std()
    return shares, errors


def tied(values: Array) -> Array:
    """Return values rounded so that those that differ only by rounding errors are equal."""
    unit = TIE * max(np.nanmax(np.abs(values), initial=0.0), np.finfo(float).tiny)
    return np.asarray(np.round(values / unit) * unit)


def violated_share(index: Array, measure: Array) -> Array:
    """Return the share of pairs with measure_i > measure_j among those with index_i < index_j: (draw,)."""
    x = tied(index)
    violated = sum((measure[:, [i]] > measure[:, x > each]).sum(axis=1) for i, each in enumerate(x))
    pairs = (x[:, None] < x).sum()
    return violated / pairs if pairs else np.full(len(measure), np.nan)
