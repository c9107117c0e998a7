"""Projection of keys, against its formula in the widest precision of the machine."""

import itertools

import numpy as np
import pytest

from simstudy.kernels import project

# (R, d, H, p, n): odd counts, one of everything, and n on either side of the tile of 256.
SHAPES = [(1, 1, 1, 1, 1), (2, 3, 1, 1, 5), (3, 4, 2, 2, 17), (2, 7, 3, 5, 255), (1, 9, 3, 3, 256), (2, 5, 2, 4, 257)]


def draw(shape, precision, seed=0):
    n_replicates, d, n_heads, p, n = shape
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((n_replicates, d, n)).astype(precision)
    return keys, rng.standard_normal((n_replicates, n_heads, d, p)).astype(precision)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_project__is_the_formula(shape, precision):
    keys, projections = draw(shape, precision)
    result = project(keys, projections)
    assert result.dtype == precision
    expected = np.einsum("rhjk,rji->rhki", projections.astype(np.longdouble), keys.astype(np.longdouble))
    np.testing.assert_allclose(result, expected, rtol=0, atol=8 * np.finfo(precision).eps * shape[1])


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_project__does_not_depend_on_grouping(precision):
    keys, projections = draw((5, 6, 3, 3, 300), precision)
    own, shared = project(keys, projections), project(keys, projections[0])
    for groups in ([1] * 5, [2, 3], [4, 1]):
        edges = np.cumsum([0, *groups])
        for a, b in itertools.pairwise(edges):
            np.testing.assert_array_equal(project(keys[a:b], projections[a:b]), own[a:b])
            np.testing.assert_array_equal(project(keys[a:b], projections[0]), shared[a:b])
    np.testing.assert_array_equal(own[0], shared[0])


def test_project__takes_read_only_and_strided_keys():
    keys, projections = draw((2, 6, 2, 3, 40), "float64")
    keys.flags.writeable = False
    np.testing.assert_array_equal(project(keys[:, :, ::2], projections), project(keys[:, :, ::2].copy(), projections))


def test_project__contains_undefined_keys():
    keys, projections = draw((3, 6, 2, 3, 40), "float64")
    clean = project(keys, projections)
    keys[1, 2, 5] = np.nan
    result = project(keys, projections)
    assert np.isnan(result[1, :, :, 5]).all()
    touched = np.zeros(result.shape, bool)
    touched[1, :, :, 5] = True
    np.testing.assert_array_equal(result[~touched], clean[~touched])
