"""Closed forms and optimal weights against integrals, exact theory and a general solver, measures by hand."""

import importlib
import inspect
import re
from functools import partial

import naive
import numpy as np
import pytest
from builders import refuses
from scipy.optimize import minimize
from theory_oracle import gaussian_grid, make_cell

from simstudy import theory
from simstudy.theory import Prediction, alignment_threshold, exact_moments, isotropic_bias, leading_order
from simstudy.theory import closed_forms as cf
from simstudy.theory import weighting as w

RNG = np.random.default_rng(7)
ANGLES = np.radians([[0.0, 0.0], [0.0, 90.0], [45.0, 45.0], [20.0, 70.0], [90.0, 90.0]])


def scaled_noise(heads, queries, logits, bandwidth):
    cell = make_cell(10**7, heads.shape[1], 2, heads.shape[2], logits, bandwidth, noise_sd=3.0)
    prediction = leading_order(cell, heads, heads, queries)
    assert prediction.reason == ""
    return prediction.covariance * 10**7 / 9


@pytest.mark.parametrize("angles", ANGLES)
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 3.0])
def test_distance_forms_follow_from_the_general_formula(angles, bandwidth):
    heads = naive.turned(angles, np.linalg.qr(RNG.normal(size=(5, 5)))[0])
    queries = np.vstack([np.zeros(5), RNG.normal(size=(3, 5))])
    noise = scaled_noise(heads, queries, "distance", bandwidth)
    ratio = cf.noise_ratio(queries @ heads[0], queries @ heads[1], angles, bandwidth)
    np.testing.assert_allclose(ratio, noise[:, 0, 1], rtol=1e-10)
    np.testing.assert_allclose(cf.origin_correlation(angles, bandwidth), noise[0, 0, 1] / noise[0, 0, 0], rtol=1e-10)


@pytest.mark.parametrize("angles", ANGLES)
def test_dot_product_form_follows_from_the_general_formula(angles):
    heads, bandwidth = naive.turned(angles, np.linalg.qr(RNG.normal(size=(5, 5)))[0]), 1.2
    queries = RNG.normal(size=(3, 5))
    noise = scaled_noise(heads, queries, "dot_product", bandwidth)
    pulled = queries @ heads @ heads.mT / bandwidth**2
    expected = noise[:, 0, 1] / np.sqrt(noise[:, 0, 0] * noise[:, 1, 1])
    np.testing.assert_allclose(cf.dot_product_correlation(*pulled, np.eye(5)), expected, rtol=1e-10)


@pytest.mark.parametrize("degrees", [0.0, 40.0, 90.0])
@pytest.mark.parametrize("bandwidth", [0.5, 1.5])
def test_query_averages_are_the_integrals_they_claim(degrees, bandwidth):
    angle = np.radians([degrees])
    points, weights = gaussian_grid(np.eye(2), extent=20.0, step=0.1)
    head, other = points[:, :1], points @ np.array([[np.cos(angle[0])], [np.sin(angle[0])]])
    for scale in (1.0, 0.5):
        ratio = weights @ cf.noise_ratio(scale * head, scale * other, angle, bandwidth)
        np.testing.assert_allclose(cf.averaged_noise_ratio(angle, bandwidth, scale), ratio, rtol=1e-9)


@pytest.mark.parametrize("name", [
    "closed_forms", "compact_kernels", "exact.logits", "exact.moments", "informed", "leading", "measures",
    "weighting",
])  # fmt: skip
def test_public_functions__are_exported_and_the_docstring_says_which_answers_what(name):
    module = importlib.import_module(f"simstudy.theory.{name}")
    own = {key: value for key, value in vars(module).items() if not key.startswith("_") and inspect.isfunction(value)}
    functions = {key for key, value in own.items() if value.__module__ == module.__name__}
    assert functions and functions <= set(theory.__all__)
    taught = set(re.findall(r":func:`(\w+)`", theory.__doc__))
    assert taught == {name for name in theory.__all__ if inspect.isfunction(getattr(theory, name))}


@pytest.mark.parametrize("degrees, n_features", [([50.0], 2), ([0.0, 35.0], 4), ([20.0, 80.0], 5), ([0.0, 90.0], 3)])
@pytest.mark.parametrize("bandwidth, frequency_sd, scale", [(0.5, 1.0, 1.0), (1.2, 0.4, 0.5)])
def test_isotropic_bias__is_that_of_random_waves(degrees, n_features, bandwidth, frequency_sd, scale):
    angles, width, p, draws = np.radians(degrees), 1 + bandwidth**2, len(degrees), 100_000
    normals = p - 1 + np.cumsum(angles > 0)  # one for each angle that is not 0
    heads = naive.turned(angles, np.eye(n_features)[:, [*range(p), *normals]])
    waves, queries = frequency_sd * RNG.normal(size=(draws, n_features)), scale * RNG.normal(size=(draws, n_features))
    average = np.zeros(draws, complex)
    for head in heads:
        seen, place = waves @ head, np.sum((waves @ head) * (queries @ head), axis=1) / width
        average += 0.5 * np.exp(1j * place - 0.5 * (np.sum(waves**2, axis=1) - np.sum(seen**2, axis=1) / width))
    squares = abs(average - np.exp(1j * np.sum(waves * queries, axis=1))) ** 2
    found = isotropic_bias(angles, bandwidth, frequency_sd, 2, n_features, scale)
    assert abs(squares.mean() - found) < 4 * squares.std() / draws**0.5


def test_isotropic_bias__of_more_heads_rises_in_no_angle_and_the_threshold_has_known_limits():
    """Of wide kernels 1/H, of narrow ones (2H - 1)/H²."""
    angles = np.radians(np.stack(np.meshgrid(*[np.arange(0, 91, 15)] * 2, indexing="ij"), axis=-1))
    for n_heads, frequency_sd in ((2, 0.3), (4, 1.0), (8, 3.0)):
        found = isotropic_bias(angles, 0.7, np.full(angles.shape[:-1], frequency_sd), n_heads, 8)
        assert (np.diff(found, axis=0) < 0).all() and (np.diff(found, axis=1) < 0).all()
        assert alignment_threshold(n_heads, 3, 1e3) == pytest.approx(1 / n_heads, rel=1e-5)
        assert alignment_threshold(n_heads, 3, 1e-3) == pytest.approx((2 * n_heads - 1) / n_heads**2, rel=1e-5)


def exact_error(n_keys, arrangement, gradient, noise_sd, bandwidth, scale):
    linear = {"kind": "linear", "coefficients": gradient}
    cell = make_cell(n_keys, bandwidth=bandwidth, regression=linear, noise_sd=noise_sd)
    nodes, masses = np.polynomial.hermite_e.hermegauss(4)
    queries = scale * np.array(np.meshgrid(nodes, nodes[2:])).reshape(2, -1).T  # errors are even in the query
    heads = np.eye(2)[:, :, None] if arrangement == "orthogonal" else np.eye(2)[[0, 0]][:, :, None]
    exact = exact_moments(cell, heads, heads, queries)
    assert not exact.reason
    errors = exact.bias.mean(axis=1) ** 2 + exact.covariance.mean(axis=(1, 2))
    return 2 * errors @ np.outer(masses[2:], masses).ravel() / masses.sum() ** 2


@pytest.mark.parametrize("noise_sd, bandwidth, scale", [(1.5, 1.0, 0.5), (1.0, 0.7, 0.7)])
def test_alignment_threshold__is_that_of_exact_theory_but_for_the_next_order(noise_sd, bandwidth, scale):
    gaps = {}
    for n in (100, 400):
        setting = noise_sd, bandwidth, scale
        unseen, seen = (exact_error(n, "aligned", gradient, *setting) for gradient in ([0.0, 1.0], [1.0, 0.0]))
        apart = exact_error(n, "orthogonal", [0.6, 0.8], *setting)
        found = alignment_threshold(2, 1, bandwidth, n, noise_sd, scale)
        gaps[n] = (unseen - apart) / (unseen - seen) - found
        limit = alignment_threshold(2, 1, bandwidth, query_scale=scale)
        assert abs(gaps[n]) < 0.25 * abs(found - limit)  # the control: what noise and n add is seen
    assert abs(gaps[400]) < abs(gaps[100]) / 8  # n^-2


simplex_weights, front_greater_weights = (partial(w.optimal_weights, within=x) for x in ("simplex", "front_greater"))


def random_moment(n_heads, seed=0, rank=None, scale=1.0):
    root = np.random.default_rng(seed).normal(size=(n_heads, rank or n_heads + 2))
    return scale * root @ root.T


def test_risk_of_any_weights_is_the_mean_squared_error():
    rng = np.random.default_rng(0)
    root, bias, target = (rng.normal(size=shape) for shape in ((3, 4, 4), (3, 4), 3))
    prediction = Prediction(bias, root @ root.mT, target, 0 * bias, "")
    for weights in (np.full(4, 0.25), np.ones(4), np.array([0.3, -2.0, 0.0, 1.1])):
        estimate = (prediction.bias + prediction.target[:, None]) @ weights
        variance = [weights @ c @ weights for c in prediction.covariance]
        expected = np.mean((estimate - prediction.target) ** 2 + variance)
        assert w.mean_squared_error(weights, w.error_moments(prediction)) == pytest.approx(expected)


def slack(moment, weights):
    """Of each head: Ea - a'Ea, 0 at the best weights that add up to 1, where no head is left out."""
    gradient = moment @ weights
    return (gradient - weights @ gradient) / np.abs(moment).max()


@pytest.mark.parametrize("n_heads", [1, 2, 5, 40])
def test_optimal_weights_meet_the_condition_and_others_do_not(n_heads):
    moment = random_moment(n_heads, scale=1e-5)
    best = w.optimal_weights(moment)
    assert best.weights.sum() == pytest.approx(1, abs=1e-12)
    assert np.abs(slack(moment, best.weights)).max() < 1e-12 and best.rank == n_heads
    assert best.risk == pytest.approx(1 / np.linalg.inv(moment).sum(), rel=1e-9)
    assert n_heads == 1 or np.abs(slack(moment, np.full(n_heads, 1 / n_heads))).max() > 1e-3


def test_identical_heads_share_their_weight_and_cancelling_errors_leave_no_risk_where_the_pseudo_inverse_does():
    moment = random_moment(3, seed=2)
    alone, best = w.optimal_weights(moment), w.optimal_weights(moment[np.ix_([0, 0, 1, 2], [0, 0, 1, 2])])
    np.testing.assert_allclose(best.weights, alone.weights[[0, 0, 1, 2]] / [2, 2, 1, 1], atol=1e-12)
    assert best.rank == 3
    np.testing.assert_allclose(w.optimal_weights(np.ones((5, 5))).weights, 0.2)
    np.testing.assert_allclose(w.optimal_weights(np.zeros((5, 5))).weights, 0.2)
    # Errors e and 2e, no noise: 2 f_1 - f_2 is the target.
    moment = np.outer([1.0, 2.0], [1.0, 2.0])
    best = w.optimal_weights(moment)
    np.testing.assert_allclose(best.weights, [2, -1])
    assert best.risk == pytest.approx(0, abs=1e-15)
    naive = np.linalg.pinv(moment).sum(axis=1)
    assert naive @ moment @ naive / naive.sum() ** 2 > 1

    wide = random_moment(6, rank=3)
    singular, ridged = w.optimal_weights(wide), w.optimal_weights(wide + 1e-6 * np.eye(6))
    np.testing.assert_allclose(singular.weights, ridged.weights, atol=1e-5)


@pytest.mark.parametrize("moment, word", [
    (np.array([[1.0, np.nan], [np.nan, 1.0]]), "finite"),
    (np.array([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
    (np.ones((2, 3)), r"shape \(2, 3\); give \(H, H\)"),
    (np.ones(1), r"shape \(1,\); give \(H, H\)"),
    (np.array([[1.0, 2.0], [2.0, 1.0]]), "semidefinite"),
])  # fmt: skip
def test_what_is_no_moment_matrix_is_refused(moment, word):
    refuses(word, w.optimal_weights, moment, error=ValueError)
    told = "within = 'x'; give one of affine, simplex, front_greater"
    refuses(told, w.optimal_weights, np.eye(2), "x", error=ValueError)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("n_heads", [1, 2, 7, 60])
def test_simplex_weights_meet_the_kkt_conditions(n_heads, scale):
    """On a >= 0, sum a = 1: Ea >= a'Ea, with equality where a > 0."""
    for seed in range(5):
        moment = random_moment(n_heads, seed, scale=scale)
        best = simplex_weights(moment)
        a, lack = best.weights, slack(moment, best.weights)
        assert max(-lack.min(), np.abs(lack * a).max(), abs(a.sum() - 1), -a.min()) < 1e-12
        assert best.risk >= w.optimal_weights(moment).risk * (1 - 1e-12)


def test_a_general_solver_finds_no_better_front_greater_weights_and_edges_are_known():
    for seed in range(4):
        moment = random_moment(5, seed)
        moment /= moment.max()
        falling = [{"type": "eq", "fun": lambda a: a.sum() - 1}, {"type": "ineq", "fun": lambda a: a[:-1] - a[1:]}]
        found = minimize(
            lambda a, moment=moment: a @ moment @ a, np.full(5, 0.2), jac=lambda a, moment=moment: 2 * moment @ a,
            method="SLSQP", bounds=[(0, 1)] * 5, constraints=falling, options={"ftol": 1e-14, "maxiter": 500},
        )  # fmt: skip
        assert front_greater_weights(moment).risk == pytest.approx(found.fun, abs=1e-8)
    rising = np.diag([3.0, 2.0, 1.0])
    # The unordered optimum rises: the order binds everywhere.
    np.testing.assert_allclose(front_greater_weights(rising).weights, 1 / 3)
    np.testing.assert_allclose(front_greater_weights(rising[::-1, ::-1]).weights, np.array([6, 3, 2]) / 11)
    np.testing.assert_allclose(front_greater_weights(np.ones((4, 4))).weights, 0.25, atol=1e-5)


def test_unconstrained_weights_are_least_squares():
    # Heads and target as finite populations: the best weights are a regression on them.
    rng = np.random.default_rng(5)
    estimates, target = rng.normal(size=(50, 3)), rng.normal(size=50)
    errors = estimates - target[:, None]
    moments = w.ErrorMoments(errors.T @ errors / 50, target @ errors / 50, float(target @ target / 50))
    best = w.unconstrained_weights(moments)
    expected, residual = np.linalg.lstsq(estimates, target)[:2]
    np.testing.assert_allclose(best.weights, expected, rtol=1e-10)
    assert best.risk == pytest.approx(residual[0] / 50)
    assert best.risk < 0.9 * w.optimal_weights(moments.errors).risk

    twice = [0, 0, 1, 2]
    doubled = w.ErrorMoments(moments.errors[np.ix_(twice, twice)], moments.cross[twice], moments.target)
    twins = w.unconstrained_weights(doubled)
    np.testing.assert_allclose(twins.weights, expected[[0, 0, 1, 2]] / [2, 2, 1, 1], rtol=1e-9)
    assert twins.rank == 3 and twins.risk == pytest.approx(best.risk)


def make_prediction(bias, covariance, target):
    bias = np.asarray(bias, dtype=float)
    return Prediction(bias, np.asarray(covariance, dtype=float), np.asarray(target, dtype=float), 0 * bias, "")


HAND = make_prediction([[1.0, 3.0], [0.0, -1.0]], [[[4.0, 1.0], [1.0, 1.0]], [[2.0, -1.0], [-1.0, 2.0]]], [5.0, 10.0])


def test_uniform_average_and_sum_of_heads_that_is_charged_for_the_target_it_doubles_by_hand():
    assert theory.predicted_measures(HAND, (0.5, 0.5)) == pytest.approx({
        "squared_bias": (4 + 0.25) / 2, "mean_squared_bias": (5 + 0.5) / 2, "mean_variance": 2.25,
        "mean_covariance": 0.0, "ensemble_variance": (7 / 4 + 2 / 4) / 2, "mse": (4 + 0.25) / 2 + 9 / 8,
        "ambiguity": (1 + 0.25) / 2 + 2.25 - 9 / 8, "correlation": (0.5 - 0.5) / 2, "output_diversity": 1.0,
        "effective_heads": 2.0,
    })  # fmt: skip
    measures = theory.measures_by_query(HAND, (1.0, 1.0))
    np.testing.assert_allclose(measures["squared_bias"], [(4 + 5) ** 2, (-1 + 10) ** 2])
    np.testing.assert_allclose(measures["ensemble_variance"], [7.0, 2.0])
    # Heads themselves know nothing of the weights.
    np.testing.assert_allclose(measures["effective_heads"], [2.5 / (7 / 4), 2 / (2 / 4)])
    refuses(r"weights has shape \(1,\); give \(2,\)", theory.measures_by_query, HAND, [1.0], error=ValueError)


def test_one_head_has_no_pairs_zero_variance_no_correlation_and_one_blank_query_blanks_the_averages_only():
    measures = theory.predicted_measures(make_prediction([[0.2]], [[[0.3]]], [1.0]), [1.0])
    assert np.isnan([measures["mean_covariance"], measures["correlation"], measures["output_diversity"]]).all()
    assert measures["effective_heads"] == 1.0 and measures["mse"] == pytest.approx(0.04 + 0.3)
    # Warnings are errors, here as everywhere.
    measures = theory.predicted_measures(make_prediction(np.zeros((1, 2)), np.zeros((1, 2, 2)), [0.0]), (0.5, 0.5))
    assert np.isnan([measures["correlation"], measures["effective_heads"]]).all() and measures["mse"] == 0.0
    covariance = HAND.covariance.copy()
    covariance[1] = np.nan
    partial = HAND._replace(covariance=covariance)
    assert np.isfinite(theory.measures_by_query(partial, (0.5, 0.5))["mse"][0])
    averages = theory.predicted_measures(partial, (0.5, 0.5))
    assert np.isnan([averages[name] for name in ("mse", "mean_variance", "correlation", "effective_heads")]).all()
