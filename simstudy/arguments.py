"""Checks of arguments of callers, arrays and numbers; a ValueError states the remedy."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

LARGEST = 1e50  # of numbers, and of the reciprocal of a bandwidth: no logit overflows float64
MAX_NUMBERS = 1 << 30
"""Largest size of an array, 8 GiB of numbers; a view of one number may have any size."""


def real_array(name: str, given: ArrayLike, expected: str = "an array of them", kinds: str = "fiub") -> np.ndarray:
    """Return an argument as an array of these NumPy ``kinds``; ValueError, which states ``expected``, for others."""
    parts = given if isinstance(given, (list, tuple)) else [given]
    if n_masked := sum(int(np.ma.count_masked(part)) for part in parts if isinstance(part, np.ma.MaskedArray)):
        raise ValueError(f"{name} has {n_masked} masked values; remove or fill them, and give {expected}")
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name} is not an array: {error}; give real numbers, {expected}") from None
    if array.dtype.kind not in kinds:
        shown = f" = {given!r}" if array.ndim == 0 else ""
        raise ValueError(f"{name}{shown} has dtype {array.dtype}; give real numbers, {expected}")
    if array.size > MAX_NUMBERS:
        raise ValueError(f"{name} has shape {array.shape}, more than {MAX_NUMBERS} numbers; give fewer, {expected}")
    return array


def real_number(name: str, given: Any) -> float:
    """Return an argument as one real number; ValueError for others, such as truth values."""
    if (number := real_array(name, given, "one number", "fiu")).ndim:
        raise ValueError(f"{name} has shape {number.shape}; give one number")
    return float(number)


def positive(name: str, given: Any) -> float:
    """Return an argument as one positive number, within bounds whose squares do not overflow in any formula."""
    number = real_array(name, given, "one positive number", "fiu")
    if number.ndim or not 1.0 / LARGEST <= float(number) <= LARGEST:
        raise ValueError(f"{name} = {given!r}; give one positive number, {1.0 / LARGEST:g} to {LARGEST:g}")
    return float(number)


def semidefinite(name: str, given: ArrayLike) -> np.ndarray:
    """Return an argument as a symmetric, positive semidefinite matrix, up to rounding; otherwise raise ValueError."""
    matrix = real_array(name, given, "(H, H)", "fiu").astype(float)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} holds NaN or infinity; give finite numbers")
    rounding = 1e-9 * np.abs(matrix).max(initial=0.0)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{name} has shape {matrix.shape}; give (H, H)")
    if np.abs(matrix - matrix.T).max() > rounding:
        raise ValueError(f"{name} is not symmetric; give a matrix that equals its transpose")
    if (lowest := np.linalg.eigvalsh(matrix)[0]) < -rounding * len(matrix):
        raise ValueError(f"{name} has the eigenvalue {lowest:.3g}; give a matrix that is positive semidefinite")
    return (matrix + matrix.T) / 2
