"""Predicted allocations against closed forms and hand cases, and laws against brute-force minimisation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from simstudy import settings as s
from simstudy.cells import Cell
from simstudy.theory import allocation as al
from simstudy.theory import allocation_laws as laws
from simstudy.theory import regression_function
from simstudy.theory.closed_forms import origin_correlation
from simstudy.theory.local_constant import local_constant

QUADRATIC = s.Quadratic(function="quadratic", coefficients=(1e-3,))
INTERACTION = s.Interaction(function="interaction")
ORIGIN = np.zeros((1, 24))


def fixed(value):
    return s.FixedBandwidth(rule="fixed", value=value)


def make_data(n_keys, n_features=24, regression=QUADRATIC, noise_sd=100.0, **rest):
    return s.Data(n_keys=n_keys, n_features=n_features, regression=regression, noise_sd=noise_sd, **rest)


def origin_law(bandwidth, total_dim=24, n_features=24):
    """Variance inflation and squared bias of c |x|^2 at the origin, for the uniform average of orthogonal heads.

    A head sees p coordinates of mean square b^2/B and takes the others for 1, B = 1 + b^2.
    """
    width = 1 + bandwidth**2
    amplitude = (1e-3 * n_features) ** 2
    return (1 - width**-2) ** -0.5, laws.SharedBias(amplitude, total_dim / n_features / width)


# ---------------------------------------------------------------- predicted allocations


@pytest.mark.parametrize("total_dim", [12, 24])
def test_average_of_orthogonal_heads_by_hand(total_dim):
    n, bandwidth = 10**10, 0.7
    found = al.predicted_allocations(make_data(n), total_dim, ORIGIN, al.Policy(fixed(bandwidth)))
    inflation, bias = origin_law(bandwidth, total_dim)
    assert [a.head_dim for a in found] == [p for p in (1, 2, 3, 4, 6, 8, 12, 24) if total_dim % p == 0]
    for a in found:
        assert (a.n_heads * a.head_dim, a.bandwidth, a.reason) == (total_dim, bandwidth, "")
        share = a.head_dim / total_dim
        variance = 1e4 / n * (share * inflation**a.head_dim + 1 - share)
        squared_bias = bias.amplitude * (1 - bias.retained * share) ** 2
        assert a.ensemble_variance == pytest.approx(variance, rel=1e-6)
        assert a.squared_bias == pytest.approx(squared_bias, rel=1e-6)
        assert a.mse == pytest.approx(variance + squared_bias, rel=1e-6)
        assert a.arrangement_error == 0


def test_sum_of_orthogonal_heads_by_hand():
    zero = s.Zero(function="zero")
    found = al.predicted_allocations(make_data(10**10, regression=zero), 24, ORIGIN, al.Policy(fixed(0.7), "sum"))
    inflation = origin_law(0.7)[0]
    for a in found:
        variance = 1e-6 * (a.n_heads * inflation**a.head_dim + a.n_heads * (a.n_heads - 1))
        assert a.mse == pytest.approx(variance, rel=1e-9)


def test_more_freedom_in_the_weights_never_costs():
    queries = al.quasi_random_queries(8, 6)
    regression = s.Additive(function="additive", decay="exponential", rate=0.5)
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


def test_bandwidth_rules_are_those_of_the_schema():
    data = make_data(10**6, 4, noise_sd=1.0)
    for rule, expected in (
        (s.RateBandwidth(rule="rate", constant=2.0), lambda p: 2 * 1e6 ** (-1 / (4 + p))),
        (s.AttentionBandwidth(rule="attention"), lambda p: p**0.25),
    ):
        for a in al.predicted_allocations(data, 4, np.zeros((1, 4)), al.Policy(rule)):
            assert a.bandwidth == pytest.approx(expected(a.head_dim))


def test_best_bandwidth_is_a_minimum():
    data, queries = make_data(10**8, 4, s.Linear(function="linear", coefficients=(1.0,) * 4)), np.full((1, 4), 0.5)
    policy = al.Policy(None, "sum")
    for a in al.predicted_allocations(data, 4, queries, policy):
        assert a.reason == ""
        step = 0.03 * a.bandwidth
        rivals = [
            b
            for change in (-step, step)
            for b in al.predicted_allocations(data, 4, queries, policy._replace(bandwidth=fixed(a.bandwidth + change)))
            if b.head_dim == a.head_dim
        ]
        assert all(a.mse < rival.mse < 1.02 * a.mse for rival in rivals)


def test_best_bandwidth_at_an_edge_is_said():
    pure_noise = make_data(10**6, 2, s.Zero(function="zero"))
    found = al.predicted_allocations(pure_noise, 2, np.zeros((1, 2)), al.Policy(None))
    assert all("range" in a.reason and a.bandwidth == pytest.approx(10, rel=0.01) for a in found)
    few = make_data(10**5, 4, INTERACTION, noise_sd=1.0)
    found = al.predicted_allocations(few, 4, al.quasi_random_queries(8, 4), al.Policy(None))
    assert "leading order does not hold" in found[-1].reason
    assert np.isnan(found[-1].mse)


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
    zero = s.Zero(function="zero")
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


def test_no_interpolated_optimum_without_a_minimum_in_sight():
    assert 1 < al.interpolated_head_dim(made([3.0, 1.0, 2.0, 9.0])) < 4
    for errors in ([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], [3.0, 1.0, np.nan, np.nan]):
        assert np.isnan(al.interpolated_head_dim(made(errors)))


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


# ---------------------------------------------------------------- slopes of predicted allocations


def test_predicted_slope_is_that_of_the_law():
    sizes = [10**10, 10**11, 10**12, 10**13]
    inflation, bias = origin_law(0.5)
    roots = [laws.fixed_bandwidth_optimum(np.log(n), 24, 1e4, inflation, bias) for n in sizes]
    slope = al.predicted_slope(make_data(10), 24, ORIGIN, al.Policy(fixed(0.5)), sizes)
    assert slope == pytest.approx(np.polyfit(np.log(sizes), roots, 1)[0], rel=0.01)
    local = [laws.fixed_bandwidth_slope(p, 24, inflation, bias) for p in roots]
    assert min(local) < slope < max(local)
    # Neither the limit nor the law of an exponential bias passes.
    assert slope < 0.9 / np.log(inflation)


def test_sum_of_heads_of_an_additive_target_wants_the_same_heads_at_any_n():
    inflation = origin_law(0.7)[0]
    optimum = laws.sum_optimum(24, inflation)
    policy = al.Policy(fixed(0.7), "sum")
    odd = s.Linear(function="linear", coefficients=(1e-3,) * 24)
    for n in (10**9, 10**12):
        found = al.predicted_allocations(make_data(n, regression=odd), 24, ORIGIN, policy)
        assert al.interpolated_head_dim(found) == pytest.approx(optimum, rel=0.01)
    assert abs(al.predicted_slope(make_data(10, regression=odd), 24, ORIGIN, policy, (10**9, 10**11))) < 0.01
    slope = al.predicted_head_count_slope(make_data(10**10, regression=odd), (12, 18, 24), ORIGIN, policy)
    budgets = np.array([12, 18, 24])
    counts = budgets / [laws.sum_optimum(D, inflation) for D in budgets]
    # Interpolated optima are right to one percent, and budgets range over a factor of two.
    assert slope == pytest.approx(np.polyfit(np.log(budgets), np.log(counts), 1)[0], abs=0.02)
    assert 0.5 < slope < 0.9
    # Even functions have means, which the sum counts once for every head.
    even = al.predicted_allocations(make_data(10**12), 24, ORIGIN, policy)
    assert al.optimal_allocation(even).head_dim > 2 * optimum


# ---------------------------------------------------------------- laws


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


# ---------------------------------------------------------------- what an average of disjoint heads can do


@pytest.mark.parametrize("name", ["additive", "interaction", "bump"])
def test_average_of_disjoint_heads_cannot_have_less_bias_than_the_share_they_miss(name):
    regression = {
        "additive": s.Additive(function="additive", decay="exponential", rate=1.5),
        "interaction": s.Interaction(function="interaction"),
        "bump": s.Bumps(function="bumps", width=1.5),
    }[name]
    data, queries = make_data(10**9, 4, regression), al.quasi_random_queries(4096, 4)
    heads = np.eye(4).reshape(4, 2, 2).swapaxes(0, 1)
    cell = Cell(
        data=data,
        heads=s.Heads(n_heads=2, head_dim=2, arrangement="orthogonal"),
        estimator=s.Estimator(bandwidth=fixed(0.01)),
    )
    bias = local_constant(cell, heads, heads, queries).projection_bias.mean(axis=1)
    floor = np.var(regression_function(regression, 4)(queries)) / 4
    ratio = np.mean(bias**2) / floor
    assert ratio > 0.99
    # Equality for what is additive over the blocks.
    assert (abs(ratio - 1) < 0.01) == (name != "bump")
