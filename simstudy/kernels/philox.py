"""Scalar functions under the addressed random numbers, of one source for CPU and GPU: words, uniforms, normals.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011).  Normals come from pairs of words by the transformation of Box and Muller (1958).  A word w stands for the
uniform (w + 1/2) / 2^32, which is never 0 or 1 and is symmetric about 1/2; hence no normal exceeds
sqrt(66 ln 2) = 6.77 in size.
"""

from __future__ import annotations

import math

import numpy as np

from simstudy.kernels.jit import device_function

# Typed constants: a bare integer would turn 64-bit unsigned arithmetic into floating point.
MASK = np.uint64(0xFFFFFFFF)
HALF_WORD = np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@device_function
def philox(c0, c1, c2, c3, k0, k1):
    """Four random 32-bit words of counter (c0, c1, c2, c3) under key (k0, k1), each held in a uint64."""
    # Upper halves are left as they come: a product looks at the lower ones only.
    for _ in range(10):
        p0 = _MULTIPLIER_0 * (c0 & MASK)
        p1 = _MULTIPLIER_1 * (c2 & MASK)
        c0, c1, c2, c3 = (p1 >> HALF_WORD) ^ c1 ^ k0, p1, (p0 >> HALF_WORD) ^ c3 ^ k1, p0
        k0 = (k0 + _WEYL_0) & MASK
        k1 = (k1 + _WEYL_1) & MASK
    return c0 & MASK, c1 & MASK, c2 & MASK, c3 & MASK


# A library's log, sin and cos are scalar calls here; these polynomials vectorise.  Their minimax coefficients are those
# of fdlibm (Sun Microsystems, 1993).
_SCALE = 2.0**-32
_SQRT_HALF_BITS = np.float64(math.sqrt(0.5)).view(np.uint64)
_MANTISSA_WIDTH = np.uint64(52)
# Bits of 2^52: an integer below 2^52 placed in the mantissa reads as 2^52 + integer.
_INTEGER_BITS = np.float64(2.0**52).view(np.uint64)
_LN2_HI, _LN2_LO = 6.93147180369123816490e-01, 1.90821492927058770002e-10


@device_function
def minus_log(u):
    """-ln(u) for a float64 u in [2^-33, 1), without a branch; relative error below 4e-16."""
    # u = 2^e m with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh(s), s = (m - 1)/(m + 1).
    bits = np.float64(2.0**64 * u).view(np.uint64)
    e = (bits - _SQRT_HALF_BITS) >> _MANTISSA_WIDTH
    f = np.uint64(bits - (e << _MANTISSA_WIDTH)).view(np.float64) - 1.0
    exponent = np.uint64(e | _INTEGER_BITS).view(np.float64) - (2.0**52 + 64.0)
    s = f / (2.0 + f)
    z = s * s
    p = 1.479819860511658591e-01
    p = p * z + 1.531383769920937332e-01
    p = p * z + 1.818357216161805012e-01
    p = p * z + 2.222219843214978396e-01
    p = p * z + 2.857142874366239149e-01
    p = p * z + 3.999999999940941908e-01
    p = p * z + 6.666666666666735130e-01
    half_square = 0.5 * f * f
    log_m = f - (half_square - s * (half_square + z * p))
    return -(exponent * _LN2_HI) - (exponent * _LN2_LO + log_m)


_TURN = 2.0 * math.pi
_EIGHTH = np.uint64(1 << 29)
_QUARTER_WIDTH = np.uint64(30)
_QUARTER_MASK = np.uint64((1 << 30) - 1)
_ODD, _SECOND = np.uint64(1), np.uint64(2)


@device_function
def cos_sin_turn(word):
    """(cos, sin) of the angle 2 pi (word + 1/2)/2^32, without a branch; error below 4e-16."""
    # The nearest quarter turn is split off in integers, where it is exact.
    shifted = (word + _EIGHTH) & MASK
    quarter = shifted >> _QUARTER_WIDTH
    rest = np.float64(shifted & _QUARTER_MASK) - (2.0**29 - 0.5)
    t = rest * (_TURN * _SCALE)
    z = t * t
    s = 1.58969099521155010221e-10
    s = s * z - 2.50507602534068634195e-08
    s = s * z + 2.75573137070700676789e-06
    s = s * z - 1.98412698298579493134e-04
    s = s * z + 8.33333333332248946124e-03
    s = s * z - 1.66666666666666324348e-01
    sine = t + t * z * s
    c = -1.13596475577881948265e-11
    c = c * z + 2.08757232129817482790e-09
    c = c * z - 2.75573143513906633035e-07
    c = c * z + 2.48015872894767294178e-05
    c = c * z - 1.38888888888741095749e-03
    c = c * z + 4.16666666666666019037e-02
    cosine = 1.0 - (0.5 * z - z * z * c)
    odd = (quarter & _ODD) != 0
    x = -sine if odd else cosine
    y = cosine if odd else sine
    half = quarter >= _SECOND
    return (-x if half else x), (-y if half else y)


@device_function
def box_muller(w0, w1):
    """Two independent standard normals from two random 32-bit words."""
    radius = math.sqrt(2.0 * minus_log((np.float64(w0) + 0.5) * _SCALE))
    cosine, sine = cos_sin_turn(w1)
    return radius * cosine, radius * sine


@device_function
def uniform_pair(w0, w1):
    """Two independent uniforms in (0, 1) from two random 32-bit words."""
    return (np.float64(w0) + 0.5) * _SCALE, (np.float64(w1) + 0.5) * _SCALE
