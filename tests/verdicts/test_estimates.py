"""Errors of combinations and differences of cells, by hand; statistics that figures show."""

import numpy as np
import pytest
import xarray as xr
from exact_estimates import account, exact_estimates

from simstudy.report.figures.shared import residuals
from simstudy.verdicts.comparisons import inside, paired
from simstudy.verdicts.estimates import HEADS_ROUNDING, OWN_ROUNDING, estimates_of

RNG = np.random.default_rng(2)
LONG, SHORT, APART = RNG.exponential(size=64) - 1.0, RNG.normal(size=48), RNG.normal(size=64)
THREE = estimates_of(
    [
        account({"x": 1.0}, 3.0, LONG, remainder=2.0),
        account({"x": 2.0}, 1.0, SHORT, remainder=5.0),
        account({"x": 3.0}, 7.0, APART, remainder=3.0, seed=2),
    ],
    "mse",
)


def test_combination__adds_remainders_and_pairs_blocks_of_one_stream():
    found = THREE.combine({0: 2.0, 1: -1.0, 2: 1.0})
    influence = np.concatenate([2.0 * LONG - np.pad(SHORT, (0, 16)), APART])
    assert found.value == 12.0 and (found.n_blocks, found.degrees) == (48, 47)
    assert found.mcse**2 == pytest.approx((influence**2).sum() + 4 * 4.0 + 25.0 + 9.0)
    assert found.largest_share == pytest.approx((influence**2).max() / found.mcse**2)
    assert found.skewness == pytest.approx((influence**3).sum() / found.mcse**3)


def test_differences__are_the_combinations_of_two():
    table = THREE.differences([0, 1, 2])
    for i in range(3):
        for j in range(3):
            if i != j:
                one = THREE.combine({i: 1.0, j: -1.0})
                np.testing.assert_allclose([float(field) for field in table.at(i, j)], one, rtol=1e-12)


def test_draws__have_the_covariance_of_blocks_and_remainders():
    expected = np.diag([(LONG**2).sum() + 4.0, (SHORT**2).sum() + 25.0, (APART**2).sum() + 9.0])
    expected[0, 1] = expected[1, 0] = LONG[:48] @ SHORT
    np.testing.assert_allclose(np.cov(THREE.draws([0, 1, 2]).T), expected, atol=3.0)


def test_folded_blocks__count_as_time_and_leave_the_degrees_of_freedom_of_what_is_stored():
    found = estimates_of([account({}, 1.0, LONG, n_blocks=6400), account({}, 1.0, APART, seed=2)], "mse")
    assert (found.combine({0: 1.0}).n_blocks, found.combine({0: 1.0}).degrees) == (6400, 63)
    both = found.differences([0, 1])
    assert both.n_blocks.tolist() == [[6400, 64], [64, 64]] and (both.degrees == 63).all()
    later = found.repeated(4.0).combine({0: 1.0})
    assert (later.n_blocks, later.degrees) == (25600, 255)


@pytest.mark.parametrize("settings", [{"seed": 2}, {"batch_size": 512}])
def test_cells_of_other_seed_or_batch_size__are_not_paired(settings):
    empty = account({}, 0.0, LONG)
    empty.performance = None
    estimates = estimates_of([account({}, 1.0, LONG), account({}, 1.0, LONG, **settings), empty], "mse")
    assert np.isnan(estimates.combine({2: 1.0}).value) and estimates.n_blocks.tolist() == [64, 64, 0]
    assert estimates.combine({0: 1.0, 1: -1.0}).mcse == pytest.approx(np.sqrt(2) * np.linalg.norm(LONG))
    assert abs(np.corrcoef(estimates.draws([0, 1]).T)[0, 1]) < 0.1


def test_rounding__counts_as_an_error_of_the_larger_value():
    estimates = exact_estimates([{"x": 1.0}, {"x": 2.0}], [4.0, 1.0], 0.0)
    assert estimates.combine({0: 1.0, 1: -1.0}).error == pytest.approx(4.0 * HEADS_ROUNDING)
    np.testing.assert_allclose(estimates.differences([0, 1]).error, HEADS_ROUNDING * np.array([[4.0, 4.0], [4.0, 1.0]]))


def test_equal_blocks__have_no_standard_error_and_prove_no_difference_that_rounding_makes():
    """Studies showed the rounding allowed for as a standard error: "(0.0 ± 1.0)e-10"."""
    equal = account({}, 3.0, np.zeros(64))
    estimates = estimates_of([equal, account({}, 3.0 + 1e-13, np.full(64, 1e-13)), account({}, 3.0, LONG)], "mse")
    for contrast in (estimates.combine({1: 1.0, 0: -1.0}), estimates.differences([0, 1, 2]).at(1, 0)):
        found = inside("difference", contrast, (0.0, np.inf), 0.0)
        assert found.mcse == 0.0 and min(found.evidence) > 0.1
    assert estimates.combine({0: 1.0, 2: -1.0}).mcse == pytest.approx(np.linalg.norm(LONG))
    few_failed = estimates_of([account({}, 0.0, np.zeros(64), remainder=0.01)], "mse")
    assert few_failed.combine({0: 1.0}).mcse == 0.01  # not of blocks, and no rounding


def test_rounding_of_own_numbers__is_that_of_their_sums_and_of_the_squares_that_a_variance_is_a_difference_of():
    """Means of 1e9 + N(0, 1) had standard error 0, and blocks that are all alike."""
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
    never = account({}, 0.0, alike, n_replicates=256, **settings)
    assert estimates_of([never], "visible_rank").combine({0: 1.0}).unseen == 256
    assert estimates_of([account({}, 3.0, alike)], "mse").combine({0: 1.0}).unseen == np.inf  # an identity


def test_residuals__are_from_exact_theory_where_there_is_one():
    values = np.array([[1.1, 4.0, 0.3], [1.0, np.nan, np.nan], [1.2, 5.0, 0.0]])
    data = {"mse": (("source", "cell"), values), "mse_mcse": ("cell", np.array([0.02, 0.5, 0.0]))}
    found, mcse = residuals(xr.Dataset(data, {"source": ["empirical", "exact", "leading"]}), "mse")
    np.testing.assert_allclose(found, [0.1, -0.2, np.nan])
    np.testing.assert_allclose(mcse, [0.02, 0.1, np.nan])
