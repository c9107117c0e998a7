"""Evidence on one inequality, and on many: against integrals, SciPy, and cases worked out by hand."""

import numpy as np
import pytest
from scipy import integrate, stats

from simstudy.verdicts.evidence import (
    MIXTURE,
    Contrast,
    Evidence,
    anytime_p,
    anytime_score,
    at_most_fail,
    interval,
    least_among,
    normal_score,
    p_above,
    p_below,
    possible_minima,
    skewness_corrected,
    students_of,
    why_no_verdict,
)


@pytest.mark.parametrize(("z", "n"), [(2.5, 64), (4.0, 64), (3.0, 500), (30.0, 64)])
def test_anytime_p__is_the_reciprocal_of_the_mixture(z, n):
    total = z * np.sqrt(n)
    peak = total**2 / (2 * (n + MIXTURE))

    def density(drift):
        return np.exp(drift * total - n * drift**2 / 2 - peak) * 2 * stats.norm.pdf(drift, scale=MIXTURE**-0.5)

    mixture, _ = integrate.quad(density, 0.0, 20.0 * z / np.sqrt(n), points=[total / (n + MIXTURE)], epsabs=0.0)
    assert np.log(anytime_p(z, n)) == pytest.approx(-np.log(mixture) - peak, rel=1e-7)


def test_anytime_p__is_1_without_evidence_and_never_below_that_of_one_look():
    assert anytime_p(0.0, 64) == anytime_p(-5.0, 64) == anytime_p(-40.0, 64) == 1.0
    assert anytime_p(np.inf, 64) == 0.0
    z = np.linspace(0.1, 8.0, 50)
    assert (anytime_p(z, 64) > stats.norm.sf(z)).all()


def test_scores__are_those_of_students_tail():
    for t, degrees in ((2.0, 63), (-3.0, 63), (5.0, 10)):
        assert stats.norm.sf(normal_score(t, degrees)) == pytest.approx(stats.t.sf(t, degrees))
    assert normal_score(3.0, 63) < 2.95  # the control: heavier tails than normal


@pytest.mark.parametrize("skewness", [-0.25, 0.0, 1e-9, 0.006, 0.2])
def test_bounds__are_where_the_p_value_is_the_level(skewness):
    contrast = Contrast(1.0, 0.1, 64, 63, skewness, 0.05)
    low, high = interval(contrast, 0.01)
    assert p_above(contrast, low) == pytest.approx(0.01) and p_below(contrast, high) == pytest.approx(0.01)
    assert p_below(contrast, low) == p_above(contrast, high) == 1.0
    score = anytime_score(0.01, 64)
    t = students_of(score, skewness, 63)
    assert normal_score(skewness_corrected(t, skewness), 63) == pytest.approx(score)
    tilt = high - 1.0 - (1.0 - low)  # the long tail is on the side of the skewness
    assert (tilt == pytest.approx(0.0, abs=1e-6)) if abs(skewness) < 1e-6 else (tilt * skewness > 0)


def test_evidence__is_none_where_the_error_is_in_doubt_and_certain_without_error():
    sound = Contrast(9.0, 1.0, 64, 63, 0.0, 0.2)
    assert p_above(sound, 0.0) < 1e-6 and why_no_verdict(sound) == ""
    for change in ({"degrees": 62}, {"value": np.nan}, {"value": np.inf}):
        poor = sound._replace(**change)
        assert p_above(poor, 0.0) == p_below(poor, 100.0) == 1.0 and why_no_verdict(poor)
        assert interval(poor, 0.05) == (-np.inf, np.inf)
    exact = Contrast(2.0, 0.0, 64, 63, 0.0, 0.0)
    assert p_above(exact, 1.0) == p_below(exact, 3.0) == 0.0
    assert p_above(exact, 2.0) == p_below(exact, 2.0) == 1.0


def test_few_blocks_that_hold_the_error__leave_the_evidence_of_a_variance_alone():
    few = Contrast(9.0, 1.0, 64, 63, 0.4, 0.201)
    assert why_no_verdict(few).startswith("one block of 64 holds 20 %")
    assert p_above(few, 0.0) == pytest.approx(2 * 2 / 81) and p_below(few, 0.0) == 1.0  # by Kolmogorov, first share 1/2
    assert p_above(few, 12.0) == p_below(few, 6.0) == 1.0  # on the other side
    assert p_above(few._replace(n_blocks=127), 0.0) == pytest.approx(2 * 2 / 81)
    assert p_above(few._replace(n_blocks=128), 0.0) == pytest.approx(2 * 6 / 81)  # of the second doubling 1/6
    assert p_above(few._replace(mcse=1e-9), 0.0) < 1e-15
    for level in (0.05, 0.001):
        low, high = interval(few, level)
        assert p_above(few, low) == pytest.approx(level) and p_below(few, high) == pytest.approx(level)


def test_blocks_that_are_alike__leave_what_an_unseen_exception_could_explain():
    """Of 200 replicates that move the value by 2 each, none is an exception: 100 replicates a unit."""
    alike = Contrast(0.5, 1e-10, 64, 63, 0.0, 0.0, unseen=100.0)
    assert why_no_verdict(alike).startswith("all 64 blocks are alike")
    assert p_below(alike, 0.53) == p_above(alike, 0.47) == pytest.approx(np.exp(-3.0))  # the rule of three
    assert p_below(alike, 0.53) > (1 - 0.03 / 2.0) ** 200
    assert p_above(alike, 0.5) == p_above(alike, 0.6) == 1.0
    assert p_below(alike._replace(degrees=62), 0.9) == 1.0
    for level in (0.05, 0.001):
        low, high = interval(alike, level)
        assert p_above(alike, low) == pytest.approx(level) and p_below(alike, high) == pytest.approx(level)
    both = Contrast(np.array([0.5, 0.5]), 1e-10, 64, 63, 0.0, 0.0, unseen=np.array([100.0, np.inf]))
    np.testing.assert_allclose(p_above(both, 0.47), [np.exp(-3.0), 0.0])


PARTS = Evidence(np.array([0.04, 0.5, 0.001]), np.array([0.3, 0.002, 0.9]))


def test_some_of_three_may_fail__by_hand():
    found = at_most_fail(PARTS)
    # If one may, it is refuted if two fail: the second p-value, for at most two nulls at stake; supported alike.
    assert found.against == pytest.approx([0.003, 0.08, 0.5, 1.0])
    assert found.in_favour == pytest.approx([0.9, 0.6, 0.006, 0.0])


def test_least_level__by_hand():
    larger = np.array([[1.0, 0.01, 0.02], [0.9, 1.0, 0.7], [0.3, 0.004, 1.0]])
    # Level 0 exceeds 1 (.01) and 2 (.02): twice the smaller; level 1 is refuted by none.
    found = least_among(np.array([True, False, False]), larger)
    assert found.against == pytest.approx(0.02) and found.in_favour == pytest.approx(0.9)
    np.testing.assert_allclose(possible_minima(larger), [0.02, 1.0, 0.008])
    outside = least_among(np.array([False, True, False]), larger)
    assert outside.against == 1.0 and outside.in_favour == pytest.approx(0.01)
