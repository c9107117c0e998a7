"""The compiled compact kernels against loops over the formula, and their edges: empty windows, undefined keys."""

import numpy as np
import pytest
from builders import rare
from kernel_problems import naive_moments, problem

from simstudy.kernels import compact_moments

# (R, Q, H, p, n): one of everything, odd counts, p on either side of 2, 4 and 6, n on either side of the tile of 512.
SHAPES = [
    (1, 1, 1, 1, 1), (2, 3, 1, 1, 7), (2, 2, 3, 2, 33), (1, 3, 5, 3, 130), (2, 2, 2, 4, 64), (1, 2, 4, 5, 97),
    (1, 2, 2, 7, 97), (2, 1, 3, 8, 100), (1, 2, 2, 2, 511), (1, 2, 2, 1, 512), (1, 2, 3, 4, 513), (1, 1, 2, 2, 1300),
]  # fmt: skip
TOLERANCE = {"float32": 2e-5, "float64": 2e-13}
# Each is compiled by itself, for seconds: powers and precisions do not know of one another.
COMPILED = [
    (1, "float64"), (1, "float32"), (2, "float64"), (3, "float64"), (7, "float32"),
    rare(2, "float32"), rare(3, "float32"), rare(7, "float64"),
]  # fmt: skip


def arrays_of(given):
    return given.keys, given.values, given.variances, given.queries


def assert_solved(given, radius, power):
    """Compare with the naive solution, and return the means."""
    keys, values, _, queries = arrays_of(given)
    means, grams = naive_moments(given, radius, power)
    found, found_grams = compact_moments(*arrays_of(given), radius, power)
    alone = compact_moments(keys, values, None, queries, radius, power)[0]
    for one, expected in ((found, means), (found_grams, grams), (alone, means)):
        np.testing.assert_allclose(one, expected, rtol=0, atol=TOLERANCE[keys.dtype.name])
    np.testing.assert_array_equal(found_grams, found_grams.swapaxes(-1, -2))
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("power", "precision"), COMPILED)
def test_moments__are_the_formula(shape, power, precision):
    given = problem(shape, precision=precision, spread=0.5, own_queries=shape[3] == 4)
    radius = 2.0 * np.sqrt(shape[3]) + 1.0
    means = assert_solved(given, radius, power)
    if shape[4] > 7:
        wider = compact_moments(*arrays_of(given), 1.2 * radius, power)[0]
        assert np.abs(wider - means).max() > 10 * TOLERANCE[precision]


def test_replicates__do_not_depend_on_one_another():
    keys, values, variances, queries = arrays_of(problem((5, 3, 2, 3, 700), spread=0.5))
    whole = compact_moments(keys, values, variances, queries, 3.0, 3)
    single = compact_moments(keys[2:3], values[2:3], variances[2:3], queries, 3.0, 3)
    np.testing.assert_equal([each[2:3] for each in whole], [*single])


def test_kernels_that_use_one_memory__leave_nothing_to_each_other():
    given = problem((2, 3, 3, 5, 70), spread=0.5)
    found = [(given.moments(), compact_moments(*arrays_of(given), 3.0, 3)) for _ in range(2)]
    np.testing.assert_equal(*found)


def test_window__holds_keys_nearer_than_its_radius_and_no_others():
    keys, values = np.array([[[[0.0, 0.999, 1.0, 1.001, -2.0]]]]), np.array([[1.0, 2.0, 4.0, 8.0, 16.0]])
    variances, query = np.ones((1, 5)), np.zeros((1, 1, 1))
    mean, gram = compact_moments(keys, values, variances, query, 1.0, 1)
    w = np.array([1.0, 1 - 0.999**2])
    assert mean.item() == pytest.approx(w @ [1.0, 2.0] / w.sum())
    assert gram.item() == pytest.approx((w**2).sum() / w.sum() ** 2)
    # A key beside the edge has all the weight if it is alone, however small that is.
    alone = compact_moments(keys[..., 1:], values[:, 1:], variances[:, 1:], query, 1.0, 1)
    assert [each.item() for each in alone] == pytest.approx([2.0, 1.0])


@pytest.mark.parametrize("precision", TOLERANCE)
def test_empty_window_and_nan_key__have_no_estimate(precision):
    given = problem((2, 2, 2, 2, 20), precision=precision, spread=0.5)
    given.queries[1], given.keys[1, 0, 0, 3] = 50.0, np.nan
    undefined = np.isnan(assert_solved(given, 3.0, 1))
    assert undefined[:, 1].all() and undefined[:, 0].tolist() == [[False, False], [True, False]]


def test_windows_that_do_not_meet__have_covariance_zero_exactly():
    keys, values, variances, _ = arrays_of(problem((3, 1, 2, 1, 400)))
    keys[:, 1] = keys[:, 0]
    for offset, disjoint in ((1.01, True), (0.9, False)):
        queries = np.array([[[-offset], [offset]]])
        _, grams = compact_moments(keys, values, variances, queries, 1.0, 2)
        assert (grams[:, 0, 0, 1] == 0.0).all() == disjoint
