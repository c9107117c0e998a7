"""Heads with compact kernels (1 − |u|²)_+^r of fixed bandwidth: estimates, and moments given the keys.

Weights are integer powers, without exponentials and without overflow.  Keys are processed in tiles; sums over tiles
are float64 in both precisions.
"""

import functools
from typing import Any

import numpy as np

from simstudy.kernels.few_queries import arrays_for, normalise
from simstudy.kernels.jit import device_function, inlined, kernel
from simstudy.kernels.lanes import add_products
from simstudy.kernels.memory import memory_for
from simstudy.kernels.tiles import TILE, copy, copy_scales, largest_of, padded

# Index legend: r replicate, i key, q query, h and g head, k dimension of a head.


def compact_moments(
    projected_keys: np.ndarray,
    values: np.ndarray,
    variances: np.ndarray | None,
    projected_queries: np.ndarray,
    radius: float,
    power: int,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the same as `nw_moments` for weights (1 − |k_q − k_i|²/radius²)_+^power; NaN for an empty window."""
    real = projected_keys.dtype
    inverse = real.type(1.0 / radius)  # queries are in units of the radius
    given, (means, grams, _) = arrays_for(projected_keys, values, variances, projected_queries * inverse)
    moments_by(power)(inverse, *given, memory_for(*given[3].shape[1:], real), means, grams)
    return means, None if variances is None else grams


@functools.cache
def moments_by(power: int) -> Any:
    """Return the kernel of weights with this power; one for each power, as the compiler unrolls its products."""
    raised = device_function(lambda t: t**power)

    @kernel
    def moments(inverse, keys, values, variances, queries, memory, means, grams):
        # means[r, q, h] = sum_i w_hi values[r, i] / W_h,  W_h = sum_i w_hi
        # grams[r, q, h, g] = sum_i w_hi w_gi variances[r, i] / (W_h W_g)
        n_replicates, n_heads, n_queries = len(keys), keys.shape[1], queries.shape[3]
        y, scale, rows, kept = memory.data[0], memory.data[1], memory.rows, len(grams) > 0
        for r in range(n_replicates):
            points = queries[r if len(queries) > 1 else 0]
            largest = largest_of(variances[r])
            memory.sums[:] = 0
            memory.products[:] = 0
            for start in range(0, keys.shape[3], TILE):
                size = min(TILE, keys.shape[3] - start)
                copy(values[r], start, size, y)
                copy_scales(variances[r], largest, start, size, scale)
                for h in range(n_heads):
                    _lay(keys[r, h], start, size, inverse, memory.laid[h])
                for q in range(n_queries):
                    for h in range(n_heads):
                        laid, whole = memory.laid[h], padded(size)
                        mass, total = _sums(raised, laid, points[h], q, memory.data, whole, rows[h], kept)
                        memory.sums[q, h, 0] += mass
                        memory.sums[q, h, 1] += total
                    if kept:
                        add_products(rows, padded(size), memory.lane_products, memory.products[q])
            for q in range(n_queries):
                normalise(memory.sums[q], memory.products[q], largest, means[r, q], grams[r : r + 1, q])

    return moments


@inlined
def _lay(keys, start, size, inverse, laid):
    # laid[2 + k, i] = keys[k, start + i] in units of the radius; keys that pad vectors are outside every window.
    for k in range(len(keys)):
        source, row = keys[k, start : start + size], laid[2 + k]
        for i in range(size):
            row[i] = source[i] * inverse
        for i in range(size, padded(size)):
            row[i] = np.inf


@inlined
def _earlier_squares(laid, points, q, data, size):
    # Return the row with sums of squares over all but the last two dimensions, zeros if there are no others.
    # Two rows alternate, as a loop that reads and writes the same row is not vectorised.
    found = 2
    for k in range(0, len(points) - 2, 2):
        before = data[found]
        found = 3 + k // 2 % 2
        row = data[found]
        x0, x1, a0, a1 = laid[2 + k], laid[3 + k], points[k, q], points[k + 1, q]
        for i in range(size):
            row[i] = before[i] + ((x0[i] - a0) * (x0[i] - a0) + (x1[i] - a1) * (x1[i] - a1))
    return found


@inlined
def _sums(raised, laid, points, q, data, size, row, keep):
    # Return sums of w_i and of w_i values_i; if ``keep``, set row[i] to w_i scales_i.
    earlier, values, scales = data[_earlier_squares(laid, points, q, data, size)], data[0], data[1]
    # With an odd number of dimensions, the last is a row of zeros with a query of 0.
    k = (len(points) - 1) // 2 * 2
    x0, x1, a0 = laid[2 + k], laid[3 + k], points[k, q]
    a1 = points[k + 1, q] if k + 1 < len(points) else points.dtype.type(0)
    mass = total = zero = values.dtype.type(0)
    one = values.dtype.type(1)
    for i in range(size):
        t = one - (earlier[i] + ((x0[i] - a0) * (x0[i] - a0) + (x1[i] - a1) * (x1[i] - a1)))
        # A comparison with NaN is false, so that the weight of a NaN key is NaN.
        w = raised(zero if t < zero else t)
        mass += w
        total += w * values[i]
        if keep:
            row[i] = w * scales[i]
    return mass, total
