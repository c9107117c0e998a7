"""Closed forms in principal angles against integrals, the upper limit of heads, and what theory offers to users."""

import importlib
import inspect
import math
import re

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm
from theory_oracle import gaussian_grid, make_cell

from simstudy import theory
from simstudy.theory import closed_forms as cf
from simstudy.theory import leading_order

RNG = np.random.default_rng(7)
ANGLES = np.radians([[0.0, 0.0], [0.0, 90.0], [45.0, 45.0], [20.0, 70.0], [90.0, 90.0]])


def turned_pair(angles):
    """Two heads of dimension p with given principal angles in R^(2p + 1), in a random orientation."""
    p = len(angles)
    space = np.linalg.qr(RNG.normal(size=(2 * p + 1, 2 * p + 1)))[0]
    first, normal = space[:, :p], space[:, p : 2 * p]
    return np.stack([first, first * np.cos(angles) + normal * np.sin(angles)])


def scaled_noise(heads, queries, logits, bandwidth):
    """n Cov / sigma^2 of pure-noise heads from the general formula, (Q, 2, 2)."""
    cell = make_cell(10**7, heads.shape[1], 2, heads.shape[2], logits, bandwidth, noise_sd=3.0)
    prediction = leading_order(cell, heads, heads, queries)
    assert prediction.reason == ""
    return prediction.covariance * 10**7 / 9


@pytest.mark.parametrize("angles", ANGLES)
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 3.0])
def test_distance_forms_follow_from_the_general_formula(angles, bandwidth):
    heads = turned_pair(angles)
    queries = np.vstack([np.zeros(5), RNG.normal(size=(3, 5))])
    noise = scaled_noise(heads, queries, "distance", bandwidth)
    ratio = cf.noise_ratio(queries @ heads[0], queries @ heads[1], angles, bandwidth)
    np.testing.assert_allclose(ratio, noise[:, 0, 1], rtol=1e-10)
    correlation = noise[0, 0, 1] / noise[0, 0, 0]
    np.testing.assert_allclose(cf.origin_correlation(angles, bandwidth), correlation, rtol=1e-10)


@pytest.mark.parametrize("angles", ANGLES)
def test_dot_product_form_follows_from_the_general_formula(angles):
    heads, bandwidth = turned_pair(angles), 1.2
    queries = RNG.normal(size=(3, 5))
    noise = scaled_noise(heads, queries, "dot_product", bandwidth)
    pulled = queries @ heads @ heads.mT / bandwidth**2
    expected = noise[:, 0, 1] / np.sqrt(noise[:, 0, 0] * noise[:, 1, 1])
    np.testing.assert_allclose(cf.dot_product_correlation(*pulled, np.eye(5)), expected, rtol=1e-10)


def test_origin_correlation_runs_from_one_to_the_floor():
    for bandwidth in (1e-3, 0.5, 4.0):
        assert cf.origin_correlation(np.zeros(3), bandwidth) == 1.0
        orthogonal = cf.origin_correlation(np.full(3, np.pi / 2), bandwidth)
        assert orthogonal == pytest.approx((1 - (1 + bandwidth**2) ** -2) ** 1.5, rel=1e-9)
        # Concentrated overlap is worse than the same overlap spread out.
        spread, concentrated = cf.origin_correlation(np.radians([[45.0, 45.0], [0.0, 90.0]]), bandwidth)
        assert orthogonal < spread < concentrated < 1


@pytest.mark.parametrize("degrees", [0.0, 40.0, 90.0])
@pytest.mark.parametrize("bandwidth", [0.5, 1.5])
def test_query_averages_are_the_integrals_they_claim(degrees, bandwidth):
    angle = np.radians([degrees])
    points, weights = gaussian_grid(np.eye(2), extent=20.0, step=0.1)
    head, other = points[:, :1], points @ np.array([[np.cos(angle[0])], [np.sin(angle[0])]])
    for scale in (1.0, 0.5):
        ratio = weights @ cf.noise_ratio(scale * head, scale * other, angle, bandwidth)
        np.testing.assert_allclose(cf.averaged_noise_ratio(angle, bandwidth, scale), ratio, rtol=1e-9)


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


FOR_USERS = (
    "closed_forms", "compact_kernels", "exact.logits", "exact.moments", "leading", "measures",
    "weighting",
)  # fmt: skip


@pytest.mark.parametrize("name", FOR_USERS)
def test_public_functions__are_exported(name):
    module = importlib.import_module(f"simstudy.theory.{name}")
    functions = {
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    }
    assert functions and functions <= set(theory.__all__)


def test_docstring__says_which_function_answers_what():
    taught = set(re.findall(r":func:`(\w+)`", theory.__doc__))
    functions = {name for name in theory.__all__ if inspect.isfunction(getattr(theory, name))}
    assert taught == functions
