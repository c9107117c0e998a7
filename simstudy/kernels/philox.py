"""Scalar functions of random numbers by address, from one source for CPU and GPU: words, uniforms, normals.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011).  Normals are transformations of pairs of words (Box and Muller 1958).  A word w gives the uniform
(w + 1/2) / 2^32, which is never 0 or 1 and is symmetric about 1/2.  Hence no normal exceeds sqrt(66 ln 2) = 6.77 in
size.  In float32, the same words give the same normals with a relative error of 5e-7, by half as many operations on
vectors of twice as many numbers.
"""

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
    """Return four random 32-bit words, as uint64, of counter (c0, c1, c2, c3) and key (k0, k1)."""
    # Upper halves are not cleared, as products use lower halves only.
    for _ in range(10):
        p0 = _MULTIPLIER_0 * (c0 & MASK)
        p1 = _MULTIPLIER_1 * (c2 & MASK)
        c0, c1, c2, c3 = (p1 >> HALF_WORD) ^ c1 ^ k0, p1, (p0 >> HALF_WORD) ^ c3 ^ k1, p0
        k0 = (k0 + _WEYL_0) & MASK
        k1 = (k1 + _WEYL_1) & MASK
    return c0 & MASK, c1 & MASK, c2 & MASK, c3 & MASK


# Library functions log, sin and cos would be scalar calls; these polynomials are vectorised.  Their minimax
# coefficients, highest power first, are those of fdlibm (Sun Microsystems, 1993).
_LOG = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
)  # fmt: skip
_SIN = (
    1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
    8.33333333332248946124e-03, -1.66666666666666324348e-01,
)  # fmt: skip
_COS = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
    -1.38888888888741095749e-03, 4.16666666666666019037e-02,
)  # fmt: skip
_SCALE = 2.0**-32
_SQRT_HALF_BITS = np.float64(math.sqrt(0.5)).view(np.uint64)
_MANTISSA_WIDTH = np.uint64(52)
# Bits of 2^52: with an integer below 2^52 in the mantissa, they are the number 2^52 + integer.
_INTEGER_BITS = np.float64(2.0**52).view(np.uint64)
_LN2_HI, _LN2_LO = 6.93147180369123816490e-01, 1.90821492927058770002e-10


@device_function
def polynomial(coefficients, x):
    """Return the value at x of the polynomial with these coefficients, highest power first."""
    p = coefficients[0]
    for c in coefficients[1:]:
        p = p * x + c
    return p


@device_function
def minus_log(u):
    """Return -ln(u) for a float64 u in [2^-33, 1), without a branch; relative error below 4e-16."""
    # u = 2^e m with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh(s), s = (m - 1)/(m + 1).
    bits = np.float64(2.0**64 * u).view(np.uint64)
    e = (bits - _SQRT_HALF_BITS) >> _MANTISSA_WIDTH
    f = np.uint64(bits - (e << _MANTISSA_WIDTH)).view(np.float64) - 1.0
    exponent = np.uint64(e | _INTEGER_BITS).view(np.float64) - (2.0**52 + 64.0)
    s = f / (2.0 + f)
    z = s * s
    p = polynomial(_LOG, z)
    half_square = 0.5 * f * f
    log_m = f - (half_square - s * (half_square + z * p))
    return -(exponent * _LN2_HI) - (exponent * _LN2_LO + log_m)


_TURN = 2.0 * math.pi
_EIGHTH = np.uint64(1 << 29)
_QUARTER_WIDTH = np.uint64(30)
_QUARTER_MASK = np.uint64((1 << 30) - 1)
_ODD, _SECOND = np.uint64(1), np.uint64(2)


@device_function
def cos_sin(t, quarter):
    """Return (cos, sin) of t + quarter·π/2 for |t| ≤ π/4 and quarter 0 to 3, without a branch; error below 4e-16."""
    z = t * t
    s, c = polynomial(_SIN, z), polynomial(_COS, z)
    sine = t + t * z * s
    cosine = 1.0 - (0.5 * z - z * z * c)
    odd = (quarter & _ODD) != 0
    x = -sine if odd else cosine
    y = cosine if odd else sine
    half = quarter >= _SECOND
    return (-x if half else x), (-y if half else y)


@device_function
def box_muller(w0, w1):
    """Return two independent standard normals from two random 32-bit words."""
    radius = math.sqrt(2.0 * minus_log((np.float64(w0) + 0.5) * _SCALE))
    # The nearest quarter turn of the angle 2 pi (w1 + 1/2)/2^32 is split off in integers, without rounding.
    shifted = (w1 + _EIGHTH) & MASK
    rest = np.float64(shifted & _QUARTER_MASK) - (2.0**29 - 0.5)
    cosine, sine = cos_sin(rest * (_TURN * _SCALE), shifted >> _QUARTER_WIDTH)
    return radius * cosine, radius * sine


F32, I32, U32 = np.float32, np.int32, np.uint32
_SQRT_HALF_BITS_32 = F32(math.sqrt(0.5)).view(U32)
_MANTISSA_WIDTH_32 = U32(23)
_ONE, _TWO, _MINUS_LN4 = F32(1.0), F32(2.0), F32(-2.0 * math.log(2.0))
_TOP, _TOP_SIGNED = U32(33), I32(33)
_MINUS_SCALE, _MINUS_HALF_SCALE = F32(-(2.0**-32)), F32(-(2.0**-33))
# Minimax coefficients of Cephes (Moshier, 1992), highest power first: -2 ln(1 + f) / f, sin(t) / t and cos(t) in t^2.
_LOG_32 = tuple(F32(-2.0 * c) for c in (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1, -0.5, 1.0,
))  # fmt: skip
_SIN_32 = tuple(F32(c) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1, 1.0))
_COS_32 = tuple(F32(c) for c in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5, 1.0))
_TURN_32 = F32(_TURN * _SCALE / 4.0)
_SIGN_32, _ODD_32, _EIGHTH_WIDTH_32 = U32(1 << 31), U32(1 << 30), U32(29)
_ONE_32, _TWO_32, _NONE_32 = U32(1), U32(2), U32(0)


@device_function
def minus_two_log_float32(word):
    """Return -2 ln((word + 1/2) / 2^32) of a uint32, without a branch; relative error below 3e-7."""
    # 2 word + 1 = 2^e m with m in [sqrt(1/2), sqrt(2)).  Near 2^33, the logarithm is smaller than the rounding error of
    # float32, so that the difference from 2^33 is used instead.
    bits = F32(F32(word) * _TWO + _ONE).view(U32)
    e = U32(U32(bits - _SQRT_HALF_BITS_32) >> _MANTISSA_WIDTH_32)
    below = U32(bits - U32(e << _MANTISSA_WIDTH_32)).view(F32) - _ONE
    f = F32(U32(~word)) * _MINUS_SCALE + _MINUS_HALF_SCALE if e == _TOP else below
    return F32(I32(I32(e) - _TOP_SIGNED)) * _MINUS_LN4 + f * polynomial(_LOG_32, f)


@device_function
def box_muller_float32(w0, w1):
    """Return the normals of `box_muller` in float32; relative error below 5e-7."""
    word = U32(w1)
    radius = F32(math.sqrt(minus_two_log_float32(U32(w0))))
    # The difference from the nearest quarter turn is the lower 30 bits, as a signed integer; in quarters of a word, so
    # that half a word is 2.
    t = F32(I32(U32(U32(word << _TWO_32) | _TWO_32))) * _TURN_32
    z = t * t
    s, c = polynomial(_SIN_32, z), polynomial(_COS_32, z)
    sine, cosine = F32(radius * (s * t)).view(U32), F32(radius * c).view(U32)
    # Bits 30 and 31 are the number of the quarter turn.
    quarter = U32(U32(U32(word >> _EIGHTH_WIDTH_32) + _ONE_32) << _EIGHTH_WIDTH_32)
    odd = U32(quarter & _ODD_32) != _NONE_32
    x = sine if odd else cosine
    y = cosine if odd else sine
    sign_x = U32(U32(quarter ^ U32(quarter << _ONE_32)) & _SIGN_32)
    return U32(x ^ sign_x).view(F32), U32(y ^ U32(quarter & _SIGN_32)).view(F32)


@device_function
def uniform_pair(w0, w1):
    """Return two independent uniforms in (0, 1) from two random 32-bit words."""
    return (np.float64(w0) + 0.5) * _SCALE, (np.float64(w1) + 0.5) * _SCALE
