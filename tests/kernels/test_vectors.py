"""Vectors as values in kernels: each operation lane by lane, against NumPy."""

import numpy as np
import pytest

from simstudy.kernels.jit import kernel
from simstudy.kernels.vectors import (
    add_in_float64,
    at_least,
    exponent_of_low_bits,
    lanes,
    load,
    repeat,
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
