"""The scalar functions and reductions under the kernels, against NumPy in higher precision."""

import numpy as np
import pytest

from simstudy.kernels import elementary

EXP2 = {"float32": elementary.exp2_float32, "float64": elementary.exp2_float64}
LOWEST = {"float32": elementary.lowest_float32, "float64": elementary.lowest_float64}
PRECISIONS = pytest.mark.parametrize("precision", ["float32", "float64"])


# Precision: magic number, and the lowest exponent at which a power is not denormal.
RANGES = {"float32": (elementary.MAGIC_32, np.float32(-126.0)), "float64": (elementary.MAGIC_64, np.float64(-1022.0))}


def exp2(precision, points, shift=0.0, lowest=None):
    magic, least = RANGES[precision]
    lowest = least - least.dtype.type(shift) if lowest is None else least.dtype.type(lowest)
    return np.array([EXP2[precision](t, lowest, magic + magic.dtype.type(shift)) for t in points])


def relative_errors(precision, values, points):
    return np.abs(values.astype(np.longdouble) / np.exp2(points.astype(np.longdouble)) - 1)


@PRECISIONS
def test_exp2__is_accurate(precision):
    lowest = RANGES[precision][1]
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.uniform(lowest, 100, 20_000), rng.uniform(-2, 2, 20_000)]).astype(precision)
    values = exp2(precision, points)
    bound = {"float32": 2e-7, "float64": 4e-16}[precision]
    assert relative_errors(precision, values, points).max() < bound
    # Negative control: the neighbouring function, e^t, is far outside.
    assert relative_errors(precision, np.exp(points[-20_000:]), points[-20_000:]).max() > 1e3 * bound


@PRECISIONS
@pytest.mark.parametrize("shift", [0.0, 50.0, -60.0])
def test_exp2__is_exact_at_whole_numbers_shifted(precision, shift):
    points = np.array([0.0, -1.0, -2.0, -40.0, 7.0], precision)
    np.testing.assert_array_equal(exp2(precision, points, shift), 2.0 ** (points.astype(float) + shift))


@PRECISIONS
def test_exp2__counts_everything_below_the_lowest_exponent_as_that(precision):
    points = np.array([-20.5, -3000.0, -np.finfo(precision).max, -np.inf], precision)
    np.testing.assert_array_equal(exp2(precision, points, lowest=-20.0), 2.0**-20)
    np.testing.assert_array_equal(exp2(precision, points, lowest=-60.0, shift=40.0)[1:], 2.0**-20)
    for nan in (np.nan, -np.nan):
        assert np.isnan(exp2(precision, np.array([nan], precision))).all()


@PRECISIONS
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 64, 513])
def test_lowest__is_the_minimum(precision, size):
    rng = np.random.default_rng(size)
    for sign in (1.0, -1.0):
        numbers = (sign * rng.exponential(size=size) * 10.0 ** rng.integers(-30, 30, size)).astype(precision)
        assert LOWEST[precision](numbers) == numbers.min()
    mixed = rng.standard_normal(size).astype(precision)
    assert LOWEST[precision](mixed) == mixed.min()


@PRECISIONS
def test_lowest__at_infinities_and_nan(precision):
    infinite = np.full(20, np.inf, precision)
    assert LOWEST[precision](infinite) == np.finfo(precision).max
    infinite[7] = 3.0
    assert LOWEST[precision](infinite) == 3.0
    infinite[3] = -np.inf
    assert LOWEST[precision](infinite) == -np.inf
    for nan in (np.nan, -np.nan):
        numbers = np.array([2.0, nan, 1.0], precision)
        assert np.isnan(LOWEST[precision](numbers)) or LOWEST[precision](numbers) == 1.0
