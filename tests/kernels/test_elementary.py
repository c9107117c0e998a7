"""Scalar functions, reductions, vectors of lanes and waves under the kernels, against NumPy in higher precision."""

import math

import numpy as np
import pytest

from simstudy.kernels import elementary
from simstudy.kernels.elementary import wave
from simstudy.kernels.jit import kernel
from simstudy.kernels.lanes import EXP2 as EXP2_OF_LANES
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


@kernel
def _powers(exp2, t, lowest, magic, width, out):
    for i in range(0, t.size, 4 * width):
        a, b, c, d = load(t, i), load(t, i + width), load(t, i + 2 * width), load(t, i + 3 * width)
        a, b, c, d = exp2(a, b, c, d, load(lowest, 0), load(magic, 0), spread(t.dtype.type(0)))
        store_four(out, i, width, a, b, c, d)


def powers(precision, points, shifts=0.0):
    """2^(t + s), t from -126 - s on, for numbers in whole vectors, of whose lanes each has a shift s of its own."""
    real, width = np.dtype(precision), lanes(np.dtype(precision).itemsize)
    t, shifts = np.resize(np.asarray(points, real), 4096), np.resize(np.asarray(shifts, real), width)
    out = np.empty_like(t)
    _powers(EXP2_OF_LANES[precision], t, -126 - shifts, RANGES[precision][0] + shifts, width, out)
    return t, np.resize(shifts, 4096), out


@PRECISIONS
@pytest.mark.parametrize("shifts", [0.0, 50.0, -78.0, -110.0, [0.0, 50.0, -78.0, -110.0, -1.0, 3.0, -40.0, 17.0]])
def test_powers__are_accurate(precision, shifts):
    rng = np.random.default_rng(1)
    lowest, highest = -126 - np.min(shifts), 120 - np.max(shifts)
    t, s, found = powers(precision, rng.uniform(lowest, highest, 4096), shifts)
    errors = np.abs(found / np.exp2(t.astype(np.longdouble) + s) - 1)
    bound = {"float32": 2.5e-7, "float64": 4e-16}[precision]
    assert errors.max() < bound
    # Negative control: the neighbouring function, of t a hundred thousandth away, is outside.
    assert np.abs(found / np.exp2(1.00001 * t.astype(np.longdouble) + s) - 1).max() > 10 * bound


@PRECISIONS
def test_powers__far_below_are_negligible_and_nan_stays(precision):
    found = powers(precision, [-1e30, -np.inf, -3000.0, -127.5, np.nan, -np.nan])[-1]
    assert (found[:4] <= 2.0**-126).all() and (found[:4] >= 0).all()
    assert np.isnan(found[4:6]).all()


ANGLES = np.random.default_rng(5).standard_normal(40_000) * np.repeat([1.0, 30.0, 1e4, 3e5], 10_000)
BY_LIBRARY = {"sin": math.sin, "cos": math.cos}


@pytest.mark.parametrize("kind", BY_LIBRARY)
def test_wave__is_that_of_the_library_of_c_and_has_all_digits_beside_its_zeros(kind):
    zeros = np.arange(1, 600_000) * (0.5 * np.pi)
    expected, small = (np.array([BY_LIBRARY[kind](angle) for angle in each.tolist()]) for each in (ANGLES, zeros))
    assert np.abs(wave(kind, ANGLES) - expected).max() < 4e-16
    assert np.abs(wave(kind, zeros) / small - 1.0).max() < 1e-15


@pytest.mark.parametrize("kind", BY_LIBRARY)
def test_wave__of_far_and_undefined_angles__is_that_of_numpy(kind):
    angles = np.array([1e7, -1e300, 0.0, 1e-320, np.nan, np.inf])
    with np.errstate(invalid="ignore"):
        expected = getattr(np, kind)(angles)
        assert np.array_equal(wave(kind, angles), expected, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_wave__depends_on_no_other_angle(dtype):
    angles = (ANGLES[::7].reshape(-1, 5)[:1000]).astype(dtype)
    angles[3] = 1e8
    whole = wave("sin", angles)
    assert whole.shape == angles.shape
    assert whole.dtype == angles.dtype
    for row in (0, 3, 999):
        assert np.array_equal(whole[row], wave("sin", angles[row]))
    assert np.array_equal(wave("sin", angles.T), whole.T)
