"""Weights of heads: fixed ones by hand, optimal ones by the conditions that single them out."""

import numpy as np
import pytest
from builders import estimated, minimal_cell

from simstudy.attention.combinations import combine_heads, fit_weights

RIDGE = {"kind": "ridge", "amplitude": 2.0, "direction": [1.0, -0.5]}
QUERIES = {"kind": "gaussian", "count": 5}


@pytest.mark.parametrize(
    ("combination", "expected"),
    [
        ("uniform", [1 / 3] * 3),
        ("sum", [1, 1, 1]),
        ([0.5, -1.0, 2.0], [0.5, -1.0, 2.0]),
        ({"kind": "geometric", "ratio": 0.5}, [4 / 7, 2 / 7, 1 / 7]),
        ("fibonacci", [2 / 4, 1 / 4, 1 / 4]),
    ],
)
def test_fixed_weights__by_hand(combination, expected):
    cell = minimal_cell(n_heads=3, combination=combination)
    np.testing.assert_allclose(cell.weights, expected, rtol=1e-15)
    given = combine_heads(cell)(np.zeros((2, 3, 3)), np.zeros((2, 3)), np.zeros(2))
    np.testing.assert_allclose(given, [expected, expected], rtol=1e-15)


def test_fit__finds_the_weights_that_made_the_outcomes():
    outputs = np.random.default_rng(2).normal(size=(50, 3))
    truth = np.array([0.6, 0.4, 0.0])
    for within in ("affine", "simplex", "unconstrained"):
        np.testing.assert_allclose(fit_weights(within, outputs, outputs @ truth), truth, atol=1e-7)


def of_cell(combination, **settings):
    cell = minimal_cell(combination=combination, regression=RIDGE, queries=QUERIES, n_heads=3, **settings)
    return estimated(cell, 4)


def test_wider_classes__have_smaller_errors():
    classes = ["front_greater", "simplex", "affine", "unconstrained"]
    found = [of_cell({"kind": "optimal", "within": within}) for within in classes]
    errors = [float(result.estimate["mse"]) for result in [of_cell("uniform"), *found]]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.9 * errors[0]
    assert (found[-1].mcse["combination_weight"] > 0).all()


def test_combinations__share_stored_batches_unless_they_enter_a_replicate():
    plain, optimal = minimal_cell(), minimal_cell(combination={"kind": "optimal"})
    fitted = minimal_cell(combination={"kind": "fitted", "n_validation": 50}, noise_treatment="drawn")
    drawn = minimal_cell(noise_treatment="drawn")
    assert plain.identity("e") == optimal.identity("e")
    assert fitted.identity("e") != drawn.identity("e")


def test_fitted_weights__tend_to_the_optimal_ones_as_validation_grows():
    few, many = (
        of_cell({"kind": "fitted", "n_validation": n, "within": "affine"}, noise_treatment="drawn") for n in (6, 2000)
    )
    best = of_cell({"kind": "optimal", "within": "affine"}, noise_treatment="drawn")
    errors = [float(result.estimate["mse"]) for result in (few, many, best)]
    margin = 4 * float(many.mcse["mse"])
    assert errors[0] > errors[1] + margin
    # In each replicate the best weights for that replicate: better than one set of weights for all.
    assert errors[1] < errors[2] + margin
