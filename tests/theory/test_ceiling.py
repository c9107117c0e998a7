"""The proof of simstudy/docs/ceiling.md: each step by numbers that use no formula of it but the one that is checked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

DIMENSIONS = [1, 2, 4, 16, 64, 256, 4096]


def softmax_weights(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def one_dimension(power: float, temperature: float, x: float = 0.0) -> float:
    """E K^m of a head of one dimension, by quadrature."""
    integrand = lambda z: norm.pdf(z) * math.exp(-power * (z - x) ** 2 / (2.0 * temperature))  # noqa: E731
    return integrate.quad(integrand, -12.0, 12.0, epsabs=0.0, epsrel=1e-12, points=[0.0, x])[0]


def ceiling(p: int, temperature: float, x: float = 0.0) -> float:
    """E K^2/(E K)^2 of a head whose query has the coordinate x in each of its p dimensions."""
    ratio = one_dimension(2.0, temperature, x) / one_dimension(1.0, temperature, x) ** 2
    return ratio**p


def test_first_step__orthogonal_heads_have_the_covariance_of_one_value_in_n():
    rng = np.random.default_rng(20261122)
    n, reps = 7, 40_000
    keys = rng.normal(size=(reps, n, 4))
    weights = [softmax_weights(-(keys[..., part] ** 2).sum(-1) / 2.0) for part in (slice(0, 2), slice(2, 4))]
    products = (weights[0] * weights[1]).sum(-1)
    assert abs(products.mean() - 1.0 / n) < 4.0 * products.std() / math.sqrt(reps)
    aligned = (weights[0] ** 2).sum(-1)  # the control: heads that share their directions have more
    assert aligned.mean() - 1.0 / n > 20.0 * aligned.std() / math.sqrt(reps)


def test_second_step__n_times_the_variance_tends_to_the_inverse_share_of_keys():
    rng = np.random.default_rng(20261123)
    limit, found = ceiling(4, 2.0), {}
    for n in (4, 4096):
        weights = softmax_weights(-(rng.normal(size=(400_000 // n, n, 4)) ** 2).sum(-1) / 4.0)
        sizes = n * (weights**2).sum(-1)
        found[n] = sizes.mean(), sizes.std() / math.sqrt(len(sizes))
    assert abs(found[4096][0] - limit) < 4.0 * found[4096][1] + 0.001 * limit
    assert limit - found[4][0] > 20.0 * found[4][1]  # of few keys the ceiling is lower


@pytest.mark.parametrize("p", DIMENSIONS)
def test_third_and_fourth_step__ceiling_at_the_centre_and_its_bound(p):
    kappa = 1.0 / (1.0 + math.sqrt(p))
    found = ceiling(p, math.sqrt(p))
    assert found == pytest.approx((1.0 - kappa**2) ** (-p / 2.0), rel=1e-9 * p)
    bound = (1.0 - kappa) / (2.0 * (1.0 + kappa))
    assert math.log(found) <= bound < 0.5


@pytest.mark.parametrize("c", [0.25, 0.5, 1.0, 2.0])
def test_fourth_step__limits_at_other_temperatures(c):
    logs = [math.log(ceiling(p, c * math.sqrt(p))) for p in (10**4, 10**6, 10**8)]
    gaps = [abs(log - 0.5 / c**2) for log in logs]
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 1e-3 / c**3


@pytest.mark.parametrize("p", [1, 4, 16, 64])
def test_fifth_step__queries_away_from_the_centre(p):
    tau = math.sqrt(p)
    share = (tau + 1.0) * (tau + 2.0)
    for x in (0.5, 2.0):
        assert ceiling(1, tau, x) / ceiling(1, tau) == pytest.approx(math.exp(x**2 / share), rel=1e-9)
    mean = integrate.quad(lambda x: norm.pdf(x) * math.exp(x**2 / share), -12.0, 12.0, epsrel=1e-12)[0]
    assert mean**p == pytest.approx((1.0 - 2.0 / share) ** (-p / 2.0), rel=1e-8)
    assert 1.0 < mean**p < math.e


@pytest.mark.parametrize("length", [0.5, 1.0, 2.0])
def test_sixth_step__dot_products(length):
    moments = [
        integrate.quad(lambda z, m=m: norm.pdf(z) * math.exp(m * length * z), -15.0, 15.0, epsrel=1e-12)[0]
        for m in (1.0, 2.0)
    ]
    assert moments[1] / moments[0] ** 2 == pytest.approx(math.exp(length**2), rel=1e-9)
