"""Scalar functions and reductions that LLVM vectorises, each written once for either precision.

The coefficients are those of the polynomials 1 + f·q(f) closest to 2^f on [−1/2, 1/2] in relative error (Remez):
9e-8 at degree 5, 3e-18 at degree 11; 2^0 is exactly 1.
"""

from __future__ import annotations

import numpy as np

from simstudy.kernels.jit import device_function, inlined

F32, F64 = np.float32, np.float64

# 1.5·2^23 plus the exponent bias 127: a number added to it is rounded to the nearest integer, which lies, biased, in
# the low mantissa bits of the sum.  That takes one operation less than floor, and a whole number s more in the magic
# number multiplies the power by 2^s at no cost.
MAGIC_32, MAGIC_64 = F32(1.5 * 2**23 + 127), F64(1.5 * 2**52 + 1023)
_MANTISSA_32, _MANTISSA_64 = np.int32(23), np.int64(52)
_SIGN_32, _SIGN_64 = np.int32(31), np.int64(63)
_MAGNITUDE_32, _MAGNITUDE_64 = np.int32(2**31 - 1), np.int64(2**63 - 1)
# Nonnegative numbers are ordered as their bits are.
_LARGEST_32, _LARGEST_64 = np.finfo(F32).max.view(np.int32), np.finfo(F64).max.view(np.int64)
# Highest power first.
POWERS_32 = tuple(
    F32(c) for c in (0.00132647271401, 0.00967151263996, 0.0555073374347, 0.240222420854, 0.693146977599, 1.0)
)
POWERS_64 = (
    4.4347712982003767083e-10, 7.0737832485031332991e-9, 1.0178199571842137974e-7, 1.3215435282308487999e-6,
    0.000015252733493127489347, 0.0001540353045711209086, 0.0013333558146774620517, 0.0096181291075941200896,
    0.055504108664820083227, 0.2402265069591013126, 0.69314718055994532581, 1.0,
)  # fmt: skip

# Of 2^f on [0, 1/32) and [0, 1/16) instead: 7e-8 and 2.5e-17.
PARTS_32 = (F32(0.242652701), F32(0.693123731), F32(1.0))
PARTS_64 = (
    0.00015692444190046448, 0.0013331520045529266, 0.009618135722740813, 0.0555041085678426, 0.24022650695962044,
    0.6931471805599448, 1.0,
)  # fmt: skip


@device_function
def exp2_float32(t, lowest, magic):
    """2^(t + s) where magic = MAGIC_32 + s for a whole number s; error below 2e-7 relative, without a branch.

    t counts as ``lowest`` if it is below, and must not be above 127 − s; s + lowest must be −126 at least.  NaN for
    NaN.
    """
    # A comparison with NaN is false, so NaN passes.
    u = lowest if t < lowest else t
    m = u + magic
    f = u - (m - magic)
    power = POWERS_32[0]
    for c in POWERS_32[1:]:
        power = c + f * power
    # The product keeps NaN, where a sum of bits would not.
    return power * np.int32(F32(m).view(np.int32) << _MANTISSA_32).view(F32)


@device_function
def exp2_float64(t, lowest, magic):
    """2^(t + s) as `exp2_float32`, with MAGIC_64, 1023, −1022, and an error below 4e-16."""
    u = lowest if t < lowest else t
    m = u + magic
    f = u - (m - magic)
    power = POWERS_64[0]
    for c in POWERS_64[1:]:
        power = c + f * power
    return power * np.int64(F64(m).view(np.int64) << _MANTISSA_64).view(F64)


# The minimum of floating-point numbers is vectorised only where NaN may be ignored; that of integers always is.
# Flipping all bits but the sign of a negative number makes the order of the bits, as signed integers, that of the
# numbers; the same flip takes them back.


@device_function
def _reorder_32(bits):
    return np.int32(bits ^ np.int32(np.int32(bits >> _SIGN_32) & _MAGNITUDE_32))


@device_function
def _reorder_64(bits):
    return np.int64(bits ^ ((bits >> _SIGN_64) & _MAGNITUDE_64))


@inlined
def lowest_float32(x):
    """Smallest of the float32 numbers x, at most the largest finite number; NaN or any of the numbers if one is NaN."""
    lowest = _LARGEST_32
    for i in range(x.size):
        rank = _reorder_32(F32(x[i]).view(np.int32))
        lowest = rank if rank < lowest else lowest
    return np.int32(_reorder_32(lowest)).view(F32)


@inlined
def lowest_float64(x):
    """Smallest of the float64 numbers x, at most the largest finite number; NaN or any of the numbers if one is NaN."""
    lowest = _LARGEST_64
    for i in range(x.size):
        rank = _reorder_64(F64(x[i]).view(np.int64))
        lowest = rank if rank < lowest else lowest
    return np.int64(_reorder_64(lowest)).view(F64)
