"""Constants of kernels against their integrals, and the risks that they give against minimisation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import gamma

from simstudy.theory.local_constant import compact_constants, gaussian_constants, tuned_risk_ratio


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_constants_of_compact_kernels_are_their_integrals(p, power):
    surface = 2 * np.pi ** (p / 2) / gamma(p / 2)

    def integral(exponent, moment):
        return surface * quad(lambda u: (1 - u**2) ** exponent * u ** (p - 1 + moment), 0, 1)[0]

    constants, mass = compact_constants(p, power), integral(power, 0)
    assert constants.second_moment == pytest.approx(integral(power, 2) / p / mass, rel=1e-10)
    assert constants.roughness == pytest.approx(integral(2 * power, 0) / mass**2, rel=1e-10)


@pytest.mark.parametrize(("p", "ratio"), [(1, 1.041), (2, 1.082), (4, 1.155), (8, 1.265)])
def test_gaussian_kernel_costs_what_is_published_against_epanechnikov(p, ratio):
    assert tuned_risk_ratio(p, 1) == pytest.approx(ratio, abs=6e-4)


@pytest.mark.parametrize("power", [1, 3])
def test_tuned_risk_ratio__is_that_of_risks_minimised_over_the_bandwidth(power):
    p, n = 3, 1e6

    def least(constants):
        def risk(log_b):
            b = np.exp(log_b)
            return (b**2 * constants.second_moment) ** 2 + constants.roughness / (n * b**p)

        return minimize_scalar(risk, bounds=(-8, 3), method="bounded", options={"xatol": 1e-9}).fun

    ratio = least(gaussian_constants(p)) / least(compact_constants(p, power))
    assert tuned_risk_ratio(p, power) == pytest.approx(ratio, rel=1e-6)


def test_a_gaussian_kernel_is_the_limit_of_compact_ones():
    # (1 - |u|^2)^r with u = v / sqrt(2r) tends to exp(-|v|^2 / 2).
    power, p = 10**5, 3
    compact, gaussian = compact_constants(p, power), gaussian_constants(p)
    assert 2 * power * compact.second_moment == pytest.approx(gaussian.second_moment, rel=1e-4)
    assert compact.roughness / (2 * power) ** (p / 2) == pytest.approx(gaussian.roughness, rel=1e-4)
