"""Arrays that callers give: real numbers of a size that can be held, or one ValueError that says what to give."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

MAX_NUMBERS = 1 << 30
"""Most numbers of an array: 8 GiB.  A view that repeats one number may claim any size, and copies would take it."""


def real_array(name: str, given: ArrayLike, wanted: str = "an array of them", kinds: str = "fiub") -> np.ndarray:
    """Return an argument as an array of real numbers of these NumPy ``kinds``; ValueError says what is ``wanted``."""
    parts = given if isinstance(given, (list, tuple)) else [given]
    n_masked = sum(int(np.ma.count_masked(part)) for part in parts if isinstance(part, np.ma.MaskedArray))
    if n_masked:
        raise ValueError(f"{name} has {n_masked} masked values; remove or fill them, and give {wanted}")
    try:
        array = np.asarray(given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not an array: {error}; give real numbers, {wanted}") from None
    if array.dtype.kind not in kinds:
        shown = f" = {given!r}" if array.ndim == 0 else ""
        raise ValueError(f"{name}{shown} has dtype {array.dtype}; give real numbers, {wanted}")
    if array.size > MAX_NUMBERS:
        raise ValueError(f"{name} has shape {array.shape}, more than {MAX_NUMBERS} numbers; give fewer, {wanted}")
    return array


def real_number(name: str, given: Any) -> float:
    """Return an argument as one real number; a truth value is none, and raises ValueError."""
    number = real_array(name, given, "one number", "fiu")
    if number.ndim:
        raise ValueError(f"{name} has shape {number.shape}; give one number")
    return float(number)
