"""Optima, how they move, and orderings: against cases by hand, numerical derivatives and repeated draws."""

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from exact_estimates import N_BLOCKS, claim, derived, exact_estimates
from scipy import stats

from simstudy.verdicts.comparisons import Comparison, Predictions, Selected
from simstudy.verdicts.estimates import Estimates
from simstudy.verdicts.evidence import interval, p_above, p_below, possible_minima
from simstudy.verdicts.judge import decide
from simstudy.verdicts.optima import MOST_WAYS, SPENT, Profile, optima, optimum_shares, optimum_slopes, theory_profile
from simstudy.verdicts.orderings import violated_share, violations, wrong_pairs

TUNED = {"x": "head_dim", "tune": ("bandwidth",)}
stated = partial(claim, kind="violated_pairs", against="chordal", direction="increasing", at_most=0.0)
X, Z, ERROR = 2.0 ** np.arange(5), np.array([2.0, 8.0]), 0.01
SURE = [4.0, 2.0, 1.0, 1.5, 5.0]  # least at the third level for certain


def noisy(levels: list[dict], values, error: float) -> Estimates:
    n = len(levels)
    contributions = [own * error / np.linalg.norm(own) for own in np.random.default_rng(0).normal(size=(n, N_BLOCKS))]
    counts = np.full(n, N_BLOCKS), np.zeros(n), np.full(n, np.inf)
    return Estimates(levels, np.array(values, float), contributions, [(3, 256)] * n, *counts)


def test_profile__finds_the_vertex_of_a_parabola_in_the_logarithm():
    uneven, levels = np.array([1.0, 3.0, 4.0, 8.0]), np.array([1.0, 2.0, 4.0, 8.0])
    assert Profile(uneven, 5.0 + 0.3 * (np.log(uneven) - np.log(2.5)) ** 2).refined == pytest.approx(2.5)
    for vertex in (1.5, 2.0, 3.1, 5.5):
        assert Profile(levels, 5.0 + 0.3 * (np.log(levels) - np.log(vertex)) ** 2).refined == pytest.approx(vertex)
    for rising in ([1.0, 2.0, 3.0, 4.0], [1.0] * 4, [1.0, 2.0, 4.0, 8.0]):
        assert Profile(levels, np.array(rising)).refined == 1.0
    assert Profile(levels, np.array([8.0, 4.0, 2.0, 1.0])).refined == pytest.approx(8.0)


def allocation(error: float, law) -> tuple[Estimates, list[int]]:
    """Least at head_dim = law(n), with a bandwidth whose second level is worse everywhere."""
    crossed = [*itertools.product((128, 512, 2048, 8192, 32768), 2.0 ** np.arange(5), (0, 1))]
    values = [1 + (np.log(dim) - np.log(law(n))) ** 2 + worse for n, dim, worse in crossed]
    levels = [{"n_keys": n, "head_dim": dim, "bandwidth": (1.0 + worse) / 2} for n, dim, worse in crossed]
    return noisy(levels, values, error), list(range(len(levels)))


def of(estimates: Estimates, chosen: list[int], theory=None) -> Selected:
    told = None if theory is None else Predictions(theory, np.zeros_like(theory))
    return Selected(estimates, chosen, ("n_keys", "head_dim", "bandwidth"), told, level=0.01)


def test_optimum__is_found_with_what_is_tuned_and_judged_by_its_draws():
    estimates, chosen = allocation(0.01, lambda n: 4.0)
    right, wrong = (claim(kind="optimum", value=value, **TUNED) for value in (4.0, 8.0))
    comparisons = list(optima(right, of(estimates, chosen)))
    assert [c.estimate for c in comparisons] == [4.0] * 5
    assert decide(comparisons, 0.01).verdict == "supported" and comparisons[0].confidence(0.01) == (4.0, 4.0)
    assert decide(list(optima(wrong, of(estimates, chosen))), 0.01).verdict == "contradicted"
    vague, chosen = allocation(2.0, lambda n: 4.0)
    assert decide(list(optima(right, of(vague, chosen))), 0.01).verdict == "undecided"
    estimates.n_blocks[:] = 63
    assert all(each.reason.startswith("63 blocks") for each in optima(right, of(estimates, chosen)))


def one_profile(values: list[float], **entries) -> Comparison:
    levels = [{"x": 2.0**k} for k in range(len(values))]
    judged = Selected(exact_estimates(levels, values, 0.01), list(range(len(values))), ("x",))
    (found,) = optima(claim(kind="optimum", x="x", **entries), judged)
    return found


def test_optimum__without_a_choice_or_a_value_says_so_and_its_set_is_at_the_level_that_is_asked():
    assert one_profile([2.0, 1.0, 2.0], value=2.0, ratio=2.0).reason == "every level with a value lies within the ratio"
    nowhere = one_profile([2.0, np.nan, 3.0], value=2.0, ratio=1.1)
    assert nowhere.reason == "no level with a value lies within the ratio"
    assert decide([one_profile([2.0, 1.0, np.nan], value=2.0, ratio=1.1)], 0.01).verdict == "supported"
    found = one_profile([1.0, 1.04, 3.0], value=1.0, ratio=1.1)
    apart = exact_estimates([{"x": 1.0}, {"x": 2.0}], [1.0, 1.04], 0.01).combine({1: 1.0, 0: -1.0})
    p = 2 * float(p_above(apart, 0.0))  # of the second level, by Bonferroni's correction for two others
    assert found.confidence(1.01 * p) == (1.0, 1.0) and found.confidence(0.99 * p) == (1.0, 2.0)


@pytest.mark.parametrize("told, verdict", [
    (1.0, "contradicted"), (2.0, "supported"), (8.0, "supported"), (16.0, "contradicted"),
])  # fmt: skip
def test_optimum__may_be_claimed_by_theory_and_lie_anywhere_within_the_ratio(told, verdict):
    theory, _ = allocation(0.0, lambda n: told)
    stated = claim(kind="optimum", source="leading", ratio=2.0, **TUNED)
    assert decide(list(optima(stated, of(*allocation(0.01, lambda n: 4.0), theory.values))), 0.01).verdict == verdict


def test_optimum__by_theory_that_ends_beside_it_is_not_compared():
    estimates, chosen = allocation(0.01, lambda n: 4.0)
    stated = claim(kind="optimum", source="leading", **TUNED)
    theory, _ = allocation(0.0, lambda n: 4.0)
    ends = np.where([c["head_dim"] > 4 and c["n_keys"] < 8192 for c in estimates.conditions], np.nan, theory.values)
    assert len(list(optima(stated, of(estimates, chosen, theory.values)))) == 5
    assert len(list(optima(stated, of(estimates, chosen, ends)))) == 2


def test_theory_profile__is_silent_where_what_is_tuned_may_be_better_beyond_theory():
    levels, bandwidths = np.repeat([1.0, 2.0, 4.0], 3), [0.5, 0.7, 1.0] * 3
    values = np.array([3.0, 2.0, 2.5, np.nan, 1.0, 1.5, np.nan, 2.0, 1.8])
    profile = theory_profile(levels, [bandwidths], values)
    # At level 2 the least stands beside a gap; at level 4 it does not.
    np.testing.assert_array_equal(profile.values, [2.0, np.inf, 1.8])
    assert not profile.bracketed
    whole = theory_profile(levels, [bandwidths], np.where(np.isnan(values), 9.0, values))
    np.testing.assert_array_equal(whole.values, [2.0, 1.0, 1.8])
    assert whole.bracketed and whole.least == 1
    np.testing.assert_array_equal(theory_profile(levels[::3], [], values[2::3]).values, [2.5, 1.5, 1.8])


def test_optimum_shares__are_how_often_a_cell_is_least():
    levels = [{"head_dim": p, "n_keys": n} for n in (1, 2) for p in (1.0, 2.0, 4.0)]
    estimates = noisy(levels, [1.0, 1.1, 3.0, 2.0, 1.0, 5.0], 0.1)
    shares = optimum_shares(Selected(estimates, [0, 1, 2, 3, 4], ("n_keys", "head_dim")), ("head_dim",))
    expected = stats.norm.cdf(0.1 / (0.1 * 2**0.5))
    assert shares[:3] == pytest.approx([expected, 1 - expected, 0.0], abs=0.03)
    assert shares[3:5] == pytest.approx([0.0, 1.0], abs=1e-3) and np.isnan(shares[5])
    # A cell without a value is never the least.
    estimates.values[0] = np.nan
    shares = optimum_shares(Selected(estimates, [0, 1, 2], ("n_keys", "head_dim")), ("head_dim",))
    assert shares[0] == 0.0 and shares[1] == pytest.approx(1.0, abs=1e-3)


def test_violated_share__takes_values_that_differ_by_rounding_for_ties():
    # The indices of (0, 90) and (45, 45) degrees are equal by definition, and differ in the last bit.
    index = np.array([np.sin(np.pi / 4) ** 2, 0.5, 0.8])
    assert index[0] != index[1]
    for order in ([0, 1, 2], [1, 0, 2]):
        assert violated_share(index[order], np.array([[3.0, 1.0, 2.0]]))[0] == 0.5
    assert np.isnan(violated_share(index[:2], np.array([[3.0, 1.0]]))[0])
    # Otherwise the measure would have to rise from the first cell to the second.
    assert wrong_share(selected([40.0, 0.0, 80.0], [0.5 - 1e-16, 0.5, 0.8]), at_most=0.0).evidence.in_favour < 1e-6


def test_wrong_pairs__compares_within_levels_and_knows_its_error():
    levels = [{"regression": m, "head_seed": k} for m in ("a", "b") for k in range(3)]
    index = noisy(levels, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0], 0.0)
    # Under "a" one of three pairs is wrong for certain; under "b" one is wrong in half of all draws.
    measure = noisy(levels, [3.0, 1.0, 2.0, 5.0, 5.0, 1.0], 0.01)
    shares, errors = wrong_pairs(Selected(measure, [0, 1, 2, 3, 4], ()), [index], ("regression",))
    assert shares[:3, 0] == pytest.approx(1 / 3) and errors[:3, 0] == pytest.approx(0.0, abs=1e-12)
    assert shares[3:5, 0] == pytest.approx(0.0) and errors[3:5, 0] == pytest.approx(0.5, abs=0.01)
    assert np.isnan(shares[5, 0]) and np.isnan(errors[5, 0])


def selected(values, index, index_error: float = 0.0, sides: str = "") -> Selected:
    levels = [{"x": float(k), "side": side} for k, side in enumerate(sides or "a" * len(values))]
    measure, diversity = exact_estimates(levels, values, 1.0), exact_estimates(levels, index, index_error)
    return Selected(measure, list(range(len(values))), ("x", "side"), None, diversity)


def wrong_share(of: Selected, **entries) -> Comparison:
    (found,) = violations(stated(**entries), of)
    return found


@pytest.mark.parametrize(("direction", "sign"), [("increasing", 1.0), ("decreasing", -1.0)])
def test_two_cells__have_the_evidence_of_their_difference(direction, sign):
    of = selected([0.0, 5.0 * sign], [1.0, 2.0])
    apart, found = of.estimates.combine({1: sign, 0: -sign}), wrong_share(of, direction=direction)
    assert found.evidence.against == pytest.approx(p_below(apart, 0.0))
    assert found.evidence.in_favour == pytest.approx(p_above(apart, 0.0)) and found.estimate == 0.0


@pytest.mark.parametrize(("values", "side"), [([0.0, 9.0], 1), ([9.0, 0.0], 0)])
def test_pair_whose_index_is_in_doubt__is_proven_no_better_than_its_order(values, side):
    of = selected(values, [1.0, 3.5], index_error=1.0)
    order = p_below(of.diversity.combine({0: 1.0, 1: -1.0}), 0.0)
    assert wrong_share(selected(values, [1.0, 3.5])).evidence[side] < 0.01 * order
    assert wrong_share(of).evidence[side] == pytest.approx(order)


@pytest.mark.parametrize("bound", [0.16, 0.1661, 0.1673, 0.33, 0.335, 0.59, 0.99])
def test_interval__is_from_the_last_contradicted_to_the_first_supported_bound_and_holds_the_estimate(bound):
    of = selected([100.0, 0.0, 200.0, 200.1], range(4))  # one pair violated, one in why_no_verdict, of six
    found = wrong_share(of, at_most=bound)
    low, high = found.confidence(0.01)
    assert (low, high) == (pytest.approx(1 / 6), pytest.approx(1 / 3))
    assert low - 1e-6 <= found.estimate <= high + 1e-6 and (found.evidence.in_favour < 0.01) == (high <= bound)
    assert (found.evidence.against < 0.01) == (low > bound - 1e-8)


@pytest.mark.parametrize(("entries", "drawn"), [({"by": "side"}, ()), ({}, ("side",))], ids=["by", "domain"])
def test_levels_of_a_factor_and_drawn_settings__are_judged_apart(entries, drawn):
    of = selected([0.0, 10.0, 1.0, 20.0, 0.0, 9.0], [1.0, 2.0, 1.0, 2.0, 1.0, 1.0], sides="aabbcc")
    found = list(violations(stated(**entries), of._replace(drawn=drawn)))
    assert [len(each.cells) for each in found] == [2, 2, 2] and "at side = b" in found[1].statistic
    # Without a pair that the index orders there is nothing to prove, either way.
    assert found[2].evidence == (1.0, 1.0)


def profiles_in(profiles: Sequence[Sequence[float]], z=Z, n_others: int = 1) -> Selected:
    """One profile along x for each z; levels of another factor follow one another at each x."""
    levels = [{"z": along, "x": each, "h": h} for along in z for each in X for h in range(n_others)]
    estimates = exact_estimates(levels, np.concatenate(profiles), ERROR)
    return Selected(estimates, list(range(len(levels))), ("z", "x", "h"), level=0.01)


def slope(of: Selected, value: float = 0.0, margin: float = 0.1, scale: str = "log_log") -> Comparison:
    stated = {"kind": "optimum_slope", "x": "x", "along": "z", "scale": scale, "value": value, "margin": margin}
    (found,) = optimum_slopes(claim(**stated), of)
    return found


def place(profile: Sequence[float]) -> float:
    return float(np.log2(Profile(X, np.array(profile)).refined))


@pytest.mark.parametrize("scale", ["log_x", "log_log"])
def test_slope_of_sure_optima__has_the_evidence_of_its_derivatives(scale):
    profiles = [SURE, [9.0, 4.0, 2.0, 1.0, 1.7]]

    def exactly(values: np.ndarray) -> float:
        optima = np.array([Profile(X, each).refined for each in values.reshape(2, 5)])
        return float(np.diff(np.log(optima) if scale == "log_log" else optima)[0] / np.log(4.0))

    expected = derived(exactly, np.concatenate(profiles), ERROR)
    value = expected.value + 1.5 * expected.mcse
    found = slope(profiles_in(profiles), value, 4 * expected.mcse, scale)
    assert found.estimate == pytest.approx(expected.value)
    assert found.mcse == pytest.approx(expected.mcse, rel=1e-5)
    # The share of the level that is spent on which levels may be least is taken off both.
    ends = value - 4 * expected.mcse, value + 4 * expected.mcse
    assert found.evidence.in_favour == pytest.approx(p_above(expected, ends[0]) / (1 - SPENT), rel=1e-3)
    assert found.confidence(0.01) == pytest.approx(interval(expected, 0.01 * (1 - SPENT)), rel=1e-5)
    for sign, p in ((1, p_below), (-1, p_above)):  # outside on either side
        bound = expected.value + sign * 4 * expected.mcse
        outside = slope(profiles_in(profiles), bound + sign * 0.1, 0.1, scale)
        assert outside.evidence.against == pytest.approx(2 * p(expected, bound) / (1 - SPENT), rel=1e-3)


@pytest.mark.parametrize("in_doubt, lowest, highest", [
    # The third level may be the least, and then its curvature is in doubt: anywhere up to the middles of its steps.
    ([4.0, 1.0, 1.02, 1.08, 4.0], None, 2.5),
    ([4.0, 1.08, 1.02, 1.0, 4.0], 1.5, None),
])  # fmt: skip
def test_slope_of_optima_in_doubt__is_judged_in_the_worst_way(in_doubt, lowest, highest):
    of = profiles_in([SURE, in_doubt])
    low, high = slope(of).confidence(0.01)
    # Where a place has no error of its own, that of the sure optimum remains.
    below, above = interval(derived(lambda v: -place(v) / 2.0, SURE, ERROR), 0.01 * (1 - SPENT))
    assert lowest is None or low == pytest.approx(lowest / 2.0 + below, rel=1e-5)
    assert highest is None or high == pytest.approx(highest / 2.0 + above, rel=1e-5)
    # At a bound on either side the worst of the ways is as certain as the level.
    assert slope(of, low + 9.0, 9.0).evidence.in_favour == pytest.approx(0.01, rel=1e-5)
    assert slope(of, high - 9.0, 9.0).evidence.in_favour == pytest.approx(0.01, rel=1e-5)
    # What holds in one of the ways alone is neither proven nor refuted.
    assert slope(of, (low + high) / 2.0, 0.05).evidence.against > 0.01


def test_optimum_at_an_end__is_certain_and_levels_that_may_be_least_have_their_share_of_the_level():
    of = profiles_in([[1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 5.0, 4.0, 3.0, 1.0]])
    found = slope(of, 2.0, 0.01)
    assert found.estimate == pytest.approx(2.0) and found.evidence.in_favour == 0.0 and found.mcse == 0.0
    of.estimates.n_blocks[3] = 63
    assert slope(of, 2.0, 0.01).reason.startswith("63 blocks")
    found = slope(profiles_in([[1.0] * 5] * 4, z=2.0 ** np.arange(4)))
    assert found.evidence == (1.0, 1.0) and found.reason == f"levels may be least in more than {MOST_WAYS} ways"
    # A fifth of the level, divided over the levels along which it moves.
    of = profiles_in([SURE, [4.0, 1.0, 1.04, 4.0, 9.0]])
    p = possible_minima(p_above(of.estimates.differences([5, 6, 7, 8, 9]), 0.0))[2]
    wide, narrow = (slope(of._replace(level=each * p * len(Z) / SPENT)).confidence(0.01) for each in (0.99, 1.01))
    assert wide[1] > narrow[1] + 1e-4


def test_levels_of_another_factor__are_judged_apart_and_cells_without_a_value_left_out():
    stated = {"kind": "optimum_slope", "x": "x", "along": "z", "value": 0.0, "margin": 0.1}
    profile = np.repeat(SURE, 2)
    profile[1] = np.nan
    found = list(optimum_slopes(claim(**stated), profiles_in([profile, np.repeat(SURE, 2)], n_others=2)))
    assert [each.statistic.rpartition(" at ")[2] for each in found] == ["h = 0", "h = 1"]
    assert [each.estimate for each in found] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert not any(each.reason for each in found) and len(found[1].cells) == 9
