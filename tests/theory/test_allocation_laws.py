"""Laws of allocation against brute-force minimisation of the errors that they describe, over a huge range of n."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from simstudy.theory import allocation_laws as laws

LOG_SIZES = [5.0, 10.0, 30.0, 100.0, 600.0]
BIASES = [laws.ExponentialBias(2.0, 0.5), laws.PowerBias(1.0, 2.0), laws.SharedBias(1.0, 0.8)]


def squared_bias(bias, p, D):
    if isinstance(bias, laws.ExponentialBias):
        return bias.amplitude * np.exp(-bias.rate * p)
    if isinstance(bias, laws.PowerBias):
        return bias.amplitude * p**-bias.exponent
    return bias.amplitude * (1 - bias.retained * p / D) ** 2


def brute_force(error, upper):
    """Minimise over p by a grid and a bounded search around its best point."""
    grid = np.linspace(1e-3, upper, 20_001)
    best = np.argmin(error(grid))
    assert 0 < best < len(grid) - 1
    return minimize_scalar(error, bounds=(grid[best - 1], grid[best + 1]), method="bounded", options={"xatol": 1e-9}).x


@pytest.mark.parametrize("bias", BIASES, ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 3.0])
def test_fixed_bandwidth_optimum_is_the_minimum(bias, bandwidth):
    inflation, D, compared = laws.variance_inflation(bandwidth), 5000.0, 0
    for log_n in LOG_SIZES:

        def error(p, log_n=log_n):
            variance = p * np.expm1(p * np.log(inflation)) / D * np.exp(-log_n) * 1.7
            return squared_bias(bias, p, D) + variance

        root = laws.fixed_bandwidth_optimum(log_n, D, 1.7, inflation, bias)
        if root < D / 2 and root * np.log(inflation) < 350:
            assert root == pytest.approx(brute_force(error, 2 * root), rel=1e-4)
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("bias", BIASES, ids=lambda b: type(b).__name__)
def test_slopes_are_derivatives(bias):
    inflation, D, step = laws.variance_inflation(0.8), 300.0, 1e-4
    for log_n in (8.0, 40.0):
        args = D, 1.0, inflation, bias
        p, above, below = (laws.fixed_bandwidth_optimum(log_n + e, *args) for e in (0, step, -step))
        assert laws.fixed_bandwidth_slope(p, D, inflation, bias) == pytest.approx(
            (above - below) / (2 * step), rel=1e-5
        )


def test_slope_in_log_n_rises_to_its_limit_and_heads_to_linear_growth():
    inflation, bias = laws.variance_inflation(0.5), laws.ExponentialBias(1.0, 0.5)
    limit = 1 / (0.5 + np.log(inflation))
    optima = np.array([laws.fixed_bandwidth_optimum(log_n, 64, 1.0, inflation, bias) for log_n in LOG_SIZES])
    shortfall = 1 - np.array([laws.fixed_bandwidth_slope(p, 64, inflation, bias) for p in optima]) / limit
    assert np.all(np.diff(shortfall) < 0)
    rate = np.log(inflation)
    np.testing.assert_allclose(shortfall[1:], rate / (1 + optima[1:] * rate) * limit, rtol=0.12)
    counts = np.array([laws.log_head_count_slope(log_n, 64, 1.0, inflation, bias) for log_n in LOG_SIZES])
    # n and D enter as their product alone.
    np.testing.assert_allclose(counts, 1 - limit * (1 - shortfall) / optima, rtol=1e-6)
    assert np.all(np.diff(counts) > 0)
    assert 0.9 < counts[1] < 0.93 < counts[-1] < 1
    # Linear growth needs another bias: the share of the target that heads see.
    shared = laws.SharedBias(1.0)
    assert laws.log_head_count_slope(20.0, 1e6, 1.0, inflation, shared) == pytest.approx(1, abs=1e-3)


def test_the_approximation_without_the_last_term_fails_for_wide_kernels():
    def error(bandwidth):
        inflation = laws.variance_inflation(bandwidth)
        rate, p = np.log(inflation), 5.0
        for _ in range(200):
            p = (10 + np.log(64 * 0.5) - np.log(1 + p * rate)) / (0.5 + rate)
        return abs(p / laws.fixed_bandwidth_optimum(10.0, 64, 1.0, inflation, laws.ExponentialBias(1.0, 0.5)) - 1)

    assert error(0.5) < 1e-3
    assert error(6.0) > 0.1


def test_variance_inflation_has_its_limits():
    for b in (0.2, 1.0, 5.0):
        expected = (1 + b**2) ** 1.5 / (b**2 * np.sqrt(3 + b**2))
        assert laws.variance_inflation(b) == pytest.approx(expected, rel=1e-12)
    assert laws.variance_inflation(100.0) == pytest.approx(1, abs=1e-3)
    assert laws.variance_inflation(0.01) == pytest.approx(1e4 / np.sqrt(3), rel=1e-3)


@pytest.mark.parametrize("bias", BIASES[:2], ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("smoothness", [1.0, 2.0])
def test_retuned_optimum_is_the_minimum(bias, smoothness):
    for log_n in (30.0, 300.0, 3e4):

        def error(p, log_n=log_n):
            return squared_bias(bias, p, 1.0) + np.exp(-2 * smoothness * log_n / (2 * smoothness + p))

        root = laws.retuned_optimum(log_n, smoothness, bias)
        assert root == pytest.approx(brute_force(error, 2 * root), rel=1e-5)


@pytest.mark.parametrize("amplitude", [0.01, 1.0, 100.0])
def test_retuned_optima_tend_to_their_laws_and_not_to_one_another(amplitude):
    exponential, power = laws.ExponentialBias(amplitude, 0.5), laws.PowerBias(amplitude, 1.5)
    sizes = (1e3, 1e6, 1e9)
    errors = [laws.retuned_optimum(x, 2.0, exponential) / laws.square_root_log_law(x, 2.0, 0.5) - 1 for x in sizes]
    # Of order (ln n)^(-1/2): falls by 10^1.5 at least.
    assert np.all(np.abs(errors[1:]) < 0.05 * np.abs(errors[:-1]))
    assert abs(errors[-1]) < 1e-4

    sizes = (1e10, 1e100, 1e300)
    errors = [laws.retuned_optimum(x, 2.0, power) / laws.log_over_log_log_law(x, 2.0, 1.5) - 1 for x in sizes]
    assert abs(errors[-1]) < 0.01
    if amplitude != 1:
        # Of order 1 / ln ln n, with a sign that the amplitude decides.
        assert np.all(np.array(errors) * np.sign(np.log(amplitude)) > 0)
        assert errors[2] / errors[1] == pytest.approx(1 / 3, rel=0.2)
    # Logarithmic growth is neither.
    assert laws.retuned_optimum(1e9, 2.0, exponential) < 1e-3 * 1e9


def test_too_few_data_for_a_retuned_optimum_is_refused():
    with pytest.raises(ValueError, match="n is too small"):
        laws.retuned_optimum(3.0, 1.0, laws.ExponentialBias(1e6, 0.01))


@pytest.mark.parametrize("bandwidth", [0.4, 1.0])
def test_sum_optimum_is_the_minimum(bandwidth):
    inflation = laws.variance_inflation(bandwidth)
    for D in (8.0, 100.0, 1e6):
        root = laws.sum_optimum(D, inflation)

        def variance(p, D=D):
            return D / p * inflation**p + D / p * (D / p - 1)

        assert root == pytest.approx(brute_force(variance, 3 * root), rel=1e-5)
