"""Statistics that figures show: the law of exchangeable members, and rank correlations."""

import numpy as np
import pytest
import xarray as xr
from builders_results import law_cells

from simstudy.verdicts.figure_data import law_shares, mean_within, rank_correlation, residuals, z_scores

SIZES = (2.0, 8.0)


def test_law_shares__are_on_the_law_for_exchangeable_members_and_off_it_for_others():
    ((law, law_mcse, found, found_mcse),) = law_shares(law_cells(SIZES, [1.0, 1.0]).isel(cell=[1, 0]), ("n_heads",))
    assert law == pytest.approx(0.25 * 7 / 8 + 1 / 8) and found == pytest.approx(law)
    # d(c/v) = (dc - c/v dv)/v, and the same for the variance of the average.
    assert law_mcse == pytest.approx(7 / 8 / 2 * np.hypot(0.005, 0.25 * 0.02))
    assert found_mcse == pytest.approx(law * 0.01 * 2**0.5)
    ((law, _, found, _),) = law_shares(law_cells(SIZES, [1.0, 3.0]), ("n_heads",))
    assert found == pytest.approx(3 * law)


def indexed(x: np.ndarray, y: np.ndarray) -> xr.Dataset:
    return xr.Dataset({"hdi": ("cell", x), "mse": (("source", "cell"), y[None])}, {"source": ["empirical"]})


def test_rank_correlation__takes_rounding_for_ties():
    y = np.array([1.0, 2.0, 3.0, 4.0])
    close = np.array([0.5, 0.5, 0.7, 0.9]) + np.array([1e-16, 0, 0, 0])
    assert rank_correlation(indexed(close, y), "mse") == (pytest.approx(0.9487, abs=1e-4), 4)
    correlation, count = rank_correlation(indexed(np.array([1, 1 + 1e-16, 1, 1 - 1e-16]), y), "mse")
    assert np.isnan(correlation) and count == 4
    assert rank_correlation(indexed(-y, y), "mse") == (pytest.approx(-1.0), 4)
    assert rank_correlation(indexed(np.exp(y), y), "mse") == (pytest.approx(1.0), 4)


def test_mean_within__is_over_the_groups_that_have_a_correlation():
    y = np.arange(4.0)
    groups = [indexed(y, y), indexed(-y, y), indexed(y, y), indexed(np.ones(4), y)]
    assert mean_within(groups, "mse") == pytest.approx(1 / 3)
    assert np.isnan(mean_within(groups[3:], "mse"))


def compared(numerical_error: float = 0.0) -> xr.Dataset:
    """Three cells: with exact theory and leading order, with the latter alone, and one of which theory says 0."""
    values = np.array([[1.1, 4.0, 0.3], [1.0, np.nan, np.nan], [1.2, 5.0, 0.0]])
    data = {"mse": (("source", "cell"), values), "mse_mcse": ("cell", np.array([0.02, 0.5, 0.0])),
            "mse_numerical_error": ("cell", np.array([numerical_error, np.nan, np.nan]))}  # fmt: skip
    return xr.Dataset(data, {"source": ["empirical", "exact", "leading"]})


def test_residuals__are_from_exact_theory_where_there_is_one():
    found = residuals(compared(), "mse")
    np.testing.assert_allclose(found.values, [0.1, -0.2, np.nan])
    np.testing.assert_allclose(found.mcse, [0.02, 0.1, np.nan])


def test_z_scores__are_in_errors_of_estimate_and_theory():
    np.testing.assert_allclose(z_scores(compared(), "mse", "leading"), [-5.0, -2.0, np.nan])
    np.testing.assert_allclose(z_scores(compared(0.015), "mse", "exact"), [0.1 / 0.025, np.nan, np.nan])
