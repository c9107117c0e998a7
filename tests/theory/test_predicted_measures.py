"""Measures from a prediction: hand-computed cases and the defining sums."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from simstudy.theory import Prediction, measures_by_query, predicted_measures

RNG = np.random.default_rng(3)


def make_prediction(bias, covariance, target):
    bias = np.asarray(bias, dtype=float)
    return Prediction(bias, np.asarray(covariance, dtype=float), np.asarray(target, dtype=float), 0 * bias, "")


HAND = make_prediction([[1.0, 3.0], [0.0, -1.0]], [[[4.0, 1.0], [1.0, 1.0]], [[2.0, -1.0], [-1.0, 2.0]]], [5.0, 10.0])


def test_uniform_average_by_hand():
    assert predicted_measures(HAND, (0.5, 0.5)) == pytest.approx(
        {
            "squared_bias": (4 + 0.25) / 2,
            "mean_squared_bias": (5 + 0.5) / 2,
            "mean_variance": 2.25,
            "mean_covariance": 0.0,
            "ensemble_variance": (7 / 4 + 2 / 4) / 2,
            "mse": (4 + 0.25) / 2 + 9 / 8,
            "ambiguity": (1 + 0.25) / 2 + 2.25 - 9 / 8,
            "correlation": (0.5 - 0.5) / 2,
            "output_diversity": 1.0,
            "effective_heads": 2.0,
        }
    )


def test_sum_of_heads_is_charged_for_the_target_it_doubles():
    measures = measures_by_query(HAND, (1.0, 1.0))
    np.testing.assert_allclose(measures["squared_bias"], [(4 + 5) ** 2, (-1 + 10) ** 2])
    np.testing.assert_allclose(measures["ensemble_variance"], [7.0, 2.0])
    # Heads themselves know nothing of the weights.
    np.testing.assert_allclose(measures["effective_heads"], [2.5 / (7 / 4), 2 / (2 / 4)])


def test_one_head_has_no_pairs():
    measures = predicted_measures(make_prediction([[0.2]], [[[0.3]]], [1.0]), [1.0])
    assert np.isnan([measures["mean_covariance"], measures["correlation"], measures["output_diversity"]]).all()
    assert measures["effective_heads"] == 1.0
    assert measures["mse"] == pytest.approx(0.04 + 0.3)


def test_zero_variance_is_nan_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measures = predicted_measures(make_prediction(np.zeros((1, 2)), np.zeros((1, 2, 2)), [0.0]), (0.5, 0.5))
    assert np.isnan([measures["correlation"], measures["effective_heads"]]).all()
    assert measures["mse"] == 0.0


def test_one_blank_query_blanks_the_averages_only():
    covariance = HAND.covariance.copy()
    covariance[1] = np.nan
    partial = HAND._replace(covariance=covariance)
    assert np.isfinite(measures_by_query(partial, (0.5, 0.5))["mse"][0])
    averages = predicted_measures(partial, (0.5, 0.5))
    assert np.isnan([averages[name] for name in ("mse", "mean_variance", "correlation", "effective_heads")]).all()
