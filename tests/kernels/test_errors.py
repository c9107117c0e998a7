"""Errors, their products and correlations have the bits of NumPy's formulas: results of float64 depend on them."""

import numpy as np
import pytest

from simstudy.kernels.errors import add_errors, correlations_over_queries, mean_squares, sums_over_pairs


def _pairs(n_heads):
    return np.triu_indices(n_heads)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 1), (2, 5, 3), (4, 16, 8)])
@pytest.mark.parametrize("with_gram", [True, False])
def test_products_of_errors__have_the_bits_of_numpy(shape, with_gram):
    rng = np.random.default_rng(0)
    rows, columns = _pairs(shape[2])
    means, target, gram = (rng.standard_normal(size) for size in (shape, shape[1], (*shape, shape[2])))
    sums = np.zeros((1, *shape[1:])), np.zeros((1, shape[1], len(rows)))
    defined = add_errors(means, target, gram if with_gram else None, *sums)
    errors = means - target[:, None]
    products = errors[..., rows] * errors[..., columns]
    products = products + gram[..., rows, columns] if with_gram else products
    np.testing.assert_array_equal(sums[0][0], _in_order(errors))
    np.testing.assert_array_equal(sums[1][0], _in_order(products))
    assert defined.all()


def _in_order(numbers):
    total = np.zeros(numbers.shape[1:])
    for each in numbers:
        total += each
    return total


def test_blocks__are_summed_apart_and_then_added_to_what_there_is():
    means, target = np.random.default_rng(2).standard_normal((6, 3, 2)), np.zeros(3)
    sums = np.full((3, 3, 2), 0.1), np.full((3, 3, 3), 0.1)
    add_errors(means, target, None, *sums)
    np.testing.assert_array_equal(sums[0], 0.1 + (means[::2] + means[1::2]))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_replicates_with_a_number_that_is_not_finite__are_undefined_and_left_out(wrong):
    means, gram = np.ones((4, 3, 2)), np.ones((4, 3, 2, 2))
    means[1, 2, 1] = gram[3, 0, 0, 1] = wrong
    sums = np.zeros((2, 3, 2)), np.zeros((2, 3, 3))
    defined = add_errors(means, np.zeros(3), gram, *sums)
    np.testing.assert_array_equal(defined, [True, False, True, False])
    np.testing.assert_array_equal(sums[0], 1)
    np.testing.assert_array_equal(sums[1], 2)


def test_correlations_over_queries__are_those_of_numpy_for_each_replicate():
    numbers = np.random.default_rng(1).standard_normal((5, 16, 4))
    expected = [np.corrcoef(each.T)[~np.eye(4, dtype=bool)] for each in numbers]
    np.testing.assert_allclose(correlations_over_queries(numbers), expected, rtol=1e-13)


def test_correlations_of_a_constant_head__are_undefined():
    numbers = np.random.default_rng(1).standard_normal((1, 5, 2))
    numbers[:, :, 1] = 3
    assert np.isnan(correlations_over_queries(numbers)).all()


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


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 1), (2, 5, 3), (4, 16, 8)])
@pytest.mark.parametrize("with_gram", [True, False])
def test_mean_squares__are_those_of_numpy_and_lose_no_number_that_is_undefined(shape, with_gram):
    rng = np.random.default_rng(3)
    means, target, gram = (rng.standard_normal(size) for size in (shape, shape[1], (*shape, shape[2])))
    expected = ((means.mean(axis=2) - target) ** 2).mean(axis=1)
    if with_gram:
        expected += gram.mean(axis=(1, 2, 3))
    given = gram if with_gram else None
    np.testing.assert_allclose(mean_squares(means, given, target), expected, rtol=1e-13)
    (gram if with_gram else means)[0, -1, -1] = np.nan
    np.testing.assert_array_equal(np.isnan(mean_squares(means, given, target)), np.arange(shape[0]) == 0)


def test_mean_squares__of_no_replicate_are_none():
    assert mean_squares(np.zeros((0, 3, 2)), np.zeros((0, 3, 2, 2)), np.zeros(3)).shape == (0,)
