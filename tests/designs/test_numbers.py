"""Numbers that claims compare with: integrals, a balance at enormous n, and published values."""

import runpy

import numpy as np
import pytest
from commands import ROOT
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gamma

from simstudy.theory import averaged_noise_ratio


def function(study, name):
    return runpy.run_path(str(ROOT / "designs" / study / "functions.py"))[name]


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_tuned_risk_has_the_constants_that_are_integrals(p, power):
    surface = 2 * np.pi ** (p / 2) / gamma(p / 2)

    def integral(exponent, moment):
        return surface * quad(lambda u: (1 - u**2) ** exponent * u ** (p - 1 + moment), 0, 1)[0]

    mass = integral(power, 0)
    second_moment, roughness = integral(power, 2) / p / mass, integral(2 * power, 0) / mass**2
    gaussian = (4 * np.pi) ** (-p / 2)
    ratio = (gaussian**2 / (second_moment**p * roughness**2)) ** (2 / (p + 4))
    assert function("compact-kernels", "tuned_risk_ratio")(p, power) == pytest.approx(ratio, rel=1e-10)


@pytest.mark.parametrize(("p", "ratio"), [(1, 1.041), (2, 1.082), (4, 1.155), (8, 1.265)])
def test_gaussian_kernel_costs_what_is_published_against_epanechnikov(p, ratio):
    assert function("compact-kernels", "tuned_risk_ratio")(p, 1) == pytest.approx(ratio, abs=6e-4)


@pytest.mark.parametrize("bias_rate", [0.5, 2.0])
def test_limiting_slope__is_that_of_the_balance_at_enormous_n(bias_rate):
    """Squared bias exp(-g p) against the variance (p/D) L^p / n of averaged heads, n given by its logarithm."""
    bandwidth, scale, total_dim, limiting_slope = 0.7, 0.5, 24, function("scaling-law", "limiting_slope")

    def log_variance_fall(p):
        inflation = np.log(averaged_noise_ratio(np.zeros(1), bandwidth, scale))
        return p * inflation + np.log1p(p * inflation) - np.log(total_dim)

    def optimum(log_n):
        def gap(p):
            return np.log(bias_rate) - bias_rate * p - log_variance_fall(p) + log_n

        return brentq(gap, 1e-6, 1e6)

    slope = (optimum(1.01e5) - optimum(1e5)) / 1e3
    assert limiting_slope(bandwidth, scale, bias_rate) == pytest.approx(slope, rel=1e-3)
    # The controls: other queries, and common sizes, which are far from the limit.
    assert abs(limiting_slope(bandwidth, 1.0, bias_rate) / slope - 1) > 0.01
    assert optimum(12.0) - optimum(11.0) < 0.97 * slope


def test_fibonacci_learners__tend_to_the_cube_of_the_golden_ratio():
    learners = function("weighting", "fibonacci_learners")
    assert learners(2) == 2 and learners(3) == pytest.approx(16 / 6)
    assert learners(200) == pytest.approx(((1 + 5**0.5) / 2) ** 3, rel=1e-12)
