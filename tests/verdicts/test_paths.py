"""How optima move: against numerical derivatives, and where more than one level may be the least."""

from collections.abc import Sequence

import numpy as np
import pytest
from exact_estimates import claim, derived, exact_estimates

from simstudy.verdicts.comparisons import Comparison, Selected
from simstudy.verdicts.evidence import interval, p_above, p_below, possible_minima
from simstudy.verdicts.optima import Profile
from simstudy.verdicts.paths import DOUBT, MOST_WAYS, optimum_slopes

X, Z = 2.0 ** np.arange(5), np.array([2.0, 8.0])
ERROR = 0.01
SURE = [4.0, 2.0, 1.0, 1.5, 5.0]
"""Least at the third level for certain."""


def selected(profiles: Sequence[Sequence[float]], z=Z, x=X, level: float = 0.01, tuned: int = 1) -> Selected:
    """One profile along x for each z; where a factor is tuned, its levels follow one another at each x."""
    levels = [{"z": along, "x": each, "h": h} for along in z for each in x for h in range(tuned)]
    estimates = exact_estimates(levels, np.concatenate(profiles), ERROR)
    return Selected(estimates, list(range(len(levels))), ("z", "x", "h"), level=level)


def slope(of: Selected, value: float = 0.0, margin: float = 0.1, scale: str = "log_log", **entries) -> Comparison:
    stated = {"kind": "optimum_slope", "x": "x", "along": "z", "scale": scale, "value": value, "margin": margin}
    (found,) = optimum_slopes(claim(**stated | entries), of)
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
    found = slope(selected(profiles), value, 4 * expected.mcse, scale)
    assert found.estimate == pytest.approx(expected.value)
    assert found.mcse == pytest.approx(expected.mcse, rel=1e-5)
    # The share of the level that is spent on which levels may be least is taken off both.
    ends = value - 4 * expected.mcse, value + 4 * expected.mcse
    assert found.evidence.in_favour == pytest.approx(p_above(expected, ends[0]) / (1 - DOUBT), rel=1e-3)
    assert found.confidence(0.01) == pytest.approx(interval(expected, 0.01 * (1 - DOUBT)), rel=1e-5)
    for sign, p in ((1, p_below), (-1, p_above)):  # outside on either side
        bound = expected.value + sign * 4 * expected.mcse
        outside = slope(selected(profiles), bound + sign * 0.1, 0.1, scale)
        assert outside.evidence.against == pytest.approx(2 * p(expected, bound) / (1 - DOUBT), rel=1e-3)


@pytest.mark.parametrize(
    ("in_doubt", "lowest", "highest"),
    [
        # The third level may be the least, and then its curvature is in doubt: anywhere up to the middles of its steps.
        ([4.0, 1.0, 1.02, 1.08, 4.0], None, 2.5),
        ([4.0, 1.08, 1.02, 1.0, 4.0], 1.5, None),
    ],
)
def test_slope_of_optima_in_doubt__is_judged_in_the_worst_way(in_doubt, lowest, highest):
    of = selected([SURE, in_doubt])
    low, high = slope(of).confidence(0.01)
    # Where a place has no error of its own, that of the sure optimum remains.
    below, above = interval(derived(lambda v: -place(v) / 2.0, SURE, ERROR), 0.01 * (1 - DOUBT))
    assert lowest is None or low == pytest.approx(lowest / 2.0 + below, rel=1e-5)
    assert highest is None or high == pytest.approx(highest / 2.0 + above, rel=1e-5)
    # At a bound on either side the worst of the ways is as certain as the level.
    assert slope(of, low + 9.0, 9.0).evidence.in_favour == pytest.approx(0.01, rel=1e-5)
    assert slope(of, high - 9.0, 9.0).evidence.in_favour == pytest.approx(0.01, rel=1e-5)
    # What holds in one of the ways alone is neither proven nor refuted.
    assert slope(of, (low + high) / 2.0, 0.05).evidence.against > 0.01


def test_vertex_of_a_level_that_may_be_least__is_no_further_than_the_middle_of_a_step():
    two = [4.0, 1.0, 1.02, 4.0, 9.0]  # the parabola through the last three is least on this side of the middle
    found = slope(selected([SURE, two]))

    def second(values: np.ndarray) -> float:
        left, middle, right = values[6:9]
        return (2.0 + (left - right) / (2 * (left - 2 * middle + right)) - place(values[:5])) / 2.0

    expected = derived(second, [*SURE, *two], ERROR)._replace(value=(1.5 - place(SURE)) / 2.0)
    assert found.confidence(0.01)[1] == pytest.approx(interval(expected, 0.01 * (1 - DOUBT))[1], rel=1e-5)


@pytest.mark.parametrize("tuned", [1, 2])
def test_level_that_may_be_least__is_found_at_its_share_of_the_level(tuned):
    """A fifth of the level, divided over the levels along which it moves, and over the questions that tuning adds."""
    two = np.repeat([4.0, 1.0, 1.04, 4.0, 9.0], tuned) + np.tile([0.0, 5.0][:tuned], 5)
    profiles = [np.repeat(SURE, tuned) + np.tile([0.0, 5.0][:tuned], 5), two]
    of = selected(profiles, tuned=tuned)
    of_second = list(range(5 * tuned, 10 * tuned))
    p = possible_minima(p_above(of.estimates.differences(of_second), 0.0))[2 * tuned]
    share = DOUBT / len(Z) / (1 if tuned == 1 else len(X) + 1)
    tune = {"tune": ("h",)} if tuned > 1 else {}
    wide, narrow = (slope(of._replace(level=level * p / share), **tune).confidence(0.01) for level in (0.99, 1.01))
    assert wide[1] > narrow[1] + 1e-4


def test_tuned_levels_that_may_be_least__each_count():
    """Beside the least level, and at it, either level of what is tuned may be the least, and their vertices differ."""
    for where in (1, 2, 3):
        profile = np.repeat([4.0, 2.0, 1.0, 1.5, 5.0], 2) + np.tile([0.0, 5.0], 5)
        profile[2 * where + 1] = profile[2 * where] + 0.01
        one, more = (selected([np.repeat(SURE, 2) + np.tile([0.0, 5.0], 5), each], tuned=2) for each in (
            np.repeat([4.0, 2.0, 1.0, 1.5, 5.0], 2) + np.tile([0.0, 5.0], 5), profile,
        ))  # fmt: skip
        narrow, wide = (np.diff(slope(of, tune=("h",)).confidence(0.01))[0] for of in (one, more))
        assert wide > narrow + 1e-4


def test_optimum_at_an_end__is_certain_there():
    of = selected([[1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 5.0, 4.0, 3.0, 1.0]])
    found = slope(of, 2.0, 0.01)
    assert found.estimate == pytest.approx(2.0) and found.evidence.in_favour == 0.0 and found.mcse == 0.0
    of.estimates.n_blocks[3] = 63
    assert slope(of, 2.0, 0.01).doubt.startswith("63 blocks")


def test_too_many_ways__give_no_verdict_and_say_why():
    found = slope(selected([[1.0] * 5] * 4, z=2.0 ** np.arange(4)))
    assert found.evidence == (1.0, 1.0) and found.doubt == f"levels may be least in more than {MOST_WAYS} ways"


def test_levels_of_another_factor__are_judged_apart_and_cells_without_a_value_left_out():
    stated = {"kind": "optimum_slope", "x": "x", "along": "z", "value": 0.0, "margin": 0.1}
    profile = np.repeat(SURE, 2)
    profile[1] = np.nan
    of = selected([profile, np.repeat(SURE, 2)], tuned=2)
    found = list(optimum_slopes(claim(**stated), of))
    assert [each.statistic.rpartition(" at ")[2] for each in found] == ["h = 0", "h = 1"]
    assert [each.estimate for each in found] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert not any(each.doubt for each in found) and len(found[1].cells) == 9
