"""Kernels for few queries: vectors hold keys, every query chooses its formula; and what sums of weights estimate."""

from __future__ import annotations

import math

import numpy as np

from simstudy.kernels.elementary import exp2_float32, exp2_float64, lowest_float32, lowest_float64
from simstudy.kernels.jit import inlined, kernel
from simstudy.kernels.memory import memory_for
from simstudy.kernels.shifts import Law, aim, nearest_score
from simstudy.kernels.tiles import (
    TILE,
    add_products,
    copy,
    copy_scales,
    fill_scores,
    largest_of,
    lay_keys,
    padded,
    score_sums_kept,
    weighted_sums,
)

# Index legend: r replicate, i key, q query, h and g head, k dimension of a head.

_LN_2 = math.log(2.0)

_FUNCTIONS = {
    np.dtype("float32"): (exp2_float32, lowest_float32),
    np.dtype("float64"): (exp2_float64, lowest_float64),
}


def moments(
    keys: np.ndarray, values: np.ndarray, variances: np.ndarray, queries: np.ndarray, law: Law, with_mass: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means (r, q, h), Gram matrices (r, q, h, g) and logarithms of masses (r, q, h), or none of either."""
    found = arrays_for(keys, variances, queries, with_mass)
    memory = memory_for(keys, queries)
    _moments(*_FUNCTIONS[keys.dtype], keys, values, variances, queries, law, memory, *found)
    return found


def arrays_for(
    keys: np.ndarray, variances: np.ndarray, queries: np.ndarray, with_mass: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return arrays for means, Gram matrices and logarithms of masses; empty ones for what is not asked for."""
    shape, n_heads = (len(keys), queries.shape[3], keys.shape[1]), keys.shape[1]
    grams = (*shape, n_heads) if variances.size else (0, 0, 0, 0)
    return np.empty(shape), np.empty(grams), np.empty(shape if with_mass else (0, 0, 0))


@kernel
def _moments(exp2, lowest, keys, values, variances, queries, law, memory, means, grams, logs):
    # means[r, q, h] = sum_i w_hi values[r, i] / W_h,  W_h = sum_i w_hi
    # grams[r, q, h, g] = sum_i w_hi w_gi variances[r, i] / (W_h W_g)
    # logs[r, q, h] = ln sum_i K_hi, W_h in units that do not depend on the keys
    n_replicates, n_heads, n_queries = len(keys), keys.shape[1], queries.shape[3]
    for r in range(n_replicates):
        points = queries[r if len(queries) > 1 else 0]
        largest = largest_of(variances[r])
        for h in range(n_heads):
            _aim(lowest, keys[r, h], points[h], law, memory, h)
        _multiply(exp2, keys[r], values[r], variances[r], largest, points, law, memory, 0, n_queries)
        for q in range(n_queries):
            failed = False
            for h in range(n_heads):
                if memory.near[h, q] and not memory.sums[q, h, 0] >= law.least:
                    _withdraw(lowest, keys[r, h], points[h, :, q], law, memory, h, q)
                    failed = True
            if failed:
                _multiply(exp2, keys[r], values[r], variances[r], largest, points, law, memory, q, q + 1)
            for h in range(n_heads if logs.size else 0):
                near, nearest, low = memory.near[h, q], memory.nearest[h, q], memory.limits[h, 0, q]
                mass, centre = mass_of(memory.sums[q, h], near), memory.centres[h]
                logs[r, q, h] = log_mass(mass, near, nearest, low, points[h, :, q], centre, law)
            normalise(memory.sums[q], memory.products[q], largest, memory.near[:, q], means[r, q], grams[r : r + 1, q])


@inlined
def _multiply(exp2, keys, values, variances, largest, points, law, memory, first, last):
    # Sums of all heads at queries first .. last - 1, and their products if there are variances.
    n_heads, _, n_keys = keys.shape
    y, scale, laid, rows, near = memory.data[0], memory.data[1], memory.laid, memory.rows, memory.near
    kept = variances.size > 0
    memory.sums[first:last] = 0
    memory.products[first:last] = 0
    for start in range(0, n_keys, TILE):
        size = min(TILE, n_keys - start)
        copy(values, start, size, y)
        copy_scales(variances, largest, start, size, scale)
        for h in range(n_heads):
            lay_keys(keys[h], start, size, memory.centres[h], law.curvature, laid[h])
        for q in range(first, last):
            for h in range(n_heads):
                if near[h, q]:
                    slopes, limits, whole = memory.slopes[h], memory.limits[h], padded(size)
                    mass, total = weighted_sums(exp2, laid[h], slopes, limits, q, y, scale, whole, rows[h], kept)
                else:
                    nearest = memory.nearest[h, q]
                    fill_scores(keys[h], start, size, points[h, :, q], law.distance, rows[h])
                    mass, total = score_sums_kept(exp2, nearest, law.rate, law.low, law.magic, y, scale, size, rows[h])
                memory.sums[q, h, 0] += mass
                memory.sums[q, h, 1] += total
            if kept:
                add_products(rows, padded(size), memory.products[q])


@inlined
def _aim(lowest, keys, points, law, memory, h):
    near = memory.near[h]
    aim(lowest, keys, points, law, memory.rows[0], memory.centres[h], memory.slopes[h], memory.limits[h], near)
    for q in range(near.size):
        if not near[q]:
            _withdraw(lowest, keys, points[:, q], law, memory, h, q)


@inlined
def _withdraw(lowest, keys, point, law, memory, h, q):
    # From here on the careful formula serves this query.
    memory.near[h, q] = False
    memory.nearest[h, q] = nearest_score(lowest, keys, point, law.distance, memory.rows[0])


@inlined
def mass_of(sums, near):
    """Return the sum of the weights sums[0], NaN if they are undefined; near: the fast formula served."""
    # In the careful formula the nearest key has weight 1, unless no logit is finite.
    return sums[0] if near or sums[0] >= 0.5 else np.nan


@inlined
def normalise(sums, products, largest, near, means, grams):
    """Set means (h,) and grams (1, h, g), if any, from sums (h, 2) and products; sums[h, 0] becomes its inverse."""
    for h in range(0 if len(grams) else means.size):
        means[h] = sums[h, 1] / mass_of(sums[h], near[h])
    for h in range(means.size if len(grams) else 0):
        mass = mass_of(sums[h], near[h])
        means[h] = sums[h, 1] / mass
        # Kept for later heads, since divisions are slow.
        sums[h, 0] = 1 / mass
        for g in range(h + 1):
            grams[0, h, g] = grams[0, g, h] = products[h, g] * largest * (sums[h, 0] * sums[g, 0])


@inlined
def log_mass(mass, near, nearest, low, point, centre, law):
    """Return ln Σ_i exp(logit_i) from the sum of the weights of either formula, the fast one if ``near``.

    ``nearest`` is the lowest score, ``low`` the first limit that `aim` sets; of one head at a query (p,).
    """
    # A weight is 2^shift exp(logit), and in the fast formula 2^ceiling times that.
    shift = np.float64(law.rate) * np.float64(nearest)
    if near:
        # Multiplied exactly, since the logarithm of the mass would round away what its difference from others says.
        mass = math.ldexp(mass, -int(law.ceiling))
        shift = np.float64(law.low - law.ceiling - low)
        for k in range(point.size):
            shift += np.float64(law.curvature) * np.float64(point[k] - centre[k]) ** 2
    return np.log(mass) - _LN_2 * shift
