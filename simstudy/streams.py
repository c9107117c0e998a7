"""Random numbers by address: each is a pure function of (stream, role, replicate, row, column).

Imports NumPy and jit only.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011).  Its 64-bit key comes from the stream's name; its four counter words are

    column // 4  |  row  |  replicate mod 2^32  |  role * 2^24 + replicate // 2^32

and its four output words serve the columns 4c .. 4c+3 of that row.  Normals come from the word pairs (0, 1) and
(2, 3) by the transformation of Box and Muller (1958).  A word w stands for the uniform (w + 1/2) / 2^32, which is
never 0 or 1 and is symmetric about 1/2; hence no normal exceeds sqrt(66 ln 2) = 6.77 in size.
"""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from simstudy.jit import aligned, device_function, kernel


class Role(IntEnum):
    """What a random number is used for; part of its address, so values must never change."""

    KEYS = 0
    KEY_LATENT = 1
    NOISE = 2
    PROJECTIONS = 3
    QUERY_PROJECTIONS = 4
    QUERIES = 5
    LEARNER = 6


MAX_REPLICATES = 2**56
MAX_ROWS = 2**32

# Typed constants: a bare integer would turn 64-bit unsigned arithmetic into floating point.
_MASK = np.uint64(0xFFFFFFFF)
_HALF_WORD = np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@device_function
def philox(c0, c1, c2, c3, k0, k1):
    """Four random 32-bit words of counter (c0, c1, c2, c3) under key (k0, k1), each held in a uint64."""
    # Upper halves are left as they come: a product looks at the lower ones only.
    for _ in range(10):
        p0 = _MULTIPLIER_0 * (c0 & _MASK)
        p1 = _MULTIPLIER_1 * (c2 & _MASK)
        c0, c1, c2, c3 = (p1 >> _HALF_WORD) ^ c1 ^ k0, p1, (p0 >> _HALF_WORD) ^ c3 ^ k1, p0
        k0 = (k0 + _WEYL_0) & _MASK
        k1 = (k1 + _WEYL_1) & _MASK
    return c0 & _MASK, c1 & _MASK, c2 & _MASK, c3 & _MASK


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
    shifted = (word + _EIGHTH) & _MASK
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


# Rows are computed in whole tiles, the last one too, of which only the wanted part is copied.  So a row always goes
# through the same instructions, and its bits cannot depend on how many rows there are.
_TILE = 128


@kernel
def _fill_words(words, block, start, c2, c3, k0, k1):
    for i in range(_TILE):
        w0, w1, w2, w3 = philox(block, start + np.uint64(i), c2, c3, k0, k1)
        words[0, i] = w0
        words[1, i] = w1
        words[2, i] = w2
        words[3, i] = w3


def _filler(transform):
    """Kernel that fills an array with what ``transform`` makes of pairs of words."""

    @kernel
    def fill_pair(words, x, y):
        for i in range(_TILE):
            x[i], y[i] = transform(np.uint64(words[0, i]), np.uint64(words[1, i]))

    @kernel
    def fill(out, k0, k1, role, first, words, tile):
        # r: replicate; b: block of four columns; i: row; j: column within the block
        n_replicates, n_columns, n_rows = out.shape
        for r in range(n_replicates):
            replicate = first + np.uint64(r)
            c2 = replicate & _MASK
            c3 = (role << np.uint64(24)) | (replicate >> _HALF_WORD)
            for b in range((n_columns + 3) // 4):
                used = min(4, n_columns - 4 * b)
                for start in range(0, n_rows, _TILE):
                    _fill_words(words, np.uint64(b), np.uint64(start), c2, c3, k0, k1)
                    for pair in range(0, used, 2):
                        fill_pair(words[pair : pair + 2], tile[pair], tile[pair + 1])
                    for j in range(used):
                        wanted = out[r, 4 * b + j, start : start + _TILE]
                        for i in range(wanted.size):
                            wanted[i] = tile[j, i]

    return fill


_fill_normals = _filler(box_muller)
_fill_uniforms = _filler(uniform_pair)


def normals(
    stream: str, role: Role, first: int, count: int, n_rows: int, n_columns: int, dtype: str = "float64"
) -> np.ndarray:
    """Standard normals of replicates first .. first + count - 1, feature-major.

    Parameters
    ----------
    stream : str
        Hexadecimal digest that names the stream, of at least 16 digits.
    role : Role
        What the numbers are for.
    first, count : int
        First replicate and number of replicates; all below 2**56.
    n_rows, n_columns : int
        Rows (keys) and columns (features).  A smaller number gives a prefix of the same numbers.
    dtype : {"float64", "float32"}
        Computed in float64 and rounded, so that both types show the same numbers.

    Returns
    -------
    ndarray, shape (count, n_columns, n_rows)

    Raises
    ------
    ValueError
        If an address does not exist: a negative or too large replicate or number of rows.
    """
    return _filled(_fill_normals, stream, role, first, aligned((count, n_columns, n_rows), dtype))


def uniforms(stream: str, role: Role, first: int, count: int, n_rows: int, n_columns: int) -> np.ndarray:
    """Uniforms in (0, 1) under the addresses of :func:`normals`, of which they use the same words.

    Always float64: the largest would round to 1 in float32.

    Returns
    -------
    ndarray, shape (count, n_columns, n_rows)
    """
    return _filled(_fill_uniforms, stream, role, first, aligned((count, n_columns, n_rows), np.float64))


def _filled(fill, stream: str, role: Role, first: int, out: np.ndarray) -> np.ndarray:
    if not 0 <= first <= MAX_REPLICATES - out.shape[0]:
        raise ValueError(f"replicates {first} + {out.shape[0]} reach beyond [0, 2**56)")
    if out.shape[2] > MAX_ROWS:
        raise ValueError(f"{out.shape[2]} rows are more than 2**32")
    key = int(stream[:16], 16)
    memory = aligned((4, _TILE), np.uint32), aligned((4, _TILE), np.float64)
    fill(out, np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32), np.uint64(role), np.uint64(first), *memory)
    return out
