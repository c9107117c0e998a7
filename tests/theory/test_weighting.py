"""Optimal weights by their optimality conditions and against a general solver; measures of a prediction by hand."""

from functools import partial

import numpy as np
import pytest
from builders import refuses
from scipy.optimize import minimize

from simstudy.theory import Prediction, measures_by_query, predicted_measures
from simstudy.theory import weighting as w

simplex_weights, front_greater_weights = (partial(w.optimal_weights, within=x) for x in ("simplex", "front_greater"))


def random_moment(n_heads, seed=0, rank=None, scale=1.0):
    root = np.random.default_rng(seed).normal(size=(n_heads, rank or n_heads + 2))
    return scale * root @ root.T


def test_risk_of_any_weights_is_the_mean_squared_error():
    rng = np.random.default_rng(0)
    root, bias, target = (rng.normal(size=shape) for shape in ((3, 4, 4), (3, 4), 3))
    prediction = Prediction(bias, root @ root.mT, target, 0 * bias, "")
    moments = w.error_moments(prediction)
    for weights in (np.full(4, 0.25), np.ones(4), np.array([0.3, -2.0, 0.0, 1.1])):
        estimate = (prediction.bias + prediction.target[:, None]) @ weights
        variance = [weights @ c @ weights for c in prediction.covariance]
        expected = np.mean((estimate - prediction.target) ** 2 + variance)
        assert w.mean_squared_error(weights, moments) == pytest.approx(expected)


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
    doubled = moment[np.ix_([0, 0, 1, 2], [0, 0, 1, 2])]
    alone, best = w.optimal_weights(moment), w.optimal_weights(doubled)
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
        ours = front_greater_weights(moment)
        falling = [{"type": "eq", "fun": lambda a: a.sum() - 1}, {"type": "ineq", "fun": lambda a: a[:-1] - a[1:]}]
        found = minimize(
            lambda a, moment=moment: a @ moment @ a, np.full(5, 0.2), jac=lambda a, moment=moment: 2 * moment @ a,
            method="SLSQP", bounds=[(0, 1)] * 5, constraints=falling, options={"ftol": 1e-14, "maxiter": 500},
        )  # fmt: skip
        assert ours.risk == pytest.approx(found.fun, abs=1e-8)
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
    assert predicted_measures(HAND, (0.5, 0.5)) == pytest.approx({
        "squared_bias": (4 + 0.25) / 2, "mean_squared_bias": (5 + 0.5) / 2, "mean_variance": 2.25,
        "mean_covariance": 0.0, "ensemble_variance": (7 / 4 + 2 / 4) / 2, "mse": (4 + 0.25) / 2 + 9 / 8,
        "ambiguity": (1 + 0.25) / 2 + 2.25 - 9 / 8, "correlation": (0.5 - 0.5) / 2, "output_diversity": 1.0,
        "effective_heads": 2.0,
    })  # fmt: skip
    measures = measures_by_query(HAND, (1.0, 1.0))
    np.testing.assert_allclose(measures["squared_bias"], [(4 + 5) ** 2, (-1 + 10) ** 2])
    np.testing.assert_allclose(measures["ensemble_variance"], [7.0, 2.0])
    # Heads themselves know nothing of the weights.
    np.testing.assert_allclose(measures["effective_heads"], [2.5 / (7 / 4), 2 / (2 / 4)])
    refuses(r"weights has shape \(1,\); give \(2,\)", measures_by_query, HAND, [1.0], error=ValueError)


def test_one_head_has_no_pairs_zero_variance_no_correlation_and_one_blank_query_blanks_the_averages_only():
    measures = predicted_measures(make_prediction([[0.2]], [[[0.3]]], [1.0]), [1.0])
    assert np.isnan([measures["mean_covariance"], measures["correlation"], measures["output_diversity"]]).all()
    assert measures["effective_heads"] == 1.0 and measures["mse"] == pytest.approx(0.04 + 0.3)
    # Warnings are errors, here as everywhere.
    measures = predicted_measures(make_prediction(np.zeros((1, 2)), np.zeros((1, 2, 2)), [0.0]), (0.5, 0.5))
    assert np.isnan([measures["correlation"], measures["effective_heads"]]).all() and measures["mse"] == 0.0
    covariance = HAND.covariance.copy()
    covariance[1] = np.nan
    partial = HAND._replace(covariance=covariance)
    assert np.isfinite(measures_by_query(partial, (0.5, 0.5))["mse"][0])
    averages = predicted_measures(partial, (0.5, 0.5))
    assert np.isnan([averages[name] for name in ("mse", "mean_variance", "correlation", "effective_heads")]).all()
