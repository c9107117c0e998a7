"""Loops over one tile of keys: scores, weights and their products.

Every loop runs over keys, has no branch and is vectorised.  A tile is a row of an array in which rows begin on cache
lines, are padded to whole vectors with keys of no weight, and are not a power of 2 apart: the first-level cache
holds few such rows.
"""

from __future__ import annotations

import numpy as np

from simstudy.kernels.jit import inlined
from simstudy.kernels.vectors import lanes_of, load, store, store_four

# Index legend: i key, k dimension of a head, h and g head.

TILE = 512
STRIDE = TILE + 16
"""Numbers from one row to the next."""
_WHOLE = 64
_FAR = -1e30


@inlined
def padded(size):
    """Return the number of keys in whole steps of the vectorised loops."""
    return (size + _WHOLE - 1) // _WHOLE * _WHOLE


@inlined
def clear(start, stop, row):
    """Set row[start:stop] to zero."""
    for i in range(start, stop):
        row[i] = 0


@inlined
def largest_of(variances):
    """Return the largest variance, 0 if there is none."""
    largest = variances[0] if variances.size else variances.dtype.type(0)
    for i in range(variances.size):
        largest = max(largest, variances[i])
    return largest


@inlined
def copy(source, start, size, row):
    """Copy one tile of a row of numbers, padded with zeros."""
    # Of a part: an index with an offset is checked for its sign, which keeps the loop from being vectorised.
    part = source[start : start + size]
    for i in range(size):
        row[i] = part[i]
    clear(size, padded(size), row)


@inlined
def copy_scales(variances, largest, start, size, row):
    """Set row[i] to the root of a variance relative to the largest one, so that products of weights stay in range."""
    inverse, part = 1 / largest if largest > 0 else largest * 0, variances[start : start + size]
    for i in range(part.size):
        row[i] = np.sqrt(part[i] * inverse)
    clear(part.size, padded(size), row)


@inlined
def lay_keys(keys, start, size, centre, rate, laid):
    """Set laid[2 + k, i] = keys[k, start + i] − centre[k] and laid[0, i] = −rate Σ_k laid[2 + k, i]²."""
    offsets, whole, fours = laid[0], size - size % lanes_of(keys), len(keys) - len(keys) % 4
    clear(0, size, offsets)
    for k in range(0, fours, 4):
        _lay_four(keys, k, start, whole, centre, rate, laid)
    for k in range(len(keys)):
        first, middle = whole if k < fours else 0, centre[k]
        source, row, part = keys[k, start + first : start + size], laid[2 + k, first:size], offsets[first:size]
        for i in range(row.size):
            x = source[i] - middle
            row[i] = x
            part[i] -= rate * (x * x)
        clear(size, padded(size), laid[2 + k])
    for i in range(size, padded(size)):
        offsets[i] = _FAR


@inlined
def _lay_four(keys, k, start, size, centre, rate, laid):
    # Four dimensions of whole vectors of keys: by one pass each, most of the time went to the offsets.
    n, row = keys.shape[1], (2 + k) * STRIDE
    c0, c1, c2, c3 = centre[k], centre[k + 1], centre[k + 2], centre[k + 3]
    for i in range(0, size, lanes_of(keys)):
        x = k * n + start + i
        x0, x1, x2, x3 = (
            load(keys, x) - c0,
            load(keys, x + n) - c1,
            load(keys, x + 2 * n) - c2,
            load(keys, x + 3 * n) - c3,
        )
        store_four(laid, row + i, STRIDE, x0, x1, x2, x3)
        store(laid, i, load(laid, i) - ((x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3)) * rate)


@inlined
def _join_dimensions(laid, slopes, q, size):
    # Set laid[1, i] = laid[0, i] + sum_{k >= 4} slopes[k, q] laid[2 + k, i]; return the row of offsets to use, 0 or 1.
    for k in range(4, len(slopes), 4):
        first, offsets = laid[0 if k == 4 else 1], laid[1]
        x0, x1, x2, x3 = laid[2 + k], laid[3 + k], laid[4 + k], laid[5 + k]
        a0, a1, a2, a3 = slopes[k, q], slopes[k + 1, q], slopes[k + 2, q], slopes[k + 3, q]
        for i in range(size):
            offsets[i] = (first[i] + a0 * x0[i] + a1 * x1[i]) + (a2 * x2[i] + a3 * x3[i])
    return 0 if len(slopes) == 4 else 1


# Nearly all the time goes into the two loops below.  A vector of keys takes 4 products with its dimensions, 11
# operations for the power and 2 or 3 for the sums, all in registers.


@inlined
def weighted_sums(exp2, laid, slopes, limits, q, values, scales, size, row, keep):
    """Return Σ_i w_i and Σ_i w_i values_i, w_i = exp2(laid[0, i] + Σ_k slopes[k, q] laid[2 + k, i], *limits[:, q]).

    If they are to be kept, row[i] is set to w_i scales_i.
    """
    offsets = laid[_join_dimensions(laid, slopes, q, size)]
    x0, x1, x2, x3 = laid[2], laid[3], laid[4], laid[5]
    a0, a1, a2, a3 = slopes[0, q], slopes[1, q], slopes[2, q], slopes[3, q]
    low, magic = limits[0, q], limits[1, q]
    mass = total = values.dtype.type(0)
    for i in range(size):
        w = exp2(offsets[i] + a0 * x0[i] + a1 * x1[i] + a2 * x2[i] + a3 * x3[i], low, magic)
        mass += w
        total += w * values[i]
        if keep:
            row[i] = w * scales[i]
    return mass, total


@inlined
def fill_scores(keys, start, size, query, distance, scores):
    """Set scores[i] = |query − k_i|², or −query·k_i."""
    clear(0, size, scores)
    for k in range(query.size):
        x, a = keys[k, start : start + size], query[k]
        if distance:
            for i in range(size):
                scores[i] += (x[i] - a) * (x[i] - a)
        else:
            for i in range(size):
                scores[i] -= x[i] * a


@inlined
def score_sums_kept(exp2, nearest, rate, low, magic, values, scales, size, row):
    """As `weighted_sums` that keeps them, with w_i = exp2(rate (nearest − row_i), low, magic) of scores in the row."""
    mass = total = values.dtype.type(0)
    for i in range(size):
        t = rate * (nearest - row[i])
        w = exp2(t, low, magic)
        w = w if not t < low else w * 0
        mass += w
        total += w * values[i]
        row[i] = w * scales[i]
    clear(size, padded(size), row)
    return mass, total


@inlined
def add_products(rows, size, products):
    """Add Σ_{i < size} rows[h, i] rows[g, i] to products[h, g] for g ≤ h; rows go by fours."""
    for h in range(0, len(rows), 4):
        for g in range(0, h, 4):
            _add_block(rows, h, g, size, products)
        _add_triangle(rows, h, size, products)


@inlined
def _add_block(rows, h, g, size, products):
    # 16 sums share 8 reads; with 4 sums and 4 reads, reading takes longer than multiplying.
    x0, x1, x2, x3 = rows[h], rows[h + 1], rows[h + 2], rows[h + 3]
    y0, y1, y2, y3 = rows[g], rows[g + 1], rows[g + 2], rows[g + 3]
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = rows.dtype.type(0)
    s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = rows.dtype.type(0)
    for i in range(size):
        a, b, c, d = y0[i], y1[i], y2[i], y3[i]
        s00 += x0[i] * a
        s01 += x0[i] * b
        s02 += x0[i] * c
        s03 += x0[i] * d
        s10 += x1[i] * a
        s11 += x1[i] * b
        s12 += x1[i] * c
        s13 += x1[i] * d
        s20 += x2[i] * a
        s21 += x2[i] * b
        s22 += x2[i] * c
        s23 += x2[i] * d
        s30 += x3[i] * a
        s31 += x3[i] * b
        s32 += x3[i] * c
        s33 += x3[i] * d
    _add_four(s00, s01, s02, s03, products[h, g : g + 4])
    _add_four(s10, s11, s12, s13, products[h + 1, g : g + 4])
    _add_four(s20, s21, s22, s23, products[h + 2, g : g + 4])
    _add_four(s30, s31, s32, s33, products[h + 3, g : g + 4])


@inlined
def _add_triangle(rows, h, size, products):
    x0, x1, x2, x3 = rows[h], rows[h + 1], rows[h + 2], rows[h + 3]
    s00 = s10 = s11 = s20 = s21 = s22 = s30 = s31 = s32 = s33 = zero = rows.dtype.type(0)
    for i in range(size):
        a, b, c, d = x0[i], x1[i], x2[i], x3[i]
        s00 += a * a
        s10 += b * a
        s11 += b * b
        s20 += c * a
        s21 += c * b
        s22 += c * c
        s30 += d * a
        s31 += d * b
        s32 += d * c
        s33 += d * d
    _add_four(s00, zero, zero, zero, products[h, h : h + 4])
    _add_four(s10, s11, zero, zero, products[h + 1, h : h + 4])
    _add_four(s20, s21, s22, zero, products[h + 2, h : h + 4])
    _add_four(s30, s31, s32, s33, products[h + 3, h : h + 4])


@inlined
def _add_four(a, b, c, d, sums):
    sums[0] += a
    sums[1] += b
    sums[2] += c
    sums[3] += d
