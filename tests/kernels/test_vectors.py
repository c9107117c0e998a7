"""Vectors as values in kernels: each operation lane by lane, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from simstudy.kernels.jit import SCALES, kernel
from simstudy.kernels.vectors import (
    add_in_float64,
    at_least,
    exponent_of_low_bits,
    flush_denormals,
    fraction,
    lanes,
    load,
    power_of_part,
    repeat,
    restore_denormals,
    scale,
    spread,
    store,
    store_four,
)

PRECISIONS = pytest.mark.parametrize("precision", ["float32", "float64"])


@kernel
def _arithmetic(x, y, number, out, width):
    a, b = load(x, 0), load(y, 0)
    store_four(out, 0, width, a + b, a - b, a * b, number - a * number)
    store_four(out, 4 * width, width, spread(number), repeat(y, 1), load(x, 1), a + number)


@kernel
def _choices(x, y, out, width):
    store(out, 0, at_least(load(x, 0), load(y, 0)))
    store(out, width, exponent_of_low_bits(load(x, 0)))


def row(values, precision):
    """Numbers for one vector and one more."""
    return np.resize(np.asarray(values, precision), lanes(np.dtype(precision).itemsize) + 1)


@PRECISIONS
def test_arithmetic__is_that_of_each_lane(precision):
    width = lanes(np.dtype(precision).itemsize)
    rng = np.random.default_rng(0)
    x, y = (row(rng.standard_normal(width + 1), precision) for _ in range(2))
    number, out = x.dtype.type(3.0), np.full(8 * width + 1, -7.0, precision)
    _arithmetic(x, y, number, out, width)
    a, b = x[:width], y[:width]
    same = np.ones(width, precision)
    expected = [a + b, a - b, a * b, number - a * number, number * same, y[1] * same, x[1:], a + number]
    # A product that is subtracted may be fused with the difference.
    np.testing.assert_allclose(out[:-1], np.concatenate(expected), rtol=0, atol=4 * np.finfo(precision).eps)
    assert out[-1] == -7.0


@PRECISIONS
def test_at_least__takes_the_larger_and_keeps_nan(precision):
    width = lanes(np.dtype(precision).itemsize)
    out = np.zeros(2 * width, precision)
    _choices(row([1.0, -2.0, np.nan, -np.inf], precision), row([0.5, -1.0], precision), out, width)
    np.testing.assert_array_equal(out[:4][:width], [1.0, -1.0, np.nan, -1.0][:width])


@kernel
def _add(x, out):
    add_in_float64(out, 1, load(x, 0))


@PRECISIONS
def test_add_in_float64__loses_nothing_of_the_lanes(precision):
    width = lanes(np.dtype(precision).itemsize)
    x, out = row([1e-7, -3.0, 0.1], precision), np.arange(width + 2.0)
    _add(x, out)
    np.testing.assert_array_equal(out[1:-1], np.arange(1.0, width + 1) + x[:width].astype(float))
    assert (out[0], out[-1]) == (0.0, width + 1.0)


@PRECISIONS
def test_exponent_of_low_bits__is_a_power_of_two(precision):
    width = lanes(np.dtype(precision).itemsize)
    bits, bias = {"float32": ("int32", 127), "float64": ("int64", 1023)}[precision]
    powers = np.resize(np.array([0, 1, -3, 12]), width)
    out = np.zeros(2 * width, precision)
    x = np.append(powers + bias, 0).astype(bits).view(precision)
    _choices(x, np.zeros_like(x), out, width)
    np.testing.assert_array_equal(out[width:], 2.0**powers)


needs_scaling = pytest.mark.skipif(not SCALES, reason="this processor lacks the instructions (AVX-512 DQ)")


@kernel
def _multiply(x, y, width, out):
    mode = flush_denormals()
    store(out, 0, load(x, 0) * load(y, 0))
    restore_denormals(mode)
    store(out, width, load(x, 0) * load(y, 0))


@kernel
def _split(x, y, width, out):
    store(out, 0, fraction(load(x, 0)))
    store(out, width, scale(load(y, 0), load(x, 0)))
    store(out, 2 * width, power_of_part(load(x, 0)))


FINITE = [0.0, 0.26, -0.26, 3.78, -3.78, 100.53, -100.53, -140.0, 7.0, -(2.0**-20), 1.999, -1.5, 41.03125, -5.96875]


@needs_scaling
@PRECISIONS
def test_fraction_power_and_scale__at_every_kind_of_number(precision):
    width, parts = lanes(np.dtype(precision).itemsize), {"float32": 32, "float64": 16}[precision]
    for numbers in np.resize(np.array(FINITE, precision), (2, width)):
        out = np.zeros(3 * width, precision)
        _split(numbers, np.full(width, 1.5, precision), width, out)
        whole, x = np.floor(parts * numbers), numbers.astype(float)
        np.testing.assert_array_equal(out[:width], numbers - whole / numbers.dtype.type(parts))
        np.testing.assert_array_equal(out[width : 2 * width], (1.5 * 2.0 ** np.floor(x)).astype(precision))
        powers = (2.0 ** (whole.astype(float) % parts / parts)).astype(precision)
        np.testing.assert_array_equal(out[2 * width :], powers)


@needs_scaling
@PRECISIONS
def test_fraction_power_and_scale__of_what_is_not_finite_or_huge(precision):
    width = lanes(np.dtype(precision).itemsize)
    numbers, out = (
        np.resize(np.array([-np.inf, np.inf, np.nan, -1e30], precision), width),
        np.zeros(3 * width, precision),
    )
    _split(numbers, np.full(width, 1.5, precision), width, out)
    np.testing.assert_array_equal(out[[0, 1, 3]], 0)
    assert np.isnan(out[2])
    np.testing.assert_array_equal(out[width : width + 4], [0, np.inf, np.nan, 0])
    assert ((out[2 * width :] >= 1) & (out[2 * width :] < 2)).all()


@needs_scaling
@pytest.mark.parametrize(("precision", "small"), [("float32", 1e-20), ("float64", 1e-155)])
def test_denormal_numbers__count_as_zero_until_they_are_restored(precision, small):
    width = lanes(np.dtype(precision).itemsize)
    x, out = np.full(width, small, precision), np.full(2 * width, 7, precision)
    _multiply(x, x, width, out)
    assert (out[:width] == 0).all() and (out[width:] == x * x).all() and out[width] > 0
