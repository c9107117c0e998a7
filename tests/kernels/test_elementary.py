"""Scalar functions, reductions, vectors of lanes and waves under the kernels, against NumPy in higher precision."""

import math

import numpy as np
import pytest

from simstudy.kernels import elementary
from simstudy.kernels.elementary import wave
from simstudy.kernels.jit import kernel
from simstudy.kernels.lanes import EXP2 as EXP2_OF_LANES
from simstudy.kernels.vectors import lanes, load, spread, store_four

EXP2 = {"float32": elementary.exp2_float32, "float64": elementary.exp2_float64}
PRECISIONS = pytest.mark.parametrize("precision", ["float32", "float64"])


# Precision: magic number, and the lowest exponent at which a power is not denormal.
RANGES = {"float32": (elementary.MAGIC_32, np.float32(-126.0)), "float64": (elementary.MAGIC_64, np.float64(-1022.0))}


@PRECISIONS
def test_exp2__is_accurate(precision):
    magic, lowest = RANGES[precision]
    points = np.random.default_rng(1).uniform(lowest, 80, 20_000).astype(precision)
    values = np.array([EXP2[precision](t, lowest, magic) for t in points])
    exact, bound = np.exp2(points.astype(np.longdouble)), {"float32": 2e-7, "float64": 4e-16}[precision]
    assert np.abs(values / exact - 1).max() < bound < 1e-3 * np.abs(np.exp(points[-2000:]) / exact[-2000:] - 1).max()


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
        assert np.array_equal(wave(kind, angles), getattr(np, kind)(angles), equal_nan=True)
