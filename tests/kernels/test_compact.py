"""The compiled compact kernels against loops over the formula, and their edges: empty windows, undefined keys."""

from dataclasses import replace

import numpy as np
import pytest
from builders import rare
from kernel_problems import WINDOWED, Problem, assert_solved, problem

# (R, Q, H, p, n): one of everything, odd counts, p on either side of 2, 4 and 6, n on either side of the tile of 512.
SHAPES = [
    (1, 1, 1, 1, 1), (2, 3, 1, 1, 7), (2, 2, 3, 2, 33), (1, 3, 5, 3, 130), (2, 2, 2, 4, 64), (1, 2, 4, 5, 97),
    (1, 2, 2, 7, 97), (2, 1, 3, 8, 100), (1, 2, 2, 2, 511), (1, 2, 2, 1, 512), (1, 2, 3, 4, 513), (1, 1, 2, 2, 1300),
]  # fmt: skip
# Each is compiled by itself, for seconds: powers and precisions do not know of one another.
COMPILED = [
    (1, "float64"), (1, "float32"), (2, "float64"), (3, "float64"), (7, "float32"),
    rare(2, "float32"), rare(3, "float32"), rare(7, "float64"),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("power", "precision"), COMPILED)
def test_moments__are_the_formula(shape, power, precision):
    radius = 2.0 * np.sqrt(shape[3]) + 1.0
    given = problem(shape, precision=precision, spread=0.5, own_queries=shape[3] == 4, window=(radius, power))
    means, _ = assert_solved(given)
    if shape[4] > 7:
        wider = replace(given, window=(1.2 * radius, power)).estimates()
        assert np.abs(wider - means).max() > 10 * WINDOWED[precision]


def test_replicates_and_kernels_that_use_one_memory__do_not_depend_on_one_another():
    given = problem((5, 3, 2, 3, 700), spread=0.5, window=(3.0, 3))
    np.testing.assert_equal([each[2:3] for each in given.moments()], [*given.part(slice(2, 3)).moments()])
    np.testing.assert_equal(*[(replace(given, window=None).moments(), given.moments()) for _ in range(2)])


def test_window__holds_keys_nearer_than_its_radius_and_no_others():
    keys, values = np.array([[[[0.0, 0.999, 1.0, 1.001, -2.0]]]]), np.array([[1.0, 2.0, 4.0, 8.0, 16.0]])
    given = Problem(keys, values, np.ones((1, 5)), np.zeros((1, 1, 1)), window=(1.0, 1))
    mean, gram = given.moments()
    w = np.array([1.0, 1 - 0.999**2])
    assert mean.item() == pytest.approx(w @ [1.0, 2.0] / w.sum())
    assert gram.item() == pytest.approx((w**2).sum() / w.sum() ** 2)
    # A key beside the edge has all the weight if it is alone, however small that is.
    alone = replace(given, keys=keys[..., 1:], values=values[:, 1:], variances=given.variances[:, 1:]).moments()
    assert [each.item() for each in alone] == pytest.approx([2.0, 1.0])
    # Windows that do not meet have covariance 0 exactly.
    given = problem((3, 1, 2, 1, 400), window=(1.0, 2))
    given.keys[:, 1] = given.keys[:, 0]
    for offset, disjoint in ((1.01, True), (0.9, False)):
        _, grams = replace(given, queries=np.array([[[-offset], [offset]]])).moments()
        assert (grams[:, 0, 0, 1] == 0.0).all() == disjoint


@pytest.mark.parametrize("precision", WINDOWED)
def test_empty_window_and_nan_key__have_no_estimate(precision):
    given = problem((2, 2, 2, 2, 20), precision=precision, spread=0.5, window=(3.0, 1))
    given.queries[1], given.keys[1, 0, 0, 3] = 50.0, np.nan
    undefined = np.isnan(assert_solved(given)[0])
    assert undefined[:, 1].all() and undefined[:, 0].tolist() == [[False, False], [True, False]]
