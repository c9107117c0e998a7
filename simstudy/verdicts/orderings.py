"""Does a diversity index order the cells as a measure does? Rank correlation, and pairs of cells in the wrong order."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from simstudy.design.claims import OrderingClaim, RankCorrelation, ViolatedPairs
from simstudy.design.settings.levels import by_levels
from simstudy.verdicts.comparisons import Bounds, Comparison, OrderedPairs, Selected, at, inside
from simstudy.verdicts.estimates import Array, contrast_of
from simstudy.verdicts.evidence import NOTHING, Evidence, failing_weigh_at_most, p_above, p_below, spearman_budget

TIE = 1e-9
"""Values of an index closer than this, relative to the largest, are equal: they differ by rounding alone."""
N_BOUNDS = 101
"""Bounds that are tried for the confidence interval of a share or a correlation, beside the one that is claimed."""
HALVINGS = 30
"""How often the gap between two of them, where the evidence turns, is halved to find the end of the interval."""
SHARE_DRAWS = 999
"""Draws that give the error of a share of pairs: in a figure, and what replicates add to the error over heads."""
SIMULATED = 0.1
"""Share of the squared error of a statistic of heads below which more replicates are not asked for."""

# Index legend: draw; i, j cells of one group; k index.


class Statistic(NamedTuple):
    """A statistic of the order of cells, and what a claim says of it."""

    words: str  # What it is
    # From the index (cell,) and draws of the measure (draw, cell), which the claim says rises, to (draw,)
    of: Callable[[Array, Array], Array]
    # From the index to the weights of pairs in the wrong order, and from a bound to what these may weigh in all
    pairs: Callable[[Array], tuple[Array, Callable[[float], float]]]
    bounds: Bounds  # The interval claimed, of which one end is finite
    tried: Array  # Ever weaker bounds, for the confidence interval
    scale: float  # By how much a rare head that lies anywhere moves it, over the share of pairs that this head turns


def rank_correlations(claim: RankCorrelation, of: Selected) -> Iterator[Comparison]:
    """Yield, for each level of the factor ``by``, Spearman's rank correlation of the measure with the index."""

    def correlation(index: Array, measure: Array) -> Array:
        return spearman(np.broadcast_to(tied(index), measure.shape), measure)

    def pairs(index: Array) -> tuple[Array, Callable[[float], float]]:
        ranks = mean_ranks(index)
        first, second = np.nonzero(index[:, None] < index)
        return ranks[second] - ranks[first], partial(spearman_budget, ranks)

    words = f"{claim.direction} rank correlation of {claim.measure} with {claim.against}"
    # From large to small: what is claimed of a large correlation implies what is claimed of a smaller one.
    tried = np.sort([*np.linspace(-1.0, 1.0, N_BOUNDS), claim.at_least])[::-1]
    yield from _judged(claim, of, Statistic(words, correlation, pairs, (claim.at_least, np.inf), tried, 3.0))


def violations(claim: ViolatedPairs, of: Selected) -> Iterator[Comparison]:
    """Yield, for each level of ``by``, the share of pairs of cells that the index puts in the wrong order."""

    def pairs(index: Array) -> tuple[Array, Callable[[float], float]]:
        n_pairs = int(np.count_nonzero(index[:, None] < index))
        return np.full(n_pairs, 1.0 / max(n_pairs, 1)), lambda share: share

    words = f"share of pairs whose {claim.measure} is not {claim.direction} in {claim.against}"
    tried = np.sort([*np.linspace(0.0, 1.0, N_BOUNDS), claim.at_most])
    yield from _judged(claim, of, Statistic(words, violated_share, pairs, (-np.inf, claim.at_most), tried, 1.0))


def _judged(claim: OrderingClaim, of: Selected, statistic: Statistic) -> Iterator[Comparison]:
    sign = 1.0 if claim.direction == "increasing" else -1.0
    by = (claim.by,) if claim.by else ()
    for cells in by_levels(of.estimates.conditions, by, of.chosen):
        group = at(of.estimates.conditions[cells[0]], by)
        text = f"{statistic.words}, {len(cells)} {'heads' if claim.over else 'cells'}{group}"
        judge = _over_cells if claim.over is None else _over_heads
        yield judge(text, of, cells, statistic, sign)


def _over_cells(text: str, of: Selected, cells: list[int], statistic: Statistic, sign: float) -> Comparison:
    """Compare a statistic of the order of given cells with bounds, by the evidence on their pairs."""
    index = of.diversity.values[cells]
    value = float(statistic.of(index, sign * of.estimates.values[None, cells])[0])
    weights, budget = statistic.pairs(tied(index))
    found = _ordered_pairs(of, cells, sign)

    def evidence(bound: float) -> Evidence:
        return failing_weigh_at_most(budget(bound), weights, found.evidence) if len(weights) else NOTHING

    def confidence(level: float) -> Bounds:
        """From the last of ever weaker bounds that is contradicted to the first that is supported, or back."""
        contradicted, _ = _turn(lambda bound: evidence(bound).against >= level, statistic.tried)
        _, supported = _turn(lambda bound: evidence(bound).in_favour < level, statistic.tried)
        return min(contradicted, supported), max(contradicted, supported)

    stated = next(bound for bound in statistic.bounds if np.isfinite(bound))
    return Comparison(
        text, value, np.nan, *statistic.bounds, stated, evidence(stated), confidence, tuple(cells), ordered=found
    )


def _ordered_pairs(of: Selected, cells: list[int], sign: float) -> OrderedPairs:
    """Evidence that the measure, or its negative, has the order of each pair; none where the index is in doubt."""
    index, measure = tied(of.diversity.values[cells]), of.estimates.differences(cells)
    first, second = np.nonzero(index[:, None] < index)
    rises, falls = p_below(measure, 0.0)[first, second], p_above(measure, 0.0)[first, second]
    alone = Evidence(falls, rises) if sign > 0 else Evidence(rises, falls)
    unsure = p_below(of.diversity.differences(cells), 0.0)[first, second]
    place = np.array(cells, int)
    return OrderedPairs(
        place[first],
        place[second],
        measure.value[second, first],
        measure.mcse[second, first],
        Evidence(*(np.maximum(p, unsure) for p in alone)),
    )


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


def _over_heads(text: str, of: Selected, cells: list[int], statistic: Statistic, sign: float) -> Comparison:
    """Compare a statistic with bounds for a population of heads: errors by leaving each out, and of the measure."""
    n, index = len(cells), of.diversity.values[cells]
    measure = sign * of.estimates.values[None, cells]
    whole = statistic.of(index, measure)[0]
    left_out = [statistic.of(np.delete(index, h), np.delete(measure, h, axis=1))[0] for h in range(n)]
    pseudo = n * whole - (n - 1) * np.array(left_out)
    influence = (pseudo - pseudo.mean()) / np.sqrt(n * (n - 1))
    drawn = statistic.of(index, sign * of.estimates.draws(cells, SHARE_DRAWS))
    simulated = float(drawn.var() + (drawn.mean() - whole) ** 2)
    few = 2.0 / (n + 4)
    floor = statistic.scale**2 * few * (1.0 - few) / (n + 4) - float((influence**2).sum())
    contrast = contrast_of(pseudo.mean(), influence, simulated + max(floor, 0.0), n)
    stated = next(bound for bound in statistic.bounds if np.isfinite(bound))
    # Replicates are no remedy where the heads are too few.
    wanting = cells if simulated > SIMULATED * contrast.mcse**2 else ()
    return inside(text, contrast._replace(given=np.sqrt(simulated)), statistic.bounds, stated, wanting)


def spearman(x: Array, y: Array) -> Array:
    """Return Spearman's rank correlation along the last axis, ties sharing their mean rank: (draw,)."""
    ranks = [mean_ranks(values) - (values.shape[-1] + 1) / 2 for values in (x, y)]
    norms = [np.sqrt((rank * rank).sum(axis=-1)) for rank in ranks]
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Array = (ranks[0] * ranks[1]).sum(axis=-1) / (norms[0] * norms[1])
    return correlation


def mean_ranks(values: Array) -> Array:
    """Return ranks along the last axis, from 1 on, ties sharing their mean rank; NaN beside a NaN."""
    from scipy.stats import rankdata  # its import takes most of a second, which few studies need

    return np.asarray(rankdata(values, axis=-1), float)


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
