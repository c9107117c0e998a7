"""Claims on the order of cells: against p-values of pairs, with an index that has an error, ties, and levels apart."""

import pytest
from exact_estimates import claim, exact_estimates

from simstudy.verdicts.comparisons import Comparison, Selected
from simstudy.verdicts.evidence import p_above, p_below
from simstudy.verdicts.orderings import violations


def selected(values, index, index_error: float = 0.0, sides: str = "") -> Selected:
    levels = [{"x": float(k), "side": side} for k, side in enumerate(sides or "a" * len(values))]
    measure, diversity = exact_estimates(levels, values, 1.0), exact_estimates(levels, index, index_error)
    return Selected(measure, list(range(len(values))), ("x", "side"), None, diversity)


def stated(**entries):
    return claim(
        **{"kind": "violated_pairs", "against": "chordal", "direction": "increasing", "at_most": 0.0} | entries
    )


def wrong_share(of: Selected, **entries) -> Comparison:
    (found,) = violations(stated(**entries), of)
    return found


@pytest.mark.parametrize(("direction", "sign"), [("increasing", 1.0), ("decreasing", -1.0)])
def test_two_cells__have_the_evidence_of_their_difference(direction, sign):
    of = selected([0.0, 5.0 * sign], [1.0, 2.0])
    apart, found = of.estimates.combine({1: sign, 0: -sign}), wrong_share(of, direction=direction)
    assert found.evidence.against == pytest.approx(p_below(apart, 0.0))
    assert found.evidence.in_favour == pytest.approx(p_above(apart, 0.0))
    assert found.estimate == 0.0


@pytest.mark.parametrize(("values", "side"), [([0.0, 9.0], 1), ([9.0, 0.0], 0)])
def test_pair_whose_index_is_in_doubt__is_proven_no_better_than_its_order(values, side):
    of = selected(values, [1.0, 3.5], index_error=1.0)
    order = p_below(of.diversity.combine({0: 1.0, 1: -1.0}), 0.0)
    assert wrong_share(selected(values, [1.0, 3.5])).evidence[side] < 0.01 * order
    assert wrong_share(of).evidence[side] == pytest.approx(order)


def test_values_of_an_index_that_rounding_tells_apart__are_one():
    """Otherwise the measure would have to rise from the first cell to the second."""
    of = selected([40.0, 0.0, 80.0], [0.5 - 1e-16, 0.5, 0.8])
    assert wrong_share(of, at_most=0.0).evidence.in_favour < 1e-6


def test_interval__is_from_the_last_contradicted_to_the_first_supported_bound():
    of = selected([100.0, 0.0, 200.0, 200.1], range(4))  # one pair violated, one in doubt, of six
    assert wrong_share(of).confidence(0.01) == (pytest.approx(1 / 6), pytest.approx(1 / 3))
    assert wrong_share(of, at_most=0.16).evidence.against < 0.01 > wrong_share(of, at_most=0.34).evidence.in_favour


@pytest.mark.parametrize("bound", [0.1661, 0.1673, 0.33, 0.335, 0.59, 0.99])
def test_interval__agrees_with_the_verdict_and_holds_the_estimate(bound):
    found = wrong_share(selected([100.0, 0.0, 200.0, 200.1], range(4)), at_most=bound)
    low, high = found.confidence(0.01)
    assert low - 1e-6 <= found.estimate <= high + 1e-6
    assert (found.evidence.in_favour < 0.01) == (high <= bound)
    assert (found.evidence.against < 0.01) == (low > bound - 1e-8)


@pytest.mark.parametrize(("entries", "drawn"), [({"by": "side"}, ()), ({}, ("side",))], ids=["by", "domain"])
def test_levels_of_a_factor_and_drawn_settings__are_judged_apart(entries, drawn):
    of = selected([0.0, 10.0, 1.0, 20.0, 0.0, 9.0], [1.0, 2.0, 1.0, 2.0, 1.0, 1.0], sides="aabbcc")
    found = list(violations(stated(**entries), of._replace(drawn=drawn)))
    assert [len(each.cells) for each in found] == [2, 2, 2] and "at side = b" in found[1].statistic
    # Without a pair that the index orders there is nothing to prove, either way.
    assert found[2].evidence == (1.0, 1.0)
