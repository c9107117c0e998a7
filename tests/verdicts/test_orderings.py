"""Claims on the order of cells: against p-values of pairs, with an index that has an error, ties, and levels apart."""

from __future__ import annotations

import numpy as np
import pytest
from exact_estimates import claim, exact_estimates
from scipy import stats

from simstudy.verdicts.comparisons import Comparison, Selected
from simstudy.verdicts.evidence import p_above, p_below
from simstudy.verdicts.orderings import rank_correlations, violations

RISING = {"against": "chordal", "direction": "increasing"}


def selected(values, index, index_error: float = 0.0, sides: str = "") -> Selected:
    levels = [{"x": float(k), "side": side} for k, side in enumerate(sides or "a" * len(values))]
    measure, diversity = exact_estimates(levels, values, 1.0), exact_estimates(levels, index, index_error)
    return Selected(measure, list(range(len(values))), ("x", "side"), None, diversity)


def wrong_share(of: Selected, **entries) -> Comparison:
    (found,) = violations(claim(kind="violated_pairs", **{"at_most": 0.0} | RISING | entries), of)
    return found


def correlation(of: Selected, **entries) -> Comparison:
    (found,) = rank_correlations(claim(kind="rank_correlation", **RISING | entries), of)
    return found


@pytest.mark.parametrize(("direction", "sign"), [("increasing", 1.0), ("decreasing", -1.0)])
def test_two_cells__have_the_evidence_of_their_difference(direction, sign):
    """One pair in order means a correlation of at least 0, and no pair violated."""
    of = selected([0.0, 5.0 * sign], [1.0, 2.0])
    apart = of.estimates.combine({1: sign, 0: -sign})
    for found in (wrong_share(of, at_most=0.0, direction=direction), correlation(of, direction=direction)):
        assert found.evidence.against == pytest.approx(p_below(apart, 0.0))
        assert found.evidence.in_favour == pytest.approx(p_above(apart, 0.0))
        assert found.estimate == pytest.approx(float("correlation" in found.statistic))
        assert found.ordered.estimate.tolist() == [5.0 * sign]


@pytest.mark.parametrize(("values", "side"), [([0.0, 9.0], 1), ([9.0, 0.0], 0)])
def test_pair_whose_index_is_in_doubt__is_proven_no_better_than_its_order(values, side):
    of = selected(values, [1.0, 3.5], index_error=1.0)
    order = p_below(of.diversity.combine({0: 1.0, 1: -1.0}), 0.0)
    sure = selected(values, [1.0, 3.5])
    for judge in (wrong_share, correlation):
        assert judge(sure).evidence[side] < 0.01 * order
        assert judge(of).evidence[side] == pytest.approx(order)


def test_values_of_an_index_that_rounding_tells_apart__are_one():
    """Otherwise the measure would have to rise from the first cell to the second."""
    of = selected([40.0, 0.0, 80.0], [0.5 - 1e-16, 0.5, 0.8])
    assert wrong_share(of, at_most=0.0).evidence.in_favour < 1e-6
    found = correlation(of, at_least=0.8)
    assert found.evidence.in_favour < 1e-6
    assert found.estimate == pytest.approx(stats.spearmanr([40, 0, 80], [0.5, 0.5, 0.8]).statistic)


def test_pairs_of_a_correlation__weigh_as_their_ranks_differ():
    """Two pairs in the wrong order may cost three times what one does: 1 − 6 Σ d²/n(n² − 1)."""
    near, far = selected([100.0, 0.0, 200.0, 300.0], range(4)), selected([200.0, 0.0, 100.0, 300.0], range(4))
    tie = selected([100.0, 0.0, 200.0, 300.0], [0.0, 1.0, 1.0, 2.0])  # ranks 1, 2.5, 2.5 and 4
    for of, truth in ((near, 1 - 6 * 2 / 60), (far, 1 - 6 * 6 / 60), (tie, 3.0 / np.sqrt(4.5 * 5.0))):
        assert correlation(of).estimate == pytest.approx(truth)
        assert correlation(of, at_least=truth - 1e-9).evidence.in_favour < 1e-6
        assert correlation(of, at_least=truth + 0.01).evidence.against < 1e-6


def test_interval__is_from_the_last_contradicted_to_the_first_supported_bound():
    of = selected([100.0, 0.0, 200.0, 200.1], range(4))  # one pair violated, one in doubt, of six
    assert wrong_share(of).confidence(0.01) == (pytest.approx(1 / 6), pytest.approx(1 / 3))
    low, high = correlation(of).confidence(0.01)
    assert (low, high) == (pytest.approx(0.6), pytest.approx(0.8))
    assert correlation(selected([300.0, 200.0, 100.0, 0.0], range(4))).confidence(0.01) == pytest.approx((-1.0, -1.0))
    assert wrong_share(of, at_most=0.16).evidence.against < 0.01 > wrong_share(of, at_most=0.34).evidence.in_favour


@pytest.mark.parametrize("bound", [0.1661, 0.1673, 0.33, 0.335, 0.59, 0.599, 0.601, 0.7995, 0.8005, 0.99])
def test_interval__agrees_with_the_verdict_and_holds_the_estimate(bound):
    of = selected([100.0, 0.0, 200.0, 200.1], range(4))
    for found, sign in ((wrong_share(of, at_most=bound), 1.0), (correlation(of, at_least=bound), -1.0)):
        low, high = found.confidence(0.01)
        assert low - 1e-6 <= found.estimate <= high + 1e-6
        near, far = sorted((sign * low, sign * high))
        assert (found.evidence.in_favour < 0.01) == (far <= sign * bound)
        assert (found.evidence.against < 0.01) == (near > sign * bound - 1e-8)


def test_levels_of_a_factor__are_judged_apart():
    of = selected([0.0, 10.0, 1.0, 20.0, 0.0, 9.0], [1.0, 2.0, 1.0, 2.0, 1.0, 1.0], sides="aabbcc")
    shares = violations(claim(kind="violated_pairs", by="side", at_most=0.0, **RISING), of)
    for judged in (shares, rank_correlations(claim(kind="rank_correlation", by="side", **RISING), of)):
        found = list(judged)
        assert [len(each.cells) for each in found] == [2, 2, 2] and "at side = b" in found[1].statistic
        # Without a pair that the index orders there is nothing to prove, either way.
        assert found[2].evidence == (1.0, 1.0)
