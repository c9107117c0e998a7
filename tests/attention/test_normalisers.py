"""Normalisers against loops, against one another where they must agree, and entmax against an independent package."""

import naive_mechanisms as naive
import numpy as np
import pytest
from builders import needs

from simstudy.attention.normalisers import compact, entmax, threshold

POWERS = [1, 2, 3, 10, 100]


def logits(scale=2.0, shape=(5, 40), seed=0):
    return scale * np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("scale", [1e-6, 0.3, 2.0, 50.0])
def test_entmax__is_the_bisection(power, scale):
    z = logits(scale)
    np.testing.assert_allclose(entmax(z, power), [naive.entmax(row, power) for row in z], atol=1e-12)


@pytest.mark.parametrize("power", POWERS)
def test_rows__do_not_depend_on_one_another(power):
    z = logits(shape=(7, 33))
    np.testing.assert_array_equal(entmax(z, power)[3], entmax(z[3], power))


def test_entmax__of_one_key_and_of_equal_logits():
    assert entmax(np.array([7.0]), 3) == 1.0
    np.testing.assert_allclose(entmax(np.zeros(8), 2), 1 / 8)
    assert np.isnan(entmax(np.array([1.0, np.nan]), 2)).all()
    np.testing.assert_array_equal(entmax(np.array([1e30, -1e30, 1e30]), 2), [0.5, 0.0, 0.5])


@pytest.mark.parametrize("power", POWERS)
def test_entmax_of_distances__is_a_compact_kernel_of_its_own_bandwidth(power):
    squares = logits() ** 2
    tau = threshold(-squares / 2, power)
    for row, t in zip(squares, tau, strict=True):
        radius2 = -2 * power * t
        np.testing.assert_allclose(entmax(-row / 2, power), compact(-row / 2, power, np.sqrt(radius2)), atol=1e-12)
        assert np.abs(entmax(-row / 2, power) - compact(-row / 2, power, 1.1 * np.sqrt(radius2))).max() > 1e-5


@needs("entmax")
@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("scale", [0.3, 2.0, 50.0])
def test_entmax__is_that_of_the_package(power, scale):
    import torch
    from entmax import entmax_bisect, sparsemax

    z = logits(scale)
    theirs = entmax_bisect(torch.tensor(z), alpha=1 + 1 / power, dim=-1, n_iter=100).numpy()
    np.testing.assert_allclose(entmax(z, power), theirs, atol=1e-10)
    if power == 1:
        np.testing.assert_allclose(entmax(z, 1), sparsemax(torch.tensor(z), dim=-1).numpy(), atol=1e-12)
    if (
        scale == 2.0
    ):  # the control: a wide spread of logits leaves one key to every power, a narrow one shows no difference
        other = entmax_bisect(torch.tensor(z), alpha=1 + 1 / (power + 1), dim=-1, n_iter=100).numpy()
        assert np.abs(entmax(z, power) - other).max() > 1e-5
