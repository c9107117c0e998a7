"""Does a diversity index order the cells as a measure does? Rank correlation, and pairs of cells in the wrong order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from simstudy.design.claims import RankCorrelation, ViolatedPairs
from simstudy.verdicts.comparisons import Comparison, at, groups_by
from simstudy.verdicts.estimates import Estimates

Array = NDArray[np.float64]

TIE = 1e-9
"""Values of an index closer than this, relative to the largest, are equal: they differ by rounding alone."""
SHARE_DRAWS = 999
"""Draws that give the error of a share of pairs in a figure: it is a length to look at, and no test."""

# Index legend: draw; i, j cells of one group; k index.


def rank_correlations(
    claim: RankCorrelation, estimates: Estimates, index: Estimates, chosen: list[int]
) -> Iterator[Comparison]:
    """Yield, for each level of the factor ``by``, Spearman's rank correlation of the measure with the index."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    for cells in groups_by((claim.by,) if claim.by else (), estimates, chosen):
        value = sign * spearman(tied(index.values[None, cells]), estimates.values[None, cells])[0]
        draws = sign * spearman(tied(index.draws(cells)), estimates.draws(cells))
        text = f"{claim.direction} rank correlation of {claim.measure} with {claim.against}, {len(cells)} cells"
        yield _compared(text, claim.by, estimates, cells, value, draws, (claim.at_least, np.inf))


def violations(claim: ViolatedPairs, estimates: Estimates, index: Estimates, chosen: list[int]) -> Iterator[Comparison]:
    """Yield, for each level of ``by``, the share of pairs of cells that the index puts in the wrong order."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    for cells in groups_by((claim.by,) if claim.by else (), estimates, chosen):
        value = violated_share(index.values[cells], sign * estimates.values[None, cells])[0]
        draws = violated_share(index.values[cells], sign * estimates.draws(cells))
        text = f"share of pairs whose {claim.measure} is not {claim.direction} in {claim.against}, {len(cells)} cells"
        yield _compared(text, claim.by, estimates, cells, value, draws, (-np.inf, claim.at_most))


def wrong_pairs(
    estimates: Estimates, indices: list[Estimates], chosen: list[int], apart: tuple[str, ...]
) -> tuple[Array, Array]:
    """Return the share of pairs of cells of which the more diverse has the larger measure, and its MCSE.

    Parameters
    ----------
    estimates
        The measure in the cells of a grid.
    indices
        Each index in the same cells.
    chosen
        Cells that are compared.
    apart
        Factors whose levels are not compared with one another.

    Returns
    -------
    (cell, index) arrays
        The same in all cells that are compared with one another; NaN in other cells, and where no two differ.
    """
    shares, errors = (np.full((len(estimates.values), len(indices)), np.nan) for _ in range(2))
    for cells in groups_by(apart, estimates, chosen):
        draws = estimates.draws(cells, SHARE_DRAWS)
        for k, index in enumerate(indices):
            shares[cells, k] = violated_share(index.values[cells], -estimates.values[None, cells])[0]
            errors[cells, k] = violated_share(index.values[cells], -draws).std()
    return shares, errors


def _compared(
    text: str, by: str | None, estimates: Estimates, cells: list[int], value: float, draws: Array,
    bounds: tuple[float, float],
) -> Comparison:  # fmt: skip
    place = at(estimates.coordinates[cells[0]], (by,) if by else ())
    claimed = next(bound for bound in bounds if np.isfinite(bound))
    # The mean of equal shares rounds, and would leave an error of that size.
    mcse = float(draws.std()) if np.ptp(draws) > 0 else 0.0
    return Comparison(text + place, float(value), mcse, *bounds, claimed, 1, draws)


def spearman(x: Array, y: Array) -> Array:
    """Return Spearman's rank correlation along the last axis, ties sharing their mean rank: (draw,)."""
    ranks = [stats.rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2 for values in (x, y)]
    norms = [np.sqrt((rank * rank).sum(axis=-1)) for rank in ranks]
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Array = (ranks[0] * ranks[1]).sum(axis=-1) / (norms[0] * norms[1])
    return correlation


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
