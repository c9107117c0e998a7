"""Expectations under a Gaussian with an arbitrary mean, against sums over a grid and known identities."""

from __future__ import annotations

import numpy as np
import pytest
from theory_oracle import gaussian_grid, regression_values

from simstudy.design.settings import processes as s
from simstudy.theory import regression_function
from simstudy.theory.functions import expectation, product_expectation

COVARIANCE = np.array([[1.0, 0.4], [0.4, 0.5]])
MEANS = np.array([[0.3, -1.0], [2.0, 0.5]])
POLYNOMIAL = s.Sum(
    kind="sum",
    terms=(
        s.Linear(kind="linear", coefficients=(1.0, 2.0)),
        s.Quadratic(kind="quadratic", coefficients=(0.5, -1.0)),
        s.Interaction(kind="interaction"),
    ),
)
WAVES = s.Additive(kind="additive", frequency=1.7)
RIDGE = s.Ridge(kind="ridge", wave="cos", direction=(1.0, -1.0))
RECORDS = (POLYNOMIAL, WAVES, RIDGE)


def on_grid(*records):
    """E of the product of the records' values under N(mean, COVARIANCE), for every mean."""
    nodes, weights = gaussian_grid(COVARIANCE, step=0.05)
    return np.array(
        [weights @ np.prod([regression_values(r, nodes + mean) for r in records], axis=0) for mean in MEANS]
    )


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.kind)
def test_expectation(record):
    actual = expectation(regression_function(record, 2), MEANS, COVARIANCE)
    np.testing.assert_allclose(actual, on_grid(record), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("second", RECORDS, ids=lambda r: r.kind)
@pytest.mark.parametrize("first", RECORDS, ids=lambda r: r.kind)
def test_expectation_of_a_product(first, second):
    functions = (regression_function(record, 2) for record in (first, second))
    actual = product_expectation(*functions, MEANS, COVARIANCE)
    np.testing.assert_allclose(actual, on_grid(first, second), rtol=1e-9, atol=1e-12)


def test_a_degenerate_law_gives_the_value_itself():
    for record in RECORDS:
        function = regression_function(record, 2)
        nothing = np.zeros((2, 2))
        np.testing.assert_allclose(expectation(function, MEANS, nothing), function(MEANS), rtol=1e-12)
        np.testing.assert_allclose(
            product_expectation(function, function, MEANS, nothing), function(MEANS) ** 2, rtol=1e-12
        )


def test_fast_waves_keep_their_variance():
    function = regression_function(s.Ridge(kind="ridge", frequency=40.0), 2)
    assert product_expectation(function, function, MEANS, np.eye(2)) == pytest.approx(0.5)
    assert expectation(function, MEANS, np.eye(2)) == pytest.approx(0.0)


@pytest.mark.parametrize("wave", ["sin", "cos"])
def test_waves_at_half_a_turn(wave):
    # There the tangent of the half angle has its pole.
    function = regression_function(s.Ridge(kind="ridge", wave=wave, frequency=np.pi), 1)
    means, nothing = np.array([[-1.0], [0.0], [1.0]]), np.zeros((1, 1))
    np.testing.assert_allclose(expectation(function, means, nothing), function(means), rtol=0.0, atol=1e-15)
    product = product_expectation(function, function, means, nothing)
    np.testing.assert_allclose(product, function(means) ** 2, rtol=0.0, atol=1e-15)
