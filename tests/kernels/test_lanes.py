"""Powers of 2 in vectors of queries, against NumPy in higher precision."""

import numpy as np
import pytest

from simstudy.kernels.elementary import MAGIC_32, MAGIC_64
from simstudy.kernels.jit import kernel
from simstudy.kernels.lanes import EXP2
from simstudy.kernels.vectors import lanes, load, store_four

MAGIC = {"float32": MAGIC_32, "float64": MAGIC_64}
EACH_PRECISION = pytest.mark.parametrize("precision", MAGIC)


@kernel
def _powers(exp2, t, lowest, magic, width, out):
    for i in range(0, t.size, 4 * width):
        a, b, c, d = load(t, i), load(t, i + width), load(t, i + 2 * width), load(t, i + 3 * width)
        a, b, c, d = exp2(a, b, c, d, load(lowest, 0), load(magic, 0))
        store_four(out, i, width, a, b, c, d)


def powers(precision, points, shifts=0.0):
    """2^(t + s), t from -126 - s on, for numbers in whole vectors, of whose lanes each has a shift s of its own."""
    real, width = np.dtype(precision), lanes(np.dtype(precision).itemsize)
    t, shifts = np.resize(np.asarray(points, real), 4096), np.resize(np.asarray(shifts, real), width)
    out = np.empty_like(t)
    _powers(EXP2[precision], t, -126 - shifts, MAGIC[precision] + shifts, width, out)
    return t, np.resize(shifts, 4096), out


@EACH_PRECISION
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


@EACH_PRECISION
def test_powers__far_below_are_negligible_and_nan_stays(precision):
    found = powers(precision, [-1e30, -np.inf, -3000.0, -127.5, np.nan, -np.nan])[-1]
    assert (found[:4] <= 2.0**-126).all() and (found[:4] >= 0).all()
    assert np.isnan(found[4:6]).all()
