"""Errors and their products have the bits of NumPy: stored results of float64 cells depend on them; sums over pairs."""

from __future__ import annotations

import numpy as np
import pytest

from simstudy.kernels.errors import error_products, sums_over_pairs, sums_over_queries


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 1), (2, 5, 3), (4, 16, 8)])
@pytest.mark.parametrize("with_gram", [True, False])
def test_products_of_errors__have_the_bits_of_numpy(shape, with_gram):
    rng = np.random.default_rng(0)
    means, target, gram = (rng.standard_normal(size) for size in (shape, shape[1], (*shape, shape[2])))
    errors, products, defined = error_products(means, target, gram if with_gram else None)
    rows, columns = np.triu_indices(shape[2])
    expected = means - target[:, None]
    np.testing.assert_array_equal(errors, expected)
    of_pairs = expected[..., rows] * expected[..., columns]
    np.testing.assert_array_equal(products, of_pairs + gram[..., rows, columns] if with_gram else of_pairs)
    assert defined.all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_replicates_with_a_number_that_is_not_finite__are_undefined(wrong):
    means, gram = np.ones((4, 3, 2)), np.ones((4, 3, 2, 2))
    means[1, 2, 1] = gram[3, 0, 0, 1] = wrong
    np.testing.assert_array_equal(error_products(means, np.zeros(3), gram)[2], [True, False, True, False])


@pytest.mark.parametrize("shape", [(1, 3, 2), (5, 16, 4), (2, 64, 8)])
def test_sums_over_queries__have_the_bits_of_sums_in_their_order(shape):
    numbers = np.random.default_rng(1).standard_normal(shape)
    expected = np.zeros((shape[0], shape[2], shape[2]))
    for q in range(shape[1]):
        expected += numbers[:, q, :, None] * numbers[:, q, None, :]
    np.testing.assert_array_equal(sums_over_queries(numbers), expected)


@pytest.mark.parametrize("n_heads", [1, 2, 5, 24])
@pytest.mark.parametrize("per_case", [True, False])
def test_sums_over_pairs__are_those_of_matrices_at_each_query(n_heads, per_case):
    rng = np.random.default_rng(2)
    bias, overlap = (
        rng.standard_normal((3, 4, n_heads)),
        rng.uniform(0.5, 1.0, (3 if per_case else 1, n_heads, n_heads)),
    )
    overlap = overlap + np.swapaxes(overlap, 1, 2)
    factor = rng.standard_normal((3, 4, n_heads, n_heads + 2))
    moments = factor @ np.swapaxes(factor, 2, 3) + bias[..., None] * bias[..., None, :]
    found = sums_over_pairs(bias, moments[..., *np.triu_indices(n_heads)], overlap)
    second = overlap[:, None] * moments
    covariance = second - overlap[:, None] * bias[..., None] * bias[..., None, :]
    variance = np.diagonal(covariance, axis1=2, axis2=3)
    scaled = covariance / np.sqrt(variance[..., None] * variance[..., None, :])
    different = ~np.eye(n_heads, dtype=bool)
    expected = (
        np.trace(second, axis1=2, axis2=3), variance.sum(axis=2),
        *(each[..., different].sum(axis=2) for each in (second, covariance, scaled)),
    )  # fmt: skip
    for name, ours, theirs in zip(found._fields, found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11, err_msg=name)


def test_heads_with_variances_of_either_sign__have_no_correlation():
    products = np.array([[[2.0, 0.5, -1.0]], [[-2.0, 0.5, -1.0]]])
    correlation = sums_over_pairs(np.zeros((2, 1, 2)), products, np.ones((1, 2, 2))).correlation
    np.testing.assert_allclose(correlation, [[np.nan], [2 * 0.5 / np.sqrt(2.0)]])
