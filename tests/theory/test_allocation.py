"""Predicted allocations against closed forms and hand cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

from simstudy.design import settings as s
from simstudy.theory import allocation as al
from simstudy.theory.closed_forms import averaged_noise_ratio, origin_correlation

QUADRATIC = s.Quadratic(kind="quadratic", coefficients=(1e-3,))
INTERACTION = s.Interaction(kind="interaction")
ORIGIN = np.zeros((1, 24))


def fixed(value):
    return s.FixedBandwidth(kind="fixed", value=value)


def make_data(n_keys, n_features=24, regression=QUADRATIC, noise_sd=100.0, **rest):
    return s.Data(n_keys=n_keys, n_features=n_features, regression=regression, noise_sd=noise_sd, **rest)


def origin_law(bandwidth, total_dim=24, n_features=24):
    """Variance inflation, and amplitude A and share r of the squared bias A (1 - r p/D)^2 of averaged orthogonal heads.

    Of c |x|^2 at the origin.  A head sees p coordinates of mean square b^2/B and takes the others for 1, B = 1 + b^2.
    """
    width = 1 + bandwidth**2
    amplitude = (1e-3 * n_features) ** 2
    return (1 - width**-2) ** -0.5, amplitude, total_dim / n_features / width


# ---------------------------------------------------------------- predicted allocations


@pytest.mark.parametrize("total_dim", [12, 24])
def test_average_of_orthogonal_heads_by_hand(total_dim):
    n, bandwidth = 10**10, 0.7
    found = al.predicted_allocations(make_data(n), total_dim, ORIGIN, al.Policy(fixed(bandwidth)))
    inflation, amplitude, retained = origin_law(bandwidth, total_dim)
    assert [a.head_dim for a in found] == [p for p in (1, 2, 3, 4, 6, 8, 12, 24) if total_dim % p == 0]
    for a in found:
        assert (a.n_heads * a.head_dim, a.bandwidth, a.reason) == (total_dim, bandwidth, "")
        share = a.head_dim / total_dim
        variance = 1e4 / n * (share * inflation**a.head_dim + 1 - share)
        squared_bias = amplitude * (1 - retained * share) ** 2
        assert a.ensemble_variance == pytest.approx(variance, rel=1e-6)
        assert a.squared_bias == pytest.approx(squared_bias, rel=1e-6)
        assert a.mse == pytest.approx(variance + squared_bias, rel=1e-6)
        assert a.arrangement_error == 0


def test_sum_of_orthogonal_heads_by_hand():
    zero = s.Zero(kind="zero")
    found = al.predicted_allocations(make_data(10**10, regression=zero), 24, ORIGIN, al.Policy(fixed(0.7), "sum"))
    inflation = origin_law(0.7)[0]
    for a in found:
        variance = 1e-6 * (a.n_heads * inflation**a.head_dim + a.n_heads * (a.n_heads - 1))
        assert a.mse == pytest.approx(variance, rel=1e-9)


def test_more_freedom_in_the_weights_never_costs():
    queries = al.quasi_random_queries(8, 6)
    regression = s.Additive(kind="additive", decay="exponential", rate=0.5)
    data = make_data(10**6, 6, regression, noise_sd=1.0)

    def errors(combination):
        found = al.predicted_allocations(data, 6, queries, al.Policy(fixed(0.8), combination))
        return np.array([a.mse for a in found])

    uniform, total, best, free = (errors(c) for c in ("uniform", "sum", "optimal", "unconstrained"))
    for smaller, larger in ((best, uniform), (free, best), (free, total)):
        assert np.all(smaller <= larger * (1 + 1e-9))
        # With one head, sum and uniform agree and only the free weight can do better.
        assert smaller[0] < 0.99 * larger[0]
    assert best[-1] == uniform[-1] == total[-1] > free[-1]


def test_dot_product_logits_are_another_estimator():
    data, queries = make_data(10**8, 4, noise_sd=1.0), np.full((1, 4), 0.5)
    distance, dot = (
        al.predicted_allocations(data, 4, queries, al.Policy(fixed(1.5), logits=logits))
        for logits in ("distance", "dot_product")
    )
    for p, a in zip((1, 2, 4), dot, strict=True):
        # n Var / sigma^2 = exp(|k|^2) for a head, 1 for two orthogonal ones, k = x / b^2 on the block.
        own = np.exp(p * 0.25 / 1.5**4)
        assert a.ensemble_variance * 1e8 == pytest.approx(p / 4 * own + 1 - p / 4, rel=1e-3)
        other = distance[(1, 2, 4).index(p)].ensemble_variance
        assert abs((a.ensemble_variance * 1e8 - 1) / (other * 1e8 - 1) - 1) > 0.1


def test_orthogonal_heads_do_not_exceed_the_features():
    with pytest.raises(ValueError, match="haar"):
        al.predicted_allocations(make_data(100, 4), 8, np.zeros((1, 4)), al.Policy(fixed(1.0)))


# ---------------------------------------------------------------- random arrangements


def test_haar_average_of_two_heads_in_the_plane():
    # The angle between two random lines is uniform.
    zero = s.Zero(kind="zero")
    data, policy = make_data(10**8, 2, zero, noise_sd=1.0), al.Policy(fixed(0.5), arrangement="haar")
    found = al.predicted_allocations(data, 2, np.zeros((1, 2)), policy)
    inflation = origin_law(0.5)[0]
    angles = (np.arange(1000) + 0.5) * np.pi / 2000
    expected = inflation / 2 * (1 + np.mean(origin_correlation(angles[:, None], 0.5))) / 1e8
    assert found[0].arrangement_error > 0
    assert abs(found[0].mse - expected) < 3 * found[0].arrangement_error
    # Orthogonal heads are not the average of random ones.
    orthogonal = al.predicted_allocations(data, 2, np.zeros((1, 2)), policy._replace(arrangement="orthogonal"))
    assert abs(orthogonal[0].mse - expected) > 3 * found[0].arrangement_error
    # One head of full dimension is the same in every arrangement.
    assert found[1].arrangement_error < 1e-12 * found[1].mse
    assert found[1].mse == pytest.approx(orthogonal[1].mse)


def test_haar_heads_may_exceed_the_features():
    data = make_data(10**8, 3, noise_sd=1.0)
    policy = al.Policy(fixed(0.8), "optimal", arrangement="haar")
    found = al.predicted_allocations(data, 12, np.zeros((1, 3)), policy)
    assert [(a.n_heads, a.head_dim) for a in found] == [(12, 1), (6, 2), (4, 3)]
    assert found == al.predicted_allocations(data, 12, np.zeros((1, 3)), policy)
    assert all(np.isfinite(a.mse) for a in found)


# ---------------------------------------------------------------- the best allocation


def made(errors):
    return [al.Allocation(8 // p, p, 1.0, e, e / 2, e / 2, 0.0, "") for p, e in zip((1, 2, 4, 8), errors, strict=True)]


def test_best_allocation_names_those_without_a_prediction():
    best = al.optimal_allocation(made([3.0, 1.0, 2.0, np.nan]))
    assert (best.head_dim, best.reason) == (2, "no prediction for head_dim 8")
    assert al.optimal_allocation(made([3.0, 1.0, 2.0, 0.5])) == made([3.0, 1.0, 2.0, 0.5])[3]
    with pytest.raises(ValueError, match="no allocation"):
        al.optimal_allocation(made([np.nan] * 4))


@pytest.mark.parametrize("n_keys", [10**6, 10**7])
def test_a_target_of_two_dimensions_wants_heads_of_two(n_keys):
    data, queries = make_data(n_keys, 4, INTERACTION, noise_sd=1.0), al.quasi_random_queries(8, 4)
    best = {}
    for combination in ("uniform", "optimal"):
        found = al.predicted_allocations(data, 4, queries, al.Policy(fixed(0.4), combination))
        best[combination] = al.optimal_allocation(found)
        assert best[combination].reason == ""
    assert best["optimal"].head_dim == 2
    # The average divides the one good head by H: the counter-case of the counter-case.
    assert best["uniform"].head_dim == 4


# ---------------------------------------------------------------- how the best dimension grows


@pytest.mark.parametrize("bias_rate", [0.5, 2.0])
def test_limiting_slope__is_that_of_the_balance_at_enormous_n(bias_rate):
    """Squared bias exp(-g p) against the variance (p/D) L^p / n of averaged heads, n given by its logarithm."""
    bandwidth, scale, total_dim = 0.7, 0.5, 24

    def log_variance_fall(p):
        inflation = np.log(averaged_noise_ratio(np.zeros(1), bandwidth, scale))
        return p * inflation + np.log1p(p * inflation) - np.log(total_dim)

    def optimum(log_n):
        def gap(p):
            return np.log(bias_rate) - bias_rate * p - log_variance_fall(p) + log_n

        return brentq(gap, 1e-6, 1e6)

    slope = (optimum(1.01e5) - optimum(1e5)) / 1e3
    assert al.limiting_slope(bandwidth, scale, bias_rate) == pytest.approx(slope, rel=1e-3)
    # The controls: other queries, and common sizes, which are far from the limit.
    assert abs(al.limiting_slope(bandwidth, 1.0, bias_rate) / slope - 1) > 0.01
    assert optimum(12.0) - optimum(11.0) < 0.97 * slope
