"""Loops over one tile of keys: scores, weights and their products.

Every loop runs over keys, has no branch and is vectorised.  A tile is a row of an array.  Rows start at cache lines and
are padded to whole vectors with keys of weight 0.  They are not a power of 2 apart, as the first-level cache holds few
such rows.
"""

import numpy as np

from simstudy.kernels.jit import inlined, kernel
from simstudy.kernels.vectors import at_least, lanes_of, load, spread, store, store_four

# Index legend: i key, k dimension of a head, h and g head.

TILE = 512
STRIDE = TILE + 16
"""Distance between rows, in numbers."""
_WHOLE = 64
_FAR = -1e30


@inlined
def padded(size):
    """Return the number of keys in whole steps of the vectorised loops."""
    return (size + _WHOLE - 1) // _WHOLE * _WHOLE


@inlined
def largest_of(variances):
    """Return the largest variance, 0 if there is none."""
    largest = variances[0] if variances.size else variances.dtype.type(0)
    for i in range(variances.size if others(variances, largest) else 0):
        largest = max(largest, variances[i])
    return largest


@inlined
def others(numbers, than):
    """Return how many numbers differ from ``than``, counted in vectors."""
    found = 0
    for i in range(numbers.size):
        found += numbers[i] != than
    return found


@inlined
def highest_of(row, size):
    """Return the largest of the first ``size`` numbers of a row, or the lowest finite number; arbitrary if one is NaN.

    Numbers behind them in the row are overwritten.
    """
    # As vectors, because LLVM vectorises maxima only if NaN may be ignored.
    width, lowest = lanes_of(row), -np.finfo(row.dtype).max
    row[size : padded(size)] = lowest
    a = b = c = d = spread(lowest)
    for i in range(0, padded(size), 4 * width):
        a, b = at_least(load(row, i), a), at_least(load(row, i + width), b)
        c, d = at_least(load(row, i + 2 * width), c), at_least(load(row, i + 3 * width), d)
    store(row, TILE, at_least(at_least(a, b), at_least(c, d)))
    highest = lowest
    for i in range(TILE, TILE + width):
        highest = row[i] if row[i] > highest else highest
    return highest


@inlined
def copy(source, start, size, row):
    """Copy one tile of a row of numbers, padded with zeros."""
    # By a slice, as the sign of an index with an offset would be checked, which prevents vectorisation.
    part = source[start : start + size]
    for i in range(size):
        row[i] = part[i]
    row[size : padded(size)] = 0


@inlined
def copy_scales(variances, largest, start, size, row):
    """Set row[i] to the root of a variance relative to the largest one, so that products of weights stay in range."""
    inverse, part = 1 / largest if largest > 0 else largest * 0, variances[start : start + size]
    for i in range(part.size):
        row[i] = np.sqrt(part[i] * inverse)
    row[part.size : padded(size)] = 0


@inlined
def lay_keys(keys, start, size, centre, rate, laid):
    """Set laid[2 + k, i] = keys[k, start + i] − centre[k] and laid[0, i] = −rate Σ_k laid[2 + k, i]²."""
    offsets, whole, fours = laid[0], size - size % lanes_of(keys), len(keys) - len(keys) % 4
    offsets[:size] = 0
    for k in range(0, fours, 4):
        _lay_four(keys, k, start, whole, centre, rate, laid)
    for k in range(len(keys)):
        first, middle = whole if k < fours else 0, centre[k]
        source, row, part = keys[k, start + first : start + size], laid[2 + k, first:size], offsets[first:size]
        for i in range(row.size):
            x = source[i] - middle
            row[i] = x
            part[i] -= rate * (x * x)
        laid[2 + k, size : padded(size)] = 0
    for i in range(size, padded(size)):
        offsets[i] = _FAR


@inlined
def _lay_four(keys, k, start, size, centre, rate, laid):
    # Four dimensions of whole vectors at once; with a pass for each, most of the time was spent on offsets.
    n, row = keys.shape[1], (2 + k) * STRIDE
    c0, c1, c2, c3 = centre[k], centre[k + 1], centre[k + 2], centre[k + 3]
    for i in range(0, size, lanes_of(keys)):
        x = k * n + start + i
        x0, x1 = load(keys, x) - c0, load(keys, x + n) - c1
        x2, x3 = load(keys, x + 2 * n) - c2, load(keys, x + 3 * n) - c3
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


# Nearly all time is spent in the two loops below.  A vector of keys takes 4 products with its dimensions, 11
# operations for the power and 2 or 3 for the sums, all in registers.


@inlined
def weighted_sums(exp2, laid, slopes, limits, q, values, scales, size, row, keep):
    """Return Σ_i w_i and Σ_i w_i values_i, w_i = exp2(laid[0, i] + Σ_k slopes[k, q] laid[2 + k, i], *limits[:, q]).

    If ``keep``, row[i] is set to w_i scales_i.
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
def fill_closeness(keys, start, size, query, distance, closeness):
    """Set closeness[i] = −|query − k_i|², or query·k_i."""
    closeness[:size] = 0
    for k in range(query.size):
        x, a = keys[k, start : start + size], query[k]
        if distance:
            for i in range(size):
                closeness[i] -= (x[i] - a) * (x[i] - a)
        else:
            for i in range(size):
                closeness[i] += x[i] * a


@kernel
def set_closeness(keys, points, distance, closeness):
    """Set closeness (Q, H, n) of keys (H, p, n) at queries (Q, H, p) as `fill_closeness` does."""
    for q in range(len(points)):
        for h in range(len(keys)):
            fill_closeness(keys[h], 0, keys.shape[2], points[q, h], distance, closeness[q, h])


@inlined
def relative_sums_kept(exp2, closest, scale, values, noise, size, row):
    """Return the same as `weighted_sums` with ``keep``, for w_i = exp2(rate (row_i − closest)), row_i a closeness."""
    mass = total = values.dtype.type(0)
    for i in range(size):
        t = scale.rate * (row[i] - closest)
        w = exp2(t, scale.low, scale.magic) if t >= scale.low else (scale.low if t < scale.low else t) * 0
        mass += w
        total += w * values[i]
        row[i] = w * noise[i]
    row[size : padded(size)] = 0
    return mass, total
