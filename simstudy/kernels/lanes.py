"""Loops over one tile of keys with a query in each lane of a vector: weights, their sums and their products.

With keys in lanes (`tiles`), sums end with a sum over lanes, and the weights of all heads exceed the first-level cache.
Here lanes are not summed, and weights are multiplied for a few keys at a time.  This takes a tenth to a fifth less time
if no lanes are idle.
"""

import numpy as np

from simstudy.kernels.elementary import POWERS_32, POWERS_64
from simstudy.kernels.jit import inlined
from simstudy.kernels.settings import VECTOR_BYTES
from simstudy.kernels.tiles import STRIDE
from simstudy.kernels.vectors import (
    add_in_float64,
    at_least,
    lanes_of,
    load,
    repeat,
    spread,
    store,
    store_four,
    times_power,
    where,
)

# Index legend: i key, q first query of the lanes, k dimension of a head, h and g head.

STRIP = 64
"""Number of keys whose weights are computed before they are multiplied; tiles consist of whole strips."""
STEP = 8
"""Number of keys that are multiplied together; parts of a strip consist of whole steps."""
ROW = STRIP + 1
"""Vectors from one row of weights to the next; rows a power of 2 apart would share first-level cache lines."""
_GROWTH = 30.0
"""Largest exponent of a weight before sums are made relative to it, so that sums of products are finite."""
_AHEAD = VECTOR_BYTES == 64
"""True if exponents are kept in registers; with 16 registers they spill, which took up to half as much time again."""


def _exp2(powers):
    # Powers of 2 of four vectors at a time, as operations on one vector depend on each other.
    @inlined
    def exp2(t0, t1, t2, t3, lowest, magic, least):
        # As `elementary.exp2_float32`, minus ``least``: the power of the lowest exponent if its weight must be 0.
        t0, t1, t2, t3 = at_least(t0, lowest), at_least(t1, lowest), at_least(t2, lowest), at_least(t3, lowest)
        m0, m1, m2, m3 = t0 + magic, t1 + magic, t2 + magic, t3 + magic
        f0, f1, f2, f3 = t0 - (m0 - magic), t1 - (m1 - magic), t2 - (m2 - magic), t3 - (m3 - magic)
        p0 = p1 = p2 = p3 = spread(powers[0])
        for c in powers[1:]:
            p0, p1, p2, p3 = f0 * p0 + c, f1 * p1 + c, f2 * p2 + c, f3 * p3 + c
        p0, p1, p2, p3 = times_power(p0, m0), times_power(p1, m1), times_power(p2, m2), times_power(p3, m3)
        return p0 - least, p1 - least, p2 - least, p3 - least

    return exp2


EXP2 = {"float32": _exp2(POWERS_32), "float64": _exp2(POWERS_64)}


@inlined
def _load_four(array, place, n):
    return load(array, place), load(array, place + n), load(array, place + 2 * n), load(array, place + 3 * n)


@inlined
def _add_four(t, a0, a1, a2, a3, laid, place):
    return a3 * repeat(laid, place + 3 * STRIDE) + (
        a2 * repeat(laid, place + 2 * STRIDE) + (a1 * repeat(laid, place + STRIDE) + (a0 * repeat(laid, place) + t))
    )


@inlined
def _exponents_of_four(laid, a, n_added, first, i, width, row):
    # Exponents of keys first + i to first + i + 3: the last four dimensions plus the others, if any, from the row.
    x = (n_added + 2) * STRIDE + first + i
    if n_added == 0:
        t0, t1 = repeat(laid, first + i), repeat(laid, first + i + 1)
        t2, t3 = repeat(laid, first + i + 2), repeat(laid, first + i + 3)
    else:
        t0, t1, t2, t3 = _load_four(row, i * width, width)
    t0, t1 = _add_four(t0, *a, laid, x), _add_four(t1, *a, laid, x + 1)
    return t0, t1, _add_four(t2, *a, laid, x + 2), _add_four(t3, *a, laid, x + 3)


@inlined
def sum_products(laid, coefficients, n_added, q, first, begin, end, row):
    """Set a row, from begin to end, to laid[0] + sum_k coefficients[k] laid[2 + k] for k < n_added."""
    # Eight keys at a time, with sums in registers: a matrix product at the peak rate of the processor.
    width, n = lanes_of(row), coefficients.shape[1]
    for i in range(begin, end, STEP):
        x, c, place = first + i, q, i * width
        t0, t1, t2, t3 = repeat(laid, x), repeat(laid, x + 1), repeat(laid, x + 2), repeat(laid, x + 3)
        t4, t5, t6, t7 = repeat(laid, x + 4), repeat(laid, x + 5), repeat(laid, x + 6), repeat(laid, x + 7)
        for x in range(2 * STRIDE + first + i, (2 + n_added) * STRIDE + first + i, STRIDE):
            a = load(coefficients, c)
            t0, t1 = a * repeat(laid, x) + t0, a * repeat(laid, x + 1) + t1
            t2, t3 = a * repeat(laid, x + 2) + t2, a * repeat(laid, x + 3) + t3
            t4, t5 = a * repeat(laid, x + 4) + t4, a * repeat(laid, x + 5) + t5
            t6, t7 = a * repeat(laid, x + 6) + t6, a * repeat(laid, x + 7) + t7
            c += n
        store_four(row, place, width, t0, t1, t2, t3)
        store_four(row, place + 4 * width, width, t4, t5, t6, t7)


@inlined
def sum_squares(laid, points, q, first, begin, end, row):
    """Set a row, from begin to end, to -sum_k (points[k] - laid[2 + k])²."""
    width, n = lanes_of(row), points.shape[1]
    for i in range(begin, end, 4):
        t0 = t1 = t2 = t3 = spread(row.dtype.type(0))
        for k in range(len(points)):
            a, x = load(points, k * n + q), (2 + k) * STRIDE + first + i
            d0, d1 = repeat(laid, x) - a, repeat(laid, x + 1) - a
            d2, d3 = repeat(laid, x + 2) - a, repeat(laid, x + 3) - a
            t0, t1, t2, t3 = t0 - d0 * d0, t1 - d1 * d1, t2 - d2 * d2, t3 - d3 * d3
        store_four(row, i * width, width, t0, t1, t2, t3)


@inlined
def hide(visible, place, begin, end, row):
    """Set exponents of a row, from begin to end, to the lowest number where the flags from ``place`` are 0."""
    width, lowest = lanes_of(row), spread(-np.finfo(row.dtype).max)
    for i in range(begin, end):
        x = i * width
        store(row, x, where(visible, place + i * visible.shape[1], load(row, x), lowest))


@inlined
def _add_weights(exp2, t, limits, values, y, sums, row, place, width):
    # Store weights of four keys in a row, add them to sums of weights and of weighted values, and return these sums.
    # Both sums have one order, so that the mean of values 1 is exactly 1.
    (mass, total), (w0, w1, w2, w3) = sums, exp2(*t, *limits)
    mass = (((mass + w0) + w1) + w2) + w3
    total = w1 * repeat(values, y + 1) + (w0 * repeat(values, y) + total)
    total = w3 * repeat(values, y + 3) + (w2 * repeat(values, y + 2) + total)
    store_four(row, place, width, w0, w1, w2, w3)
    return mass, total


@inlined
def sum_weights(exp2, laid, slopes, limits, q, values, first, end, sums, row):
    """Add weights of a strip at a vector of queries to sums[0], weighted values to sums[1]; store weights in row."""
    width, n, last = lanes_of(row), slopes.shape[1], len(slopes) - 4
    # Strips are summed separately, so that rounding grows with the number of strips, not of keys.
    none = spread(values.dtype.type(0))
    known, found = (load(limits, q), load(limits, limits.shape[1] + q), none), (none, none)
    n_before = last if _AHEAD else last + 4
    if n_before > 4:
        sum_products(laid, slopes, n_before, q, first, 0, end, row)
    for i in range(0, end if n_before == 4 else 0, 4):
        t = _exponents_of_four(laid, _load_four(slopes, q, n), 0, first, i, width, row)
        store_four(row, i * width, width, *t)
    # Terms of the last dimensions stay in registers.  Exponents are computed four keys ahead: the processor reorders
    # about a hundred operations, and powers that wait for exponents would fill this window.
    a = _load_four(slopes, last * n + q, n)
    t = _exponents_of_four(laid, a, last, first, 0, width, row)
    for i in range(0, end, 4):
        ahead = _exponents_of_four(laid, a, last, first, min(i + 4, end - 4), width, row) if _AHEAD else t
        now = t if _AHEAD else _load_four(row, i * width, width)
        found = _add_weights(exp2, now, known, values, first + i, found, row, i * width, width)
        t = ahead
    add_in_float64(sums, 0, found[0])
    add_in_float64(sums, width, found[1])


@inlined
def find_closest(row, begin, end, reference, closest, rate):
    """Set ``closest`` to the largest number of a row and its reference in each lane; return how many grew too much."""
    width = lanes_of(row)
    a = b = c = d = load(reference, 0)
    for i in range(begin * width, end * width, 4 * width):
        x, y, z, u = _load_four(row, i, width)
        a, b, c, d = at_least(x, a), at_least(y, b), at_least(z, c), at_least(u, d)
    store(closest, 0, at_least(at_least(a, b), at_least(c, d)))
    grown = 0
    for lane in range(closest.size):
        grown += (closest[lane] - reference[lane]) * rate > _GROWTH
    return grown


@inlined
def sum_relative_weights(exp2, known, zero, rate, values, first, begin, end, sums, row):
    """Do the same as `sum_weights` for exponents (row − zero) · rate, with a zero for each lane."""
    width, none = lanes_of(row), spread(values.dtype.type(0))
    found = none, none
    for i in range(begin, end, 4):
        t0, t1, t2, t3 = _load_four(row, i * width, width)
        t = (t0 - zero) * rate, (t1 - zero) * rate, (t2 - zero) * rate, (t3 - zero) * rate
        found = _add_weights(exp2, t, known, values, first + i, found, row, i * width, width)
    add_in_float64(sums, 0, found[0])
    add_in_float64(sums, width, found[1])


@inlined
def rescale(exp2, closest, reference, scale, h, sums, products, totals):
    """Make sums of head h, and products with all heads, relative to the closest key so far in each lane."""
    old, new = load(reference, 0), load(closest, 0)
    t = (old - new) * scale.rate
    store(reference, 0, new)
    store(closest, 0, exp2(t, t, t, t, spread(scale.low), spread(scale.magic), spread(scale.negligible))[0])
    for lane in range(closest.size):
        sums[h, 0, lane] *= closest[lane]
        sums[h, 1, lane] *= closest[lane]
    for g in range(len(sums)):
        upper, lower = max(h, g), min(h, g)
        block, place = upper // 4 * (upper // 4 + 1) // 2 + lower // 4, 4 * (upper % 4) + lower % 4
        for _ in range(2 if g == h else 1):
            for lane in range(closest.size):
                products[block, place, lane] *= closest[lane]
                totals[block, place, lane] *= closest[lane]


@inlined
def scale_weights(rows, scales, first, part):
    """Multiply weights of each key, as stored by `sum_weights`, by its scale."""
    width = lanes_of(rows)
    for h in range(len(rows)):
        weights = rows[h]
        for i in range(part[0], part[1]):
            store(weights, i * width, load(weights, i * width) * repeat(scales, first + i))


@inlined
def add_lane_products(rows, begin, stride, end, products):
    """Add products of rows h and g, from begin to end, lane by lane to products for g ≤ h.

    Products are (block of four by four heads, 16 products, lane); rows are ``stride`` numbers apart.
    """
    block = 0
    for h in range(0, len(rows), 4):
        for g in range(0, h, 4):
            _add_block(rows, h * stride, g * stride, begin, stride, end, products[block])
            block += 1
        _add_triangle(rows, h * stride + begin, stride, end - begin, products[block])
        block += 1


@inlined
def add_products(rows, size, lane_products, products):
    """Add Σ_{i < size} rows[h, i] rows[g, i] to products[h, g] for g ≤ h, where lanes of rows hold keys."""
    add_lane_products(rows, 0, STRIDE, size, lane_products)
    block = 0
    for h in range(0, len(rows), 4):
        for g in range(0, h + 1, 4):
            for k in range(16):
                total, sums = lane_products.dtype.type(0), lane_products[block, k]
                for lane in range(sums.size):
                    total += sums[lane]
                products[h + k // 4, g + k % 4] += total
            block += 1
    lane_products[:] = 0


@inlined
def _add_block(rows, x, y, begin, n, end, s):
    # Two by four heads at a time: 8 sums share 6 reads and fit into 16 registers with their operands.
    w = lanes_of(rows)
    for k in range(0, 4, 2):
        s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = spread(rows.dtype.type(0))
        for i in range(begin, end, w):
            a, b, c, d = _load_four(rows, y + i, n)
            e, f = load(rows, x + k * n + i), load(rows, x + (k + 1) * n + i)
            s00, s01, s02, s03 = s00 + e * a, s01 + e * b, s02 + e * c, s03 + e * d
            s10, s11, s12, s13 = s10 + f * a, s11 + f * b, s12 + f * c, s13 + f * d
        _add_to_four(s, 4 * k * w, w, s00, s01, s02, s03)
        _add_to_four(s, (4 * k + 4) * w, w, s10, s11, s12, s13)


@inlined
def _add_triangle(rows, x, n, length, s):
    w = lanes_of(rows)
    s00 = s10 = s11 = s20 = s21 = s22 = s30 = s31 = s32 = s33 = spread(rows.dtype.type(0))
    for i in range(x, x + length, w):
        a, b, c, d = _load_four(rows, i, n)
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
    """Add products of lanes to their totals, and set the products to zero."""
    none = spread(lane_products.dtype.type(0))
    for place in range(0, lane_products.size, lanes_of(lane_products)):
        add_in_float64(totals, place, load(lane_products, place))
        store(lane_products, place, none)


@inlined
def set_means(sums, q, least, means):
    """Set means[q + lane, h] = sums[h, 1, lane] / sums[h, 0, lane], and sums[h, 0] to its inverse; NaN if tiny."""
    for h in range(len(sums)):
        mass, total = sums[h, 0], sums[h, 1]
        for lane in range(mass.size):
            defined = mass[lane] if mass[lane] >= least else np.nan
            total[lane] /= defined
            mass[lane] = 1 / defined
        for lane in range(min(mass.size, len(means) - q)):
            means[q + lane, h] = total[lane]


@inlined
def set_grams(products, sums, q, largest, grams):
    """Set grams[q + lane, h, g] from totals of products (block, 16, lane) and sums after `set_means`."""
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
