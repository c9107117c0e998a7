"""Errors and their products have the bits of NumPy's formulas: stored results of float64 cells depend on them."""

from __future__ import annotations

import numpy as np
import pytest

from simstudy.kernels.errors import error_products, sums_over_queries


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
