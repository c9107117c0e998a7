"""Kernels for few queries, with keys in the lanes of vectors; and estimates from sums of weights."""

import math

import numpy as np

from simstudy.kernels.elementary import exp2_float32, exp2_float64
from simstudy.kernels.jit import inlined, kernel, spliced, writable
from simstudy.kernels.lanes import add_products
from simstudy.kernels.shifts import set_shifts
from simstudy.kernels.tiles import (
    TILE,
    copy,
    copy_scales,
    fill_closeness,
    highest_of,
    largest_of,
    lay_keys,
    padded,
    relative_sums_kept,
    weighted_sums,
)

# Index legend: r replicate, i key, q query, h and g head, k dimension of a head.

_LN_2 = math.log(2.0)


def arrays_for(
    keys: np.ndarray, values: np.ndarray, variances: np.ndarray | None, queries: np.ndarray, with_mass: bool = False
) -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return arguments of kernels in the precision of the keys, with queries (R or 1, H, p, Q), and arrays for results.

    Results are means, Gram matrices and logarithms of masses; those that are not requested are empty.
    """
    major = queries.reshape((-1, *queries.shape[-3:])).transpose(0, 2, 3, 1)
    noise = np.empty((len(keys), 0)) if variances is None else variances
    shape, n_heads = (len(keys), major.shape[3], keys.shape[1]), keys.shape[1]
    grams = np.empty((*shape, n_heads) if noise.size else (0, 0, 0, 0))
    found = np.empty(shape), grams, np.empty(shape if with_mass else (0, 0, 0))
    return [writable(each, keys.dtype) for each in (keys, values, noise, major)], found


@spliced
def _multiply(exp2, keys, values, variances, largest, points, scale, memory):
    # Compute sums of all heads at all queries, and products if there are variances.  With products, all heads of a tile
    # are laid out together, otherwise one after another, each of which fits into the cache.
    n_heads, _, n_keys = keys.shape
    y, noise, laid, rows = memory.data[0], memory.data[1], memory.laid, memory.rows
    kept = variances.size > 0
    memory.sums[:] = 0
    memory.products[:] = 0
    memory.nearest[:] = -np.inf
    for start in range(0, n_keys, TILE):
        size = min(TILE, n_keys - start)
        copy(values, start, size, y)
        copy_scales(variances, largest, start, size, noise)
        for first in range(0, n_heads, n_heads if kept else 1):
            last = n_heads if kept else first + 1
            for h in range(first, last):
                lay_keys(keys[h], start, size, memory.centres[h], scale.curvature, laid[h])
            for q in range(memory.near.shape[1]):
                for h in range(first, last):
                    if memory.near[h, q]:
                        slopes, limits, whole = memory.slopes[h], memory.limits[h], padded(size)
                        mass, total = weighted_sums(exp2, laid[h], slopes, limits, q, y, noise, whole, rows[h], kept)
                    else:
                        fill_closeness(keys[h], start, size, points[h, :, q], scale.distance, rows[h])
                        _approach(exp2, highest_of(rows[h], size), scale, memory, h, q)
                        closest = memory.nearest[h, q]
                        mass, total = relative_sums_kept(exp2, closest, scale, y, noise, size, rows[h])
                    memory.sums[q, h, 0] += mass
                    memory.sums[q, h, 1] += total
                if kept:
                    add_products(rows, padded(size), memory.lane_products, memory.products[q])


@inlined
def _approach(exp2, closeness, scale, memory, h, q):
    # Make sums of one head at one query relative to the closest key of a tile, if it is closer than all before.
    before = memory.nearest[h, q]
    if closeness > before:
        memory.nearest[h, q] = closeness
        factor = exp2(scale.rate * (before - closeness), scale.low, scale.magic)
        memory.sums[q, h, 0] *= factor
        memory.sums[q, h, 1] *= factor
        for g in range(memory.products.shape[1]):
            memory.products[q, h, g] *= factor
            memory.products[q, g, h] *= factor


@inlined
def _leave_tiny(scale, memory):
    # Return true if any head has a tiny sum of weights at a query; its weights are then relative to the nearest key.
    found = False
    for h in range(memory.near.shape[0]):
        for q in range(memory.near.shape[1]):
            if memory.near[h, q] and not memory.sums[q, h, 0] >= scale.least:
                memory.near[h, q], found = False, True
    return found


@inlined
def defined_mass(mass, scale):
    """Return the sum of the weights, NaN if no logit is finite."""
    return mass if mass >= scale.least else np.nan


@inlined
def normalise(sums, products, largest, means, grams):
    """Set means (h,) and grams (1, h, g), if any, from sums (h, 2) and products; sums[h, 0] becomes its inverse."""
    for h in range(means.size):
        mass = sums[h, 0]
        means[h] = sums[h, 1] / mass
        # The inverse is stored for later heads, as divisions are slow.
        sums[h, 0] = 1 / mass
        for g in range(h + 1 if len(grams) else 0):
            grams[0, h, g] = grams[0, g, h] = products[h, g] * largest * (sums[h, 0] * sums[g, 0])


@inlined
def log_mass(mass, near, nearest, low, point, centre, scale):
    """Return ln Σ_i exp(logit_i) from the sum of the weights of one head at a query (p,).

    ``low`` is the first limit of `set_shifts`; ``nearest`` is the closeness of the reference key, if not ``near``.
    """
    # A weight is 2^shift exp(logit), times 2^ceiling if near.
    shift = -np.float64(scale.rate) * np.float64(nearest)
    if near:
        # Multiplied exactly, as rounding of the logarithm would lose digits of differences between masses.
        mass = math.ldexp(mass, -int(scale.ceiling))
        shift = np.float64(scale.low - scale.ceiling - low)
        for k in range(point.size):
            shift += np.float64(scale.curvature) * np.float64(point[k] - centre[k]) ** 2
    return np.log(mass) - _LN_2 * shift


# One kernel for each precision, as functions as arguments of a call take longer than a small replicate.


def _moments_by(exp2):
    @kernel
    def moments(keys, values, variances, queries, scale, visible, memory, means, grams, logs):
        # means[r, q, h] = sum_i w_hi values[r, i] / W_h,  W_h = sum_i w_hi
        # grams[r, q, h, g] = sum_i w_hi w_gi variances[r, i] / (W_h W_g)
        # logs[r, q, h] = ln sum_i K_hi, W_h in units that do not depend on the keys
        n_heads, n_queries, row = keys.shape[1], queries.shape[3], memory.rows[0]
        for r in range(len(keys)):
            points = queries[r * len(queries) // len(keys)]
            largest = largest_of(variances[r])
            for h in range(n_heads):
                slopes, limits, near = memory.slopes[h], memory.limits[h], memory.near[h]
                set_shifts(keys[r, h], points[h], scale, row, memory.centres[h], slopes, limits, near)
            for _ in range(2):  # repeated if sums are tiny
                _multiply(exp2, keys[r], values[r], variances[r], largest, points, scale, memory)
                if not _leave_tiny(scale, memory):
                    break
            for q in range(n_queries):
                for h in range(n_heads):
                    sums = memory.sums[q, h]
                    sums[0] = defined_mass(sums[0], scale)
                    if logs.size:
                        near, nearest, low = memory.near[h, q], memory.nearest[h, q], memory.limits[h, 0, q]
                        logs[r, q, h] = log_mass(sums[0], near, nearest, low, points[h, :, q], memory.centres[h], scale)
                normalise(memory.sums[q], memory.products[q], largest, means[r, q], grams[r : r + 1, q])

    return moments


MOMENTS = {np.dtype("float32"): _moments_by(exp2_float32), np.dtype("float64"): _moments_by(exp2_float64)}
