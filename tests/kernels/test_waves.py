import math

import numpy as np
import pytest

from simstudy.kernels.waves import wave

ANGLES = np.random.default_rng(5).standard_normal(40_000) * np.repeat([1.0, 30.0, 1e4, 3e5], 10_000)
BY_LIBRARY = {"sin": math.sin, "cos": math.cos}


@pytest.mark.parametrize("kind", BY_LIBRARY)
def test_wave__is_that_of_the_library_of_c(kind):
    expected = np.array([BY_LIBRARY[kind](angle) for angle in ANGLES.tolist()])
    assert np.abs(wave(kind, ANGLES) - expected).max() < 4e-16


@pytest.mark.parametrize("kind", BY_LIBRARY)
def test_wave__has_all_digits_beside_its_zeros(kind):
    zeros = np.arange(1, 600_000) * (0.5 * np.pi)
    expected = np.array([BY_LIBRARY[kind](angle) for angle in zeros.tolist()])
    assert np.abs(wave(kind, zeros) / expected - 1.0).max() < 1e-15


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
