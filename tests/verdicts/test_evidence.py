"""Errors of combinations of cells and evidence on inequalities: by hand, against integrals and SciPy."""

import itertools

import numpy as np
import pytest
import xarray as xr
from exact_estimates import account, exact_estimates
from scipy import integrate, stats

from simstudy.report.figures.shared import residuals
from simstudy.verdicts import evidence as ev
from simstudy.verdicts.comparisons import inside, paired
from simstudy.verdicts.estimates import HEADS_ROUNDING, OWN_ROUNDING, estimates_of

RNG = np.random.default_rng(2)
LONG, SHORT, APART = RNG.exponential(size=64) - 1.0, RNG.normal(size=48), RNG.normal(size=64)
POINTS = np.random.default_rng(3).normal(size=(16, 3)) + np.random.default_rng(4).normal(size=(16, 1))
THREE = estimates_of([
    account({"x": 1.0}, 3.0, LONG, remainder=2.0, randomisation=POINTS[:, 0]),
    account({"x": 2.0}, 1.0, SHORT, remainder=5.0, randomisation=POINTS[:, 1]),
    account({"x": 3.0}, 7.0, APART, remainder=3.0, randomisation=POINTS[:, 2], seed=2),
], "mse")  # fmt: skip


def test_combinations_differences_and_draws__add_remainders_and_pair_blocks_of_one_stream_and_points_of_all():
    found = THREE.combine({0: 2.0, 1: -1.0, 2: 1.0})
    influence, shared = np.concatenate([2.0 * LONG - np.pad(SHORT, (0, 16)), APART]), sum((POINTS @ [2, -1, 1]) ** 2)
    assert found.value == 12.0 and (found.n_blocks, found.degrees) == (48, 47)
    assert found.mcse**2 == pytest.approx((influence**2).sum() + 4 * 4.0 + 25.0 + 9.0 + shared)
    assert found.concentration == pytest.approx(((influence**4).sum() + 3 * shared**2 / 16) / found.mcse**4)
    assert found.df == pytest.approx(found.mcse**4 / (shared**2 / 15 + (found.mcse**2 - shared) ** 2 / 47))
    assert found.largest_share == pytest.approx((influence**2).max() / found.mcse**2)
    assert found.skewness == pytest.approx((influence**3).sum() / found.mcse**3)
    table = THREE.differences([0, 1, 2])
    for i, j in itertools.permutations(range(3), 2):
        one = THREE.combine({i: 1.0, j: -1.0})
        np.testing.assert_allclose([float(field) for field in table.at(i, j)], one, rtol=1e-12)
    expected = np.diag([(LONG**2).sum() + 4.0, (SHORT**2).sum() + 25.0, (APART**2).sum() + 9.0])
    expected[0, 1] = expected[1, 0] = LONG[:48] @ SHORT
    expected += POINTS.T @ POINTS
    np.testing.assert_allclose(np.cov(THREE.draws([0, 1, 2]).T), expected, atol=4.0)


def test_folded_blocks__count_as_time_and_leave_the_degrees_of_freedom_of_what_is_stored():
    found = estimates_of([account({}, 1.0, LONG, n_blocks=6400), account({}, 1.0, APART, seed=2)], "mse")
    assert (found.combine({0: 1.0}).n_blocks, found.combine({0: 1.0}).degrees) == (6400, 63)
    both = found.differences([0, 1])
    assert both.n_blocks.tolist() == [[6400, 64], [64, 64]] and (both.degrees == 63).all()
    later = found.repeated(4.0).combine({0: 1.0})
    assert (later.n_blocks, later.degrees) == (25600, 255)
    found.streams, found.lengths = [(1, 256)] * 2, [1, 2]  # one cell has twice the blocks, each half as long
    assert "32 blocks of replicates or draws that cells with more" in ev.why_no_verdict(found.combine({0: 1, 1: -1}))


@pytest.mark.parametrize("settings", [{"seed": 2}, {"batch_size": 512}])
def test_cells_of_other_seed_or_batch_size__are_not_paired(settings):
    empty = account({}, 0.0, LONG)
    empty.performance = None
    estimates = estimates_of([account({}, 1.0, LONG), account({}, 1.0, LONG, **settings), empty], "mse")
    assert np.isnan(estimates.combine({2: 1.0}).value) and estimates.n_blocks.tolist() == [64, 64, 0]
    assert estimates.combine({0: 1.0, 1: -1.0}).mcse == pytest.approx(np.sqrt(2) * np.linalg.norm(LONG))
    assert abs(np.corrcoef(estimates.draws([0, 1]).T)[0, 1]) < 0.1


def test_rounding__counts_as_an_error_of_sums_and_squares_and_is_no_standard_error_of_equal_blocks():
    estimates = exact_estimates([{"x": 1.0}, {"x": 2.0}], [4.0, 1.0], 0.0)
    assert estimates.combine({0: 1.0, 1: -1.0}).error == pytest.approx(4.0 * HEADS_ROUNDING)
    np.testing.assert_allclose(estimates.differences([0, 1]).error, HEADS_ROUNDING * np.array([[4.0, 4.0], [4.0, 1.0]]))
    equal = account({}, 3.0, np.zeros(64))
    estimates = estimates_of([equal, account({}, 3.0 + 1e-13, np.full(64, 1e-13)), account({}, 3.0, LONG)], "mse")
    for contrast in (estimates.combine({1: 1.0, 0: -1.0}), estimates.differences([0, 1, 2]).at(1, 0)):
        found = inside("difference", contrast, (0.0, np.inf), 0.0)
        assert found.mcse == 0.0 and min(found.evidence) > 0.1
    assert estimates.combine({0: 1.0, 2: -1.0}).mcse == pytest.approx(np.linalg.norm(LONG))
    few = estimates_of([account({}, 0.0, np.zeros(64), remainder=0.01)], "mse").combine({0: 1.0})
    assert few.mcse == 0.01  # not of blocks, and no rounding
    # Means of 1e9 + N(0, 1) had standard error 0, and blocks that are all alike.
    large = {"bias": 1e3, "variance": 2.0, "coverage": 1e9}
    cells = [account({}, large, dict.fromkeys(large, 1e-3 * LONG), measure="bias", n_replicates=64)]
    errors = [estimates_of(cells, name).combine({0: 1.0}).error for name in large]
    noise = 1e-3 * np.linalg.norm(LONG)
    np.testing.assert_allclose(errors, np.hypot(noise, OWN_ROUNDING * np.array([1e3, 2.0 + 1e6, 1e9])), rtol=1e-9)


def test_counts_that_are_alike__leave_exceptions_by_one_unseen():
    """Replicates over the sum of absolute weights; with the least of cells, and draws where these are a population."""
    alike, settings = np.zeros(64), {"measure": "visible_rank"}
    cells = [
        account({}, 3.0, alike, n_replicates=256, **settings),
        account({}, 3.0, alike + OWN_ROUNDING / 8.0, n_replicates=1024, **settings),  # as far as rounding goes
        account({}, 3.0, LONG, n_replicates=1024, **settings),
    ]
    counted = estimates_of(cells, "visible_rank")
    assert counted.combine({0: 0.5, 1: -2.0}).unseen == pytest.approx(256 / 2.5)
    assert counted.combine({0: 1.0, 2: -1.0}).unseen == np.inf  # there is an error to be seen
    found = inside("ratio", paired(counted, 0, 1, "ratio")[0], (0.9, np.inf), 0.9).evidence
    assert found.in_favour == pytest.approx(np.exp(-0.1 * 256 * 1.5))
    table = counted.differences([0, 1, 2]).unseen
    np.testing.assert_allclose(table, [[128, 128, np.inf], [128, 512, np.inf], [np.inf, np.inf, 512]])
    drawn = account({}, 3.0, alike, by_batch=True, n_replicates=1024, **settings)
    assert estimates_of([drawn], "visible_rank").combine({0: 1.0}).unseen == 64
    never = estimates_of([account({}, 0.0, alike, n_replicates=256, **settings)], "visible_rank").combine({0: 1.0})
    assert never.unseen == 256 and estimates_of([account({}, 3.0, alike)], "mse").combine({0: 1.0}).unseen == np.inf


def test_residuals__are_from_exact_theory_where_there_is_one():
    values = np.array([[1.1, 4.0, 0.3], [1.0, np.nan, np.nan], [1.2, 5.0, 0.0]])
    data = {"mse": (("source", "cell"), values), "mse_mcse": ("cell", np.array([0.02, 0.5, 0.0]))}
    found, mcse = residuals(xr.Dataset(data, {"source": ["empirical", "exact", "leading"]}), "mse")
    np.testing.assert_allclose(found, [0.1, -0.2, np.nan])
    np.testing.assert_allclose(mcse, [0.02, 0.1, np.nan])


@pytest.mark.parametrize(("z", "n"), [(2.5, 64), (4.0, 64), (3.0, 500), (30.0, 64)])
def test_anytime_p__is_the_reciprocal_of_the_mixture(z, n):
    total = z * np.sqrt(n)
    peak = total**2 / (2 * (n + ev.MIXTURE))

    def density(drift):
        return np.exp(drift * total - n * drift**2 / 2 - peak) * 2 * stats.norm.pdf(drift, scale=ev.MIXTURE**-0.5)

    mixture, _ = integrate.quad(density, 0.0, 20.0 * z / np.sqrt(n), points=[total / (n + ev.MIXTURE)], epsabs=0.0)
    assert np.log(ev.anytime_p(z, n)) == pytest.approx(-np.log(mixture) - peak, rel=1e-7)


def test_anytime_p__is_1_without_evidence_and_never_below_that_of_one_look_and_scores_are_of_students_tail():
    assert ev.anytime_p(0.0, 64) == ev.anytime_p(-5.0, 64) == ev.anytime_p(-40.0, 64) == 1.0
    assert ev.anytime_p(np.inf, 64) == 0.0
    z = np.linspace(0.1, 8.0, 50)
    assert (ev.anytime_p(z, 64) > stats.norm.sf(z)).all()
    for t, degrees in ((2.0, 63), (-3.0, 63), (5.0, 10)):
        assert stats.norm.sf(ev.normal_score(t, degrees)) == pytest.approx(stats.t.sf(t, degrees))
    assert ev.normal_score(3.0, 63) < 2.95  # the control: heavier tails than normal


def assert_ends(contrast, *levels):
    """Intervals end where the p-value is the level."""
    for level in levels:
        low, high = ev.interval(contrast, level)
        assert ev.p_above(contrast, low) == pytest.approx(level) and ev.p_below(contrast, high) == pytest.approx(level)
    return low, high


@pytest.mark.parametrize("skewness", [-0.25, 0.0, 1e-9, 0.006, 0.2])
def test_bounds__are_where_the_p_value_is_the_level(skewness):
    contrast = ev.Contrast(1.0, 0.1, 64, 63, skewness, 0.05)
    low, high = assert_ends(contrast, 0.01)
    assert ev.p_below(contrast, low) == ev.p_above(contrast, high) == 1.0
    score = ev.anytime_score(0.01, 64)
    t = ev.students_of(score, skewness, 63)
    assert ev.normal_score(ev.skewness_corrected(t, skewness), 63) == pytest.approx(score)
    tilt = high - 1.0 - (1.0 - low)  # the long tail is on the side of the skewness
    assert (tilt == pytest.approx(0.0, abs=1e-6)) if abs(skewness) < 1e-6 else (tilt * skewness > 0)


def test_evidence__is_none_where_the_error_is_in_doubt_and_certain_without_error():
    sound = ev.Contrast(9.0, 1.0, 64, 63, 0.0, 0.2)
    assert ev.p_above(sound, 0.0) < 1e-6 and ev.why_no_verdict(sound) == ""
    for change in ({"degrees": 62}, {"value": np.nan}, {"value": np.inf}):
        poor = sound._replace(**change)
        assert ev.p_above(poor, 0.0) == ev.p_below(poor, 100.0) == 1.0 and ev.why_no_verdict(poor)
        assert ev.interval(poor, 0.05) == (-np.inf, np.inf)
    exact = ev.Contrast(2.0, 0.0, 64, 63, 0.0, 0.0)
    assert ev.p_above(exact, 1.0) == ev.p_below(exact, 3.0) == 0.0
    assert ev.p_above(exact, 2.0) == ev.p_below(exact, 2.0) == 1.0


def test_few_blocks_that_hold_the_error__leave_the_evidence_of_a_variance_alone():
    few = ev.Contrast(9.0, 1.0, 64, 63, 0.4, 0.201)
    assert ev.why_no_verdict(few).startswith("one block of 64 holds 20 %")
    assert ev.p_above(few, 0.0) == pytest.approx(2 * 2 / 81)  # by Kolmogorov, first share 1/2
    assert ev.p_below(few, 0.0) == 1.0
    assert ev.p_above(few, 12.0) == ev.p_below(few, 6.0) == 1.0  # on the other side
    assert ev.p_above(few._replace(n_blocks=127), 0.0) == pytest.approx(2 * 2 / 81)
    assert ev.p_above(few._replace(n_blocks=128), 0.0) == pytest.approx(2 * 6 / 81)  # of the second doubling 1/6
    assert ev.p_above(few._replace(mcse=1e-9), 0.0) < 1e-15
    assert_ends(few, 0.05, 0.001)


def test_blocks_that_are_alike__leave_what_an_unseen_exception_could_explain():
    alike = ev.Contrast(0.5, 1e-10, 64, 63, 0.0, 0.0, unseen=100.0)
    assert ev.why_no_verdict(alike).startswith("all 64 blocks are alike")
    assert ev.p_below(alike, 0.53) == ev.p_above(alike, 0.47) == pytest.approx(np.exp(-3.0))  # the rule of three
    assert ev.p_below(alike, 0.53) > (1 - 0.03 / 2.0) ** 200
    assert ev.p_above(alike, 0.5) == ev.p_above(alike, 0.6) == 1.0
    assert ev.p_below(alike._replace(degrees=62), 0.9) == 1.0
    assert_ends(alike, 0.05, 0.001)
    both = ev.Contrast(np.array([0.5, 0.5]), 1e-10, 64, 63, 0.0, 0.0, unseen=np.array([100.0, np.inf]))
    np.testing.assert_allclose(ev.p_above(both, 0.47), [np.exp(-3.0), 0.0])


def test_some_of_three_that_may_fail_and_the_least_level__by_hand():
    found = ev.at_most_fail(ev.Evidence(np.array([0.04, 0.5, 0.001]), np.array([0.3, 0.002, 0.9])))
    # If one may, it is refuted if two fail: the second p-value, for at most two nulls at stake; supported alike.
    assert found.against == pytest.approx([0.003, 0.08, 0.5, 1.0])
    assert found.in_favour == pytest.approx([0.9, 0.6, 0.006, 0.0])
    larger = np.array([[1.0, 0.01, 0.02], [0.9, 1.0, 0.7], [0.3, 0.004, 1.0]])
    # Level 0 exceeds 1 (.01) and 2 (.02): twice the smaller; level 1 is refuted by none.
    found = ev.least_among(np.array([True, False, False]), larger)
    assert found.against == pytest.approx(0.02) and found.in_favour == pytest.approx(0.9)
    np.testing.assert_allclose(ev.possible_minima(larger), [0.02, 1.0, 0.008])
    outside = ev.least_among(np.array([False, True, False]), larger)
    assert outside.against == 1.0 and outside.in_favour == pytest.approx(0.01)
