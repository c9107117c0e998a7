"""Does a diversity index order the cells as a measure does? Rank correlation, and pairs of cells in the wrong order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.design.claims import OrderingClaim, RankCorrelation, ViolatedPairs
from simstudy.verdicts.comparisons import Comparison, OrderedPairs, Selected, at, groups_by, inside
from simstudy.verdicts.estimates import Estimates, contrast_of
from simstudy.verdicts.evidence import p_above, p_below
from simstudy.verdicts.logic import NOTHING, Evidence, failing_weigh_at_most, spearman_budget

Array = NDArray[np.float64]

TIE = 1e-9
"""Values of an index closer than this, relative to the largest, are equal: they differ by rounding alone."""
N_BOUNDS = 101
"""Bounds that are tried for the confidence interval of a share or a correlation, beside the one that is claimed."""
HALVINGS = 30
"""How often the gap between two of them, where the evidence turns, is halved to find the end of the interval."""
SHARE_DRAWS = 999
"""Draws that give the error of a share of pairs in a figure: it is a length to look at, and no test."""
SIMULATED = 0.1
"""Share of the squared error of a statistic of heads below which more replicates are not asked for."""
SHARE_TO_CORRELATION = 3.0
"""A rare head that lies anywhere lowers Spearman's correlation by three times the share of pairs that it turns."""

# Index legend: draw; i, j cells of one group; k index.


class Pairs(NamedTuple):
    """Pairs of cells that an index orders: their weights (pair,), and the evidence that the measure has the order."""

    weights: Array
    ordered: Evidence

    @classmethod
    def of(cls, pairs: OrderedPairs, weights: Array) -> Pairs:
        """Return pairs with their weights."""
        return cls(weights, Evidence(pairs.against, pairs.in_favour))


def rank_correlations(claim: RankCorrelation, of: Selected) -> Iterator[Comparison]:
    """Yield, for each level of the factor ``by``, Spearman's rank correlation of the measure with the index."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    for cells in groups_by((claim.by,) if claim.by else (), of.estimates, of.chosen):
        index = tied(_index(of).values[cells])
        if claim.over is not None:
            statistic = partial(_correlation, index, sign)
            yield _over_heads(claim, of, cells, statistic, (claim.at_least, np.inf), SHARE_TO_CORRELATION)
            continue
        value = sign * spearman(index[None], of.estimates.values[None, cells])[0]
        ranks = mean_ranks(index)
        first, second = _ordered(index)
        found = _differences(of, cells, first, second, sign)
        pairs = Pairs.of(found, ranks[second] - ranks[first])
        # From large to small: what is claimed of a large correlation implies what is claimed of a smaller one.
        tried = np.sort([*np.linspace(-1.0, 1.0, N_BOUNDS), claim.at_least])[::-1]
        reach = partial(_reach, partial(_at_least, pairs, ranks), tried)
        bounds = (claim.at_least, np.inf)
        evidence = _at_least(pairs, ranks, claim.at_least)
        yield _compared(claim, of, cells, float(value), bounds, evidence, reach)._replace(ordered=found)


def violations(claim: ViolatedPairs, of: Selected) -> Iterator[Comparison]:
    """Yield, for each level of ``by``, the share of pairs of cells that the index puts in the wrong order."""
    sign = 1.0 if claim.direction == "increasing" else -1.0
    for cells in groups_by((claim.by,) if claim.by else (), of.estimates, of.chosen):
        index = _index(of).values[cells]
        if claim.over is not None:
            statistic = partial(_share, index, sign)
            yield _over_heads(claim, of, cells, statistic, (-np.inf, claim.at_most), 1.0)
            continue
        value = violated_share(index, sign * of.estimates.values[None, cells])[0]
        first, second = _ordered(tied(index))
        found = _differences(of, cells, first, second, sign)
        pairs = Pairs.of(found, np.full(len(first), 1.0 / max(len(first), 1)))
        tried = np.sort([*np.linspace(0.0, 1.0, N_BOUNDS), claim.at_most])
        reach = partial(_reach, partial(_at_most, pairs), tried)
        bounds = (-np.inf, claim.at_most)
        evidence = _at_most(pairs, claim.at_most)
        yield _compared(claim, of, cells, float(value), bounds, evidence, reach)._replace(ordered=found)


def _index(of: Selected) -> Estimates:
    assert of.diversity is not None  # `judge` gives it to every claim on an order
    return of.diversity


def _ordered(index: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the cells of all pairs whose index differs, the smaller index first."""
    first, second = np.nonzero(index[:, None] < index)
    return first, second


def _differences(
    of: Selected, cells: list[int], first: NDArray[np.intp], second: NDArray[np.intp], sign: float
) -> OrderedPairs:
    """Evidence that the measure, or its negative, has the order of each pair; none where that of the index is in doubt.

    The order of an index that has an error itself is the one estimated: where it is not proven, neither is the pair.
    """
    measure = of.estimates.differences(cells)
    rises, falls = p_below(measure, 0.0)[first, second], p_above(measure, 0.0)[first, second]
    against, in_favour = (falls, rises) if sign > 0 else (rises, falls)
    unsure = p_below(_index(of).differences(cells), 0.0)[first, second]
    place = np.array(cells, int)
    return OrderedPairs(
        place[first], place[second], measure.value[second, first], measure.mcse[second, first],
        np.maximum(against, unsure), np.maximum(in_favour, unsure),
    )  # fmt: skip


def _at_most(pairs: Pairs, share: float) -> Evidence:
    """Evidence on at most such a share of pairs being in the wrong order."""
    return failing_weigh_at_most(share, *pairs) if len(pairs.weights) else NOTHING


def _at_least(pairs: Pairs, ranks: Array, correlation: float) -> Evidence:
    """Evidence on Spearman's correlation being at least so large."""
    return failing_weigh_at_most(spearman_budget(ranks, correlation), *pairs) if len(pairs.weights) else NOTHING


def _reach(claimed: Callable[[float], Evidence], bounds: Array, level: float) -> tuple[float, float]:
    """The last of ever weaker bounds that is contradicted, and the first that is supported: the truth lies between."""
    contradicted, _ = _turn(lambda bound: claimed(bound).against >= level, bounds)
    _, supported = _turn(lambda bound: claimed(bound).in_favour < level, bounds)
    low, high = sorted((contradicted, supported))
    return low, high


def _turn(holds: Callable[[float], Any], bounds: Array) -> tuple[float, float]:
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


def _correlation(index: Array, sign: float, measure: Array, kept: NDArray[np.intp]) -> Array:
    return sign * spearman(np.broadcast_to(index[kept], measure[:, kept].shape), measure[:, kept])


def _share(index: Array, sign: float, measure: Array, kept: NDArray[np.intp]) -> Array:
    return violated_share(index[kept], sign * measure[:, kept])


def _over_heads(
    claim: OrderingClaim, of: Selected, cells: list[int], statistic: Callable[[Array, NDArray[np.intp]], Array],
    bounds: tuple[float, float], scale: float,
) -> Comparison:  # fmt: skip
    """Compare a statistic of the order with bounds for the population of heads of which the cells are a sample.

    It is a U-statistic of the heads, or a smooth function of such, so that leaving each head out gives its error.  To
    this comes what the errors of the measure add: how the statistic varies over draws of them, and how they shift it.
    No wrong pair among few heads does not mean that there is none: the error is never below what Agresti and Coull
    (1998) have for no success in as many trials.
    """
    n, everything = len(cells), np.arange(len(cells))
    measure = of.estimates.values[None, cells]
    whole = statistic(measure, everything)[0]
    left_out = np.array([statistic(measure, np.delete(everything, head))[0] for head in everything])
    pseudo = n * whole - (n - 1) * left_out
    influence = (pseudo - pseudo.mean()) / np.sqrt(n * (n - 1))
    drawn = statistic(of.estimates.draws(cells, SHARE_DRAWS), everything)
    simulated = float(drawn.var() + (drawn.mean() - whole) ** 2)
    few = 2.0 / (n + 4)
    floor = scale**2 * few * (1.0 - few) / (n + 4) - float((influence**2).sum())
    contrast = contrast_of(pseudo.mean(), influence, simulated + max(floor, 0.0), n)
    text, claimed = _described(claim, of, cells), next(bound for bound in bounds if np.isfinite(bound))
    # Replicates are no remedy where the heads are too few.
    wanting = tuple(cells) if simulated > SIMULATED * contrast.mcse**2 else ()
    return inside(text, contrast._replace(given=np.sqrt(simulated)), bounds, claimed, wanting)


def _described(claim: OrderingClaim, of: Selected, cells: list[int]) -> str:
    what = f"{claim.direction} rank correlation of {claim.measure} with {claim.against}"
    if isinstance(claim, ViolatedPairs):
        what = f"share of pairs whose {claim.measure} is not {claim.direction} in {claim.against}"
    group = at(of.estimates.coordinates[cells[0]], (claim.by,) if claim.by else ())
    return f"{what}, {len(cells)} {'heads' if claim.over else 'cells'}{group}"


def _compared(
    claim: OrderingClaim, of: Selected, cells: list[int], value: float, bounds: tuple[float, float],
    evidence: Evidence, confidence: Callable[[float], tuple[float, float]],
) -> Comparison:  # fmt: skip
    claimed = next(bound for bound in bounds if np.isfinite(bound))
    return Comparison(_described(claim, of, cells), value, np.nan, *bounds, claimed, evidence, confidence, tuple(cells))


def spearman(x: Array, y: Array) -> Array:
    """Return Spearman's rank correlation along the last axis, ties sharing their mean rank: (draw,)."""
    ranks = [mean_ranks(values) - (values.shape[-1] + 1) / 2 for values in (x, y)]
    norms = [np.sqrt((rank * rank).sum(axis=-1)) for rank in ranks]
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Array = (ranks[0] * ranks[1]).sum(axis=-1) / (norms[0] * norms[1])
    return correlation


def mean_ranks(values: Array) -> Array:
    """Return ranks along the last axis, from 1 on, ties sharing their mean rank; NaN beside a NaN.

    As `scipy.stats.rankdata` gives them, whose import takes a second.
    """
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    begins = np.ones(values.shape, bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    ends = np.roll(begins, -1, axis=-1)
    places = np.broadcast_to(np.arange(1.0, values.shape[-1] + 1.0), values.shape)
    first = np.maximum.accumulate(np.where(begins, places, 0.0), axis=-1)
    last = np.minimum.accumulate(np.where(ends, places, np.inf)[..., ::-1], axis=-1)[..., ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2, axis=-1)
    return np.where(np.isnan(values).any(axis=-1, keepdims=True), np.nan, ranks)


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
