"""Loops over one tile of keys: scores, weights and their products.

Imports jit and elementary.

Every loop runs over keys, has no branch and is vectorised.
"""

from __future__ import annotations

from simstudy.jit import device_function, kernel
from simstudy.kernels.elementary import inlined

# Index legend: i key, k dimension of a head, h and g head.


@device_function
def square(x, a):
    """Term of the distance scores |x − a|²."""
    return (x - a) * (x - a)


@device_function
def minus_product(x, a):
    """Term of the dot-product scores −x·a."""
    return -x * a


@inlined
def fill_scores(term, keys, start, query, scores):
    """Set scores[i] = sum_k term(keys[k, start + i], query[k]), four dimensions at a pass."""
    head_dim = query.size
    k = head_dim % 4
    if k == 0:
        _fill_four(term, keys, start, query, scores)
        k = 4
    else:
        _fill_few(term, keys, start, query, k, scores)
    while k < head_dim:
        _add_four(term, keys, start, query, k, scores)
        k += 4


@inlined
def _fill_four(term, keys, start, query, scores):
    stop = start + scores.size
    x0, x1, x2, x3 = keys[0, start:stop], keys[1, start:stop], keys[2, start:stop], keys[3, start:stop]
    a0, a1, a2, a3 = query[0], query[1], query[2], query[3]
    for i in range(scores.size):
        scores[i] = (term(x0[i], a0) + term(x1[i], a1)) + (term(x2[i], a2) + term(x3[i], a3))


@inlined
def _fill_few(term, keys, start, query, count, scores):
    for i in range(scores.size):
        scores[i] = 0
    for k in range(count):
        x, a = keys[k, start : start + scores.size], query[k]
        for i in range(scores.size):
            scores[i] += term(x[i], a)


@inlined
def _add_four(term, keys, start, query, k, scores):
    stop = start + scores.size
    x0, x1 = keys[k, start:stop], keys[k + 1, start:stop]
    x2, x3 = keys[k + 2, start:stop], keys[k + 3, start:stop]
    a0, a1, a2, a3 = query[k], query[k + 1], query[k + 2], query[k + 3]
    for i in range(scores.size):
        scores[i] += (term(x0[i], a0) + term(x1[i], a1)) + (term(x2[i], a2) + term(x3[i], a3))


@inlined
def weighted_sums(exp2, scores, lowest, rate, values):
    """Return sum_i w_i and sum_i w_i values_i, with w_i = 2^(rate (lowest − scores_i))."""
    mass = total = values.dtype.type(0)
    for i in range(scores.size):
        w = exp2(rate * (lowest - scores[i]))
        mass += w
        total += w * values[i]
    return mass, total


@inlined
def weighted_sums_kept(exp2, scores, lowest, rate, values, scales):
    """As `weighted_sums`, and leave w_i scales_i in the place of the scores."""
    mass = total = values.dtype.type(0)
    for i in range(scores.size):
        w = exp2(rate * (lowest - scores[i]))
        mass += w
        total += w * values[i]
        scores[i] = w * scales[i]
    return mass, total


@kernel
def pair_products(rows, size, products):
    """Set products[h, g] = sum_{i < size} rows[h, i] rows[g, i] on the 2 × 2 blocks on and below the diagonal."""
    for h in range(0, len(rows), 2):
        for g in range(0, h + 1, 2):
            x0, x1, y0, y1 = rows[h, :size], rows[h + 1, :size], rows[g, :size], rows[g + 1, :size]
            _block_products(x0, x1, y0, y1, h, g, products)


@inlined
def _block_products(x0, x1, y0, y1, h, g, products):
    # Four sums share four reads; wider blocks were no faster, and wasted more of the diagonal.
    s00 = s01 = s10 = s11 = x0.dtype.type(0)
    for i in range(x0.size):
        s00 += x0[i] * y0[i]
        s01 += x0[i] * y1[i]
        s10 += x1[i] * y0[i]
        s11 += x1[i] * y1[i]
    products[h, g], products[h, g + 1], products[h + 1, g], products[h + 1, g + 1] = s00, s01, s10, s11
