"""Loops over one tile of keys in which every query has a lane of a vector: weights, their sums and their products.

Plain formula: that of `tiles`, whose vectors hold keys.  There each sum ends with a sum over the lanes, and the keys
and weights of all heads do not fit into the first-level cache; here lanes are never summed, and weights are made and
multiplied for a few keys at a time.  With as many queries as lanes that takes a tenth to a fifth less time; few queries
would leave lanes idle.
"""

from __future__ import annotations

import numpy as np

from simstudy.kernels.elementary import POWERS_32, POWERS_64
from simstudy.kernels.jit import inlined
from simstudy.kernels.settings import VECTOR_BYTES
from simstudy.kernels.tiles import STRIDE
from simstudy.kernels.vectors import (
    add_in_float64,
    at_least,
    exponent_of_low_bits,
    lanes_of,
    load,
    repeat,
    spread,
    store,
    store_four,
)

# Index legend: i key, q first query of the lanes, k dimension of a head, h and g head.

STRIP = 64
"""Keys whose weights are made before they are multiplied; a tile is a whole number of strips."""
ROW = STRIP + 1
"""Vectors from one row of weights to the next: rows a power of 2 apart would share lines of the first-level cache."""
_AHEAD = VECTOR_BYTES == 64
"""Whether exponents wait in registers: of 16 they spill to the stack, which took up to half as much time again."""


# Powers of 2 of four vectors at a time: the operations of one would wait for each other.


def _exp2(powers):
    @inlined
    def exp2(t0, t1, t2, t3, lowest, magic):
        # As `elementary.exp2_float32`.
        t0, t1, t2, t3 = at_least(t0, lowest), at_least(t1, lowest), at_least(t2, lowest), at_least(t3, lowest)
        m0, m1, m2, m3 = t0 + magic, t1 + magic, t2 + magic, t3 + magic
        f0, f1, f2, f3 = t0 - (m0 - magic), t1 - (m1 - magic), t2 - (m2 - magic), t3 - (m3 - magic)
        p0 = p1 = p2 = p3 = spread(powers[0])
        for c in powers[1:]:
            p0, p1, p2, p3 = f0 * p0 + c, f1 * p1 + c, f2 * p2 + c, f3 * p3 + c
        p0, p1 = p0 * exponent_of_low_bits(m0), p1 * exponent_of_low_bits(m1)
        return p0, p1, p2 * exponent_of_low_bits(m2), p3 * exponent_of_low_bits(m3)

    return exp2


EXP2 = {"float32": _exp2(POWERS_32), "float64": _exp2(POWERS_64)}


@inlined
def _add_four(t, a0, a1, a2, a3, laid, place):
    return a3 * repeat(laid, place + 3 * STRIDE) + (
        a2 * repeat(laid, place + 2 * STRIDE) + (a1 * repeat(laid, place + STRIDE) + (a0 * repeat(laid, place) + t))
    )


@inlined
def _load_four(array, place, n):
    return load(array, place), load(array, place + n), load(array, place + 2 * n), load(array, place + 3 * n)


@inlined
def _exponents_of_four(laid, a, k, first, i, width, row):
    # Of keys first + i .. first + i + 3, up to dimension k + 3; the row holds those up to dimension k − 1, if any.
    place = i * width
    if k == 0:
        t0, t1 = repeat(laid, first + i), repeat(laid, first + i + 1)
        t2, t3 = repeat(laid, first + i + 2), repeat(laid, first + i + 3)
    else:
        t0, t1, t2, t3 = _load_four(row, place, width)
    x = (k + 2) * STRIDE + first + i
    t0, t1 = _add_four(t0, *a, laid, x), _add_four(t1, *a, laid, x + 1)
    return t0, t1, _add_four(t2, *a, laid, x + 2), _add_four(t3, *a, laid, x + 3)


@inlined
def sum_weights(exp2, laid, slopes, limits, q, values, first, size, sums, row):
    """Add weights of keys at a vector of queries to sums[0], times values to sums[1], and leave them in a row."""
    width, n, last = lanes_of(row), slopes.shape[1], len(slopes) - 4
    for k in range(0, last if _AHEAD else last + 4, 4):
        a = _load_four(slopes, k * n + q, n)
        for i in range(0, size, 4):
            store_four(row, i * width, width, *_exponents_of_four(laid, a, k, first, i, width, row))
    a = _load_four(slopes, last * n + q, n)
    lowest, magic = load(limits, q), load(limits, limits.shape[1] + q)
    # Sums of a strip by themselves, so that rounding grows with strips and not with keys; both sums in one order, so
    # that the mean of the number 1 is 1.
    mass = total = spread(values.dtype.type(0))
    # What the last dimensions add never leaves the registers.  Exponents are those of four keys ahead: the processor
    # looks about a hundred operations ahead, and powers that wait for theirs would fill that window.
    t = _exponents_of_four(laid, a, last, first, 0, width, row)
    for i in range(0, size, 4):
        place = i * width
        ahead = _exponents_of_four(laid, a, last, first, min(i + 4, size - 4), width, row) if _AHEAD else t
        now = t if _AHEAD else _load_four(row, place, width)
        w0, w1, w2, w3 = exp2(*now, lowest, magic)
        t = ahead
        mass = (((mass + w0) + w1) + w2) + w3
        y = first + i
        total = w1 * repeat(values, y + 1) + (w0 * repeat(values, y) + total)
        total = w3 * repeat(values, y + 3) + (w2 * repeat(values, y + 2) + total)
        store_four(row, place, width, w0, w1, w2, w3)
    add_in_float64(sums, 0, mass)
    add_in_float64(sums, width, total)


@inlined
def scale_weights(rows, scales, first):
    """Multiply the weights of each key, left by `sum_weights`, by its scale."""
    width = lanes_of(rows)
    for h in range(len(rows)):
        weights = rows[h]
        for i in range(STRIP):
            store(weights, i * width, load(weights, i * width) * repeat(scales, first + i))


@inlined
def add_lane_products(rows, products):
    """Add Σ_i rows[h, i] rows[g, i] to products (block of four by four heads, sixteen products, lane) for g ≤ h."""
    block = 0
    for h in range(0, len(rows), 4):
        for g in range(0, h, 4):
            _add_block(rows, h, g, products[block])
            block += 1
        _add_triangle(rows, h, products[block])
        block += 1


@inlined
def _add_block(rows, h, g, s):
    # Two heads by four at a time: 8 sums share 6 reads, and fit into 16 registers with what they need.
    w = lanes_of(rows)
    n = ROW * w
    for k in range(0, 4, 2):
        s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = spread(rows.dtype.type(0))
        for i in range(0, STRIP * w, w):
            x, y = (h + k) * n + i, g * n + i
            a, b, c, d = load(rows, y), load(rows, y + n), load(rows, y + 2 * n), load(rows, y + 3 * n)
            e, f = load(rows, x), load(rows, x + n)
            s00, s01, s02, s03 = s00 + e * a, s01 + e * b, s02 + e * c, s03 + e * d
            s10, s11, s12, s13 = s10 + f * a, s11 + f * b, s12 + f * c, s13 + f * d
        _add_to_four(s, 4 * k * w, w, s00, s01, s02, s03)
        _add_to_four(s, (4 * k + 4) * w, w, s10, s11, s12, s13)


@inlined
def _add_triangle(rows, h, s):
    w = lanes_of(rows)
    n = ROW * w
    s00 = s10 = s11 = s20 = s21 = s22 = s30 = s31 = s32 = s33 = spread(rows.dtype.type(0))
    for x in range(h * n, h * n + STRIP * w, w):
        a, b, c, d = load(rows, x), load(rows, x + n), load(rows, x + 2 * n), load(rows, x + 3 * n)
        s00, s10, s11, s20, s21 = s00 + a * a, s10 + b * a, s11 + b * b, s20 + c * a, s21 + c * b
        s22, s30, s31, s32, s33 = s22 + c * c, s30 + d * a, s31 + d * b, s32 + d * c, s33 + d * d
    _add_to(s, 0, s00)
    _add_to(s, 4 * w, s10)
    _add_to(s, 5 * w, s11)
    _add_to(s, 8 * w, s20)
    _add_to(s, 9 * w, s21)
    _add_to(s, 10 * w, s22)
    _add_to_four(s, 12 * w, w, s30, s31, s32, s33)


@inlined
def _add_to(sums, place, x):
    store(sums, place, load(sums, place) + x)


@inlined
def _add_to_four(sums, place, w, a, b, c, d):
    _add_to(sums, place, a)
    _add_to(sums, place + w, b)
    _add_to(sums, place + 2 * w, c)
    _add_to(sums, place + 3 * w, d)


@inlined
def add_lanes(lane_products, totals):
    """Add the products of the lanes to their totals, and set them to zero."""
    none = spread(lane_products.dtype.type(0))
    for place in range(0, lane_products.size, lanes_of(lane_products)):
        add_in_float64(totals, place, load(lane_products, place))
        store(lane_products, place, none)


@inlined
def set_means(sums, q, least, near, means, done):
    """Set means[q + lane, h] = sums[h, 1, lane] / sums[h, 0, lane], and sums[h, 0] to its inverse.

    A query is done no longer where a sum of weights is infinite or below ``least``, or a head is not ``near``.
    """
    n_served = min(sums.shape[2], len(means) - q)
    for h in range(len(sums)):
        mass, total, served, failed = sums[h, 0], sums[h, 1], near[h, q : q + n_served], 0
        for lane in range(n_served):
            failed += not (served[lane] & (mass[lane] >= least) & (mass[lane] < np.inf))
        for lane in range(n_served if failed else 0):
            done[q + lane] &= served[lane] & (mass[lane] >= least) & (mass[lane] < np.inf)
        for lane in range(mass.size):
            total[lane] /= mass[lane]
            mass[lane] = 1 / mass[lane]
        for lane in range(n_served):
            means[q + lane, h] = total[lane]


@inlined
def set_grams(products, sums, q, largest, grams):
    """Set grams[q + lane, h, g] from totals of products (block, 16, lane), and from sums that `set_means` has seen."""
    n_heads, block = grams.shape[1], 0
    for first in range(0, n_heads, 4):
        for second in range(0, first + 1, 4):
            for h in range(first, min(first + 4, n_heads)):
                for g in range(second, min(second + 4, h + 1)):
                    row, left, right = products[block, 4 * (h - first) + g - second], sums[h, 0], sums[g, 0]
                    for lane in range(row.size):
                        row[lane] = row[lane] * largest * (left[lane] * right[lane])
                    for lane in range(min(row.size, len(grams) - q)):
                        grams[q + lane, h, g] = grams[q + lane, g, h] = row[lane]
            block += 1
