"""Does a diversity index order the cells as a measure does?  Rank correlation, and pairs of cells in the wrong order.

Imports NumPy, SciPy, claims, comparisons and estimates only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from simstudy.claims import RankCorrelation, ViolatedPairs
from simstudy.comparisons import Comparison, at, groups_by
from simstudy.estimates import Estimates

Array = NDArray[np.float64]

# Index legend: draw; i, j cells of one group.


def rank_correlations(
    claim: RankCorrelation, estimates: Estimates, index: Estimates, chosen: list[int]
) -> Iterator[Comparison]:
    """Yield, for each level of the factor ``by``, Spearman's rank correlation of the measure with the index."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    for cells in groups_by(claim.by, estimates, chosen):
        value = sign * spearman(index.values[None, cells], estimates.values[None, cells])[0]
        draws = sign * spearman(index.draws(cells), estimates.draws(cells))
        text = f"{claim.direction} rank correlation of {claim.measure} with {claim.against}, {len(cells)} cells"
        yield _compared(text, claim.by, estimates, cells, value, draws, (claim.at_least, np.inf))


def violations(claim: ViolatedPairs, estimates: Estimates, index: Estimates, chosen: list[int]) -> Iterator[Comparison]:
    """Yield, for each level of ``by``, the share of pairs of cells that the index puts in the wrong order."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    for cells in groups_by(claim.by, estimates, chosen):
        value = violated_share(index.values[cells], sign * estimates.values[None, cells])[0]
        draws = violated_share(index.values[cells], sign * estimates.draws(cells))
        text = f"share of pairs whose {claim.measure} is not {claim.direction} in {claim.against}, {len(cells)} cells"
        yield _compared(text, claim.by, estimates, cells, value, draws, (-np.inf, claim.at_most))


def _compared(
    text: str, by: str | None, estimates: Estimates, cells: list[int], value: float, draws: Array,
    bounds: tuple[float, float],
) -> Comparison:  # fmt: skip
    place = at(estimates.coordinates[cells[0]], (by,) if by else ())
    claimed = next(bound for bound in bounds if np.isfinite(bound))
    return Comparison(text + place, float(value), float(draws.std()), *bounds, claimed, 1, draws)


def spearman(x: Array, y: Array) -> Array:
    """Return Spearman's rank correlation along the last axis, ties sharing their mean rank: (draw,)."""
    ranks = [stats.rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2 for values in (x, y)]
    norms = [np.sqrt((rank * rank).sum(axis=-1)) for rank in ranks]
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Array = (ranks[0] * ranks[1]).sum(axis=-1) / (norms[0] * norms[1])
    return correlation


def violated_share(index: Array, measure: Array) -> Array:
    """Return the share of pairs with measure_i > measure_j among those with index_i < index_j: (draw,)."""
    order = np.argsort(index, kind="stable")
    x, y = index[order], measure[:, order]
    violated, pairs = np.zeros(len(y)), 0
    for i in range(len(x) - 1):
        larger = x > x[i]
        violated += (y[:, i, None] > y[:, larger]).sum(axis=1)
        pairs += int(larger.sum())
    return violated / pairs if pairs else np.full(len(y), np.nan)
