"""Functions that LLVM vectorises: powers of 2 in both precisions, sines and cosines in float64.

The coefficients are those of the polynomials 1 + f·q(f) closest to 2^f on [−1/2, 1/2] in relative error (Remez):
9e-8 at degree 5, 3e-18 at degree 11; 2^0 is exactly 1.
"""

import numpy as np

from simstudy.kernels.jit import aligned, device_function, kernel, writable
from simstudy.kernels.philox import cos_sin, polynomial

F32, F64 = np.float32, np.float64

# A number added to it is rounded to the nearest integer, in the low mantissa bits of the sum, with one operation less
# than floor.  An integer s added to it multiplies the power by 2^s at no cost.
MAGIC_32, MAGIC_64 = F32(1.5 * 2**23), F64(1.5 * 2**52)
# Highest power first.
POWERS_32 = tuple(
    F32(c) for c in (0.00132647271401, 0.00967151263996, 0.0555073374347, 0.240222420854, 0.693146977599, 1.0)
)
POWERS_64 = (
    4.4347712982003767083e-10, 7.0737832485031332991e-9, 1.0178199571842137974e-7, 1.3215435282308487999e-6,
    0.000015252733493127489347, 0.0001540353045711209086, 0.0013333558146774620517, 0.0096181291075941200896,
    0.055504108664820083227, 0.2402265069591013126, 0.69314718055994532581, 1.0,
)  # fmt: skip


def _exp2(powers, real, bits, mantissa):
    @device_function
    def exp2(t, lowest, magic):
        """Return 2^(t + s) for magic = MAGIC + s with an integer s; relative error below 2e-7 or 4e-16, no branch.

        A t below ``lowest`` is replaced by it.  t must be at most 127 − s, and s + lowest at least −126; in float64,
        1023 − s and −1022.  NaN without a payload gives NaN.
        """
        # A comparison with NaN is false, so NaN passes.
        u = lowest if t < lowest else t
        m = u + magic
        f = u - (m - magic)
        # Added to the exponent, as processors have more units for integer sums than for products.
        return bits(real(polynomial(powers, f)).view(bits) + (real(m).view(bits) << mantissa)).view(real)

    return exp2


exp2_float32 = _exp2(POWERS_32, F32, np.int32, np.int32(23))
exp2_float64 = _exp2(POWERS_64, F64, np.int64, np.int64(52))


_FARTHEST = 1e6
"""Largest angle from which quarter turns are split off exactly."""
# π/2 in three parts: the first two have 33 digits, so that their products with fewer than 2^20 turns are exact.
_HALF_PI = float.fromhex("0x1.921fb544p+0"), float.fromhex("0x1.0b4611a6p-34"), float.fromhex("0x1.3198a2e037073p-69")
_TURNS = 2.0 / np.pi
# A number added to it is rounded to the nearest integer, which lies in the low mantissa bits of the sum.
_MAGIC = np.float64(1.5 * 2**52)
_QUARTERS = np.uint64(3)


def wave(kind: str, x: np.ndarray) -> np.ndarray:
    """Return sines or cosines of angles in their precision, with errors below 4e-16.

    Bits of a value do not depend on the others.  NumPy takes ten times as long in float64.
    """
    numpys = np.sin if kind == "sin" else np.cos
    if x.dtype != np.float64:
        return numpys(x)
    x = writable(x, x.dtype)
    found = aligned(x.shape, x.dtype)
    if _waves(x.reshape(-1), kind == "cos", found.reshape(-1)):
        far = ~(np.abs(x) <= _FARTHEST)
        found[far] = numpys(x[far])
    return found


@kernel
def _waves(x, cosine, found):
    # Set found[i] to cos x[i] or sin x[i]; return true if any angle is too large.
    far = False
    for i in range(x.size):
        c, s = _split(x[i])
        found[i] = c if cosine else s
        far |= not abs(x[i]) <= _FARTHEST
    return far


@device_function
def _split(x):
    # A separate function without reordering of operations, which would make these differences zero.
    turns = x * _TURNS + _MAGIC
    n = turns - _MAGIC
    t = ((x - n * _HALF_PI[0]) - n * _HALF_PI[1]) - n * _HALF_PI[2]
    return cos_sin(t, np.float64(turns).view(np.uint64) & _QUARTERS)
