"""Exact moments against plain Monte Carlo, what is refused, and how numerical error reaches the measures."""

import warnings

import numpy as np
import pytest
from theory_oracle import covariance_matrix, drawn_estimates, largest_score, make_cell

from simstudy.design.settings import processes as s
from simstudy.theory import (
    ExactPrediction,
    exact_moments,
    measure_errors_by_query,
    measures_by_query,
    predicted_measure_errors,
    predicted_measures,
)

RNG = np.random.default_rng(20240612)
HEADS = np.linalg.qr(np.random.default_rng(4).normal(size=(2, 3, 2)))[0]
TARGET = s.Sum(
    kind="sum", terms=(s.Linear(kind="linear", coefficients=(2.0, 1.0, -1.0)), s.Quadratic(kind="quadratic"))
)
DATA = {
    "n_features": 3,
    "regression": TARGET,
    "noise": s.HeteroscedasticNoise(kind="heteroscedastic", strength=2.0),
    "key_distribution": s.GaussianKeys(structure="autoregressive", correlation=0.6),
    "noise_sd": 2.0,
}
CONFIGURATIONS = {
    "distance, p = 1": {"head_dim": 1, "bandwidth": 0.5},
    "distance, p = 2": {"head_dim": 2, "bandwidth": 1.5},
    "dot product, p = 2": {"head_dim": 2, "bandwidth": 0.9, "logits": "dot_product"},
}
QUERY = np.array([0.6, -0.3, 0.8])


@pytest.mark.parametrize("n_keys", [3, pytest.param(30, marks=pytest.mark.rare)])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_monte_carlo_agrees(name, n_keys):
    settings = CONFIGURATIONS[name]
    cell = make_cell(n_keys, **settings, **DATA)
    heads = HEADS[:, :, : settings["head_dim"]]
    root = np.linalg.cholesky(covariance_matrix(cell.data.key_distribution, 3))
    estimates = drawn_estimates(cell, heads, QUERY, RNG.normal(size=(60_000 * n_keys, 3)) @ root.T, RNG)
    prediction = exact_moments(cell, heads, heads, QUERY[None])
    assert prediction.reason == ""
    assert largest_score(estimates, prediction) < 4


@pytest.mark.parametrize(("p", "bandwidth", "word"), [(2, 0.05, "narrow"), (1, 1e-4, "narrow")])
def test_grids_that_would_be_too_large_are_refused(p, bandwidth, word):
    cell = make_cell(3, 3, 2, p, "distance", bandwidth)
    heads = HEADS[:, :, :p]
    prediction = exact_moments(cell, heads, heads, QUERY[None])
    assert np.isnan(prediction.bias).all()
    assert word in prediction.reason


def test_queries_without_convergence_are_blank():
    # Opposite queries on one line: kernels are functions of one another, too narrow for the largest tables.
    cell = make_cell(3, 1, 2, 1, "distance", 0.1)
    head = np.ones((2, 1, 1))
    prediction = exact_moments(cell, head, head * np.array([1.0, -1.0])[:, None, None], np.array([[0.0], [0.2]]))
    assert np.isfinite(prediction.covariance[0]).all()
    assert np.isnan(prediction.covariance[1]).all()
    assert "1 of 2 queries" in prediction.reason


def test_neither_noise_nor_signal_leaves_zero_variance():
    for p in (1, 2):
        heads = HEADS[:, :, :p]
        prediction = exact_moments(make_cell(5, 3, 2, p, noise_sd=0.0), heads, heads, QUERY[None])
        assert prediction.reason == ""
        assert not prediction.covariance.any()


def perturbed(prediction, sign):
    return prediction._replace(
        bias=prediction.bias + sign(prediction.bias.shape) * prediction.bias_error,
        covariance=prediction.covariance + sign(prediction.covariance.shape) * prediction.covariance_error,
    )


def test_error_bounds_hold_for_every_sign_and_are_attained_by_some():
    n_queries, n_heads = 3, 3
    roots = RNG.normal(size=(n_queries, n_heads, n_heads + 2))
    covariance, scale = roots @ roots.mT, 1e-6
    prediction = ExactPrediction(
        RNG.normal(size=(n_queries, n_heads)),
        covariance,
        RNG.normal(size=n_queries),
        scale * RNG.uniform(size=(n_queries, n_heads)),
        scale * RNG.uniform(size=covariance.shape),
        np.zeros(n_queries),
        "",
    )
    prediction = prediction._replace(covariance_error=prediction.covariance_error + prediction.covariance_error.mT)
    weights = np.array([0.5, 0.7, -0.4])
    base, bounds = measures_by_query(prediction, weights), measure_errors_by_query(prediction, weights)
    averages, average_bounds = predicted_measures(prediction, weights), predicted_measure_errors(prediction, weights)
    largest = dict.fromkeys(base, 0.0)
    for _ in range(400):
        signs = RNG.choice([-1.0, 1.0], size=(n_queries, n_heads, n_heads))
        signs = np.triu(signs) + np.triu(signs, 1).mT
        other = perturbed(prediction, lambda shape, s=signs: s if len(shape) == 3 else s[:, 0])
        for name, values in measures_by_query(other, weights).items():
            change = np.abs(values - base[name]) / bounds[name]
            largest[name] = max(largest[name], change.max())
        for name, value in predicted_measures(other, weights).items():
            assert abs(value - averages[name]) <= (1 + 1e-4) * average_bounds[name]
    assert max(largest.values()) <= 1 + 1e-4
    assert min(largest.values()) > 0.3


def test_one_head_without_variance_has_errors_without_a_warning():
    zero = np.zeros((1, 1))
    prediction = ExactPrediction(zero + 0.2, zero[..., None], zero[0], zero, zero[..., None], zero[0], "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        errors = measure_errors_by_query(prediction, (1.0,))
    assert errors["mse"] == 0.0
    assert np.isnan(errors["correlation"]).all()
