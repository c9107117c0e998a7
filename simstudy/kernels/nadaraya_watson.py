"""Nadaraya–Watson heads of many replicates: estimates, and moments given the keys.

Imports NumPy and jit, and elementary, lanes, memory, shifts and tiles beside it.

The weights of head h at query q are a softmax over the keys of the logits −|k_q − k_i|²/(2b²) or k_q·k_i/b²
(Nadaraya 1964; Watson 1964; Vaswani et al. 2017).  Keys pass in tiles; sums over tiles are float64 in either
precision.
"""

from __future__ import annotations

import numpy as np

from simstudy.jit import kernel
from simstudy.kernels.elementary import (
    POWERS_32,
    POWERS_64,
    exp2_float32,
    exp2_float64,
    lowest_float32,
    lowest_float64,
)
from simstudy.kernels.lanes import (
    STRIP,
    add_lane_products,
    scale_weights,
    set_exponents,
    sum_weights,
    take_products,
    take_sums,
)
from simstudy.kernels.memory import memory_for
from simstudy.kernels.shifts import Law, aim, law_of, log_mass, nearest_score
from simstudy.kernels.tiles import (
    TILE,
    add_products,
    copy,
    copy_scales,
    fill_scores,
    lay_keys,
    padded,
    score_sums_kept,
    weighted_sums,
    weighted_sums_kept,
)

# Index legend: r replicate, i key, q query, h and g head, k dimension of a head.

_FUNCTIONS = {
    "float32": (exp2_float32, POWERS_32, lowest_float32),
    "float64": (exp2_float64, POWERS_64, lowest_float64),
}


def nw_estimates(
    projected_keys: np.ndarray, values: np.ndarray, projected_queries: np.ndarray, bandwidth: float, logits: str
) -> np.ndarray:
    """Estimate every head at every query in every replicate.

    Parameters
    ----------
    projected_keys : array (R, H, p, n), float64 or float32
        W_hᵀ X_i, feature-major; its precision is that of the computation.
    values : array (R, n)
        Y_i.
    projected_queries : array (Q, H, p) or (R, Q, H, p)
        W_hᵀ x_q: the same for all replicates, or one set for each.
    bandwidth : float
        b > 0; the softmax temperature is b².
    logits : {"distance", "dot_product"}
        −|·|²/(2b²) or (·)/b².

    Returns
    -------
    float64 array (R, Q, H)
        sum_i w_i Y_i.  NaN where it is undefined: a NaN among the keys, or no finite logit.  The bits for one
        replicate do not depend on the others.
    """
    keys, queries, law = _arguments(projected_keys, projected_queries, bandwidth, logits)
    estimates = np.empty((len(keys), queries.shape[3], keys.shape[1]))
    data = _writable(values, keys.dtype)
    _estimates(*_FUNCTIONS[keys.dtype.name], keys, data, queries, law, memory_for(keys, queries, 1), estimates)
    return estimates


def nw_moments(
    projected_keys: np.ndarray,
    values: np.ndarray,
    variances: np.ndarray,
    projected_queries: np.ndarray,
    bandwidth: float,
    logits: str,
    with_mass: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Mean and covariance of the head estimates given the keys, so that noise need not be drawn.

    Parameters
    ----------
    projected_keys, projected_queries, bandwidth, logits
        As in `nw_estimates`.
    values : array (R, n)
        m(X_i).
    variances : array (R, n)
        Var(ε_i | X_i) ≥ 0.
    with_mass : bool
        Whether the third array is wanted, which takes 12 ns for each head at each query.

    Returns
    -------
    mean : float64 array (R, Q, H)
        sum_i w_hi m(X_i).
    noise_gram : float64 array (R, Q, H, H)
        sum_i w_hi w_gi Var(ε_i | X_i), symmetric to the bit; σ² times the weight Gram where the variance is σ².
    log_mass : float64 array (R, Q, H) or None
        ln sum_i exp(logit_hi): what the softmax divides by.
        All are NaN where `nw_estimates` is.
    """
    keys, queries, law = _arguments(projected_keys, projected_queries, bandwidth, logits)
    means = np.empty((len(keys), queries.shape[3], keys.shape[1]))
    grams, logs = np.empty((*means.shape, keys.shape[1])), np.empty(means.shape if with_mass else (0, 0, 0))
    data = _writable(values, keys.dtype), _writable(variances, keys.dtype)
    memory = memory_for(keys, queries, keys.shape[1])
    _moments(*_FUNCTIONS[keys.dtype.name], keys, *data, queries, law, memory, means, grams, logs)
    return means, grams, logs if with_mass else None


def _arguments(
    projected_keys: np.ndarray, projected_queries: np.ndarray, bandwidth: float, logits: str
) -> tuple[np.ndarray, np.ndarray, Law]:
    real = projected_keys.dtype
    # Feature-major as the keys are, (R or 1, H, p, Q).
    queries = projected_queries.reshape((-1, *projected_queries.shape[-3:])).transpose(0, 2, 3, 1)
    return _writable(projected_keys, real), _writable(queries, real), law_of(logits, float(bandwidth), real)


def _writable(x: np.ndarray, real: np.dtype) -> np.ndarray:
    # Read-only or strided arrays are other types to the compiler, and would compile every kernel again.
    return np.require(x, real, ("C", "W"))


@kernel
def _estimates(exp2, powers, lowest, keys, values, queries, law, memory, estimates):
    # estimates[r, q, h] = sum_i w_i values[r, i] / sum_i w_i
    n_replicates, n_heads, n_queries = len(keys), keys.shape[1], queries.shape[3]
    in_lanes = memory.strips.size > 0
    for r in range(n_replicates):
        points = queries[r if len(queries) > 1 else 0]
        for h in range(n_heads):
            _aim(lowest, keys[r, h], points[h], law, memory, 0)
            if in_lanes:
                _sum_in_lanes(powers, keys[r, h], values[r], law, memory)
            else:
                _sum(exp2, keys[r, h], values[r], points[h], law, memory, 0, n_queries)
            for q in range(n_queries):
                sums = memory.sums[q, 0]
                again = in_lanes and not memory.near[0, q]
                if memory.near[0, q] and not sums[0] >= law.least:
                    _withdraw(lowest, keys[r, h], points[h, :, q], law, memory, 0, q)
                    again = True
                if again:
                    _sum(exp2, keys[r, h], values[r], points[h], law, memory, q, q + 1)
                estimates[r, q, h] = sums[1] / _mass(sums, memory.near[0, q])


@kernel
def _sum(exp2, keys, values, points, law, memory, first, last):
    # Sums of one head at queries first .. last - 1.
    y, zeros, row, laid = memory.data[0], memory.data[1], memory.rows[0], memory.laid[0]
    memory.sums[first:last] = 0
    for start in range(0, keys.shape[1], TILE):
        size = min(TILE, keys.shape[1] - start)
        copy(values, start, size, y)
        lay_keys(keys, start, size, memory.centres[0], law.curvature, laid)
        for q in range(first, last):
            if memory.near[0, q]:
                mass, total = weighted_sums(exp2, laid, memory.slopes[0], memory.limits[0], q, y, padded(size))
            else:
                nearest = memory.nearest[0, q]
                fill_scores(keys, start, size, points[:, q], law.distance, row)
                mass, total = score_sums_kept(exp2, nearest, law.rate, law.low, law.magic, y, zeros, size, row)
            memory.sums[q, 0, 0] += mass
            memory.sums[q, 0, 1] += total


@kernel
def _sum_in_lanes(powers, keys, values, law, memory):
    # As `_sum`, at all queries that the fast formula serves.
    y, laid, row, slopes, limits = memory.data[0], memory.laid[0], memory.strips[0], memory.slopes[0], memory.limits[0]
    lane_sums, width = memory.lane_sums, memory.lane_sums.shape[2]
    memory.sums[:] = 0
    for start in range(0, keys.shape[1], TILE):
        size = min(TILE, keys.shape[1] - start)
        copy(values, start, size, y)
        lay_keys(keys, start, size, memory.centres[0], law.curvature, laid)
        for q in range(0, len(memory.sums), width):
            for first in range(0, padded(size), STRIP):
                set_exponents(laid, slopes, q, first, STRIP, width, row)
                sum_weights(powers, limits, q, y, first, STRIP, lane_sums[0], row)
            take_sums(lane_sums, q, memory.sums)


@kernel
def _moments(exp2, powers, lowest, keys, values, variances, queries, law, memory, means, grams, logs):
    # means[r, q, h] = sum_i w_hi values[r, i] / W_h,  W_h = sum_i w_hi
    # grams[r, q, h, g] = sum_i w_hi w_gi variances[r, i] / (W_h W_g)
    # logs[r, q, h] = ln sum_i K_hi, W_h in units that do not depend on the keys
    n_replicates, n_heads, n_queries = len(keys), keys.shape[1], queries.shape[3]
    in_lanes = memory.strips.size > 0
    for r in range(n_replicates):
        points = queries[r if len(queries) > 1 else 0]
        largest = _largest(variances[r])
        for h in range(n_heads):
            _aim(lowest, keys[r, h], points[h], law, memory, h)
        if in_lanes:
            _multiply_in_lanes(powers, keys[r], values[r], variances[r], largest, law, memory)
        else:
            _multiply(exp2, keys[r], values[r], variances[r], largest, points, law, memory, 0, n_queries)
        for q in range(n_queries):
            again = False
            for h in range(n_heads):
                again = again or (in_lanes and not memory.near[h, q])
                if memory.near[h, q] and not memory.sums[q, h, 0] >= law.least:
                    _withdraw(lowest, keys[r, h], points[h, :, q], law, memory, h, q)
                    again = True
            if again:
                _multiply(exp2, keys[r], values[r], variances[r], largest, points, law, memory, q, q + 1)
            for h in range(n_heads if logs.size else 0):
                near, nearest, low = memory.near[h, q], memory.nearest[h, q], memory.limits[h, 0, q]
                mass, centre = _mass(memory.sums[q, h], near), memory.centres[h]
                logs[r, q, h] = log_mass(mass, near, nearest, low, points[h, :, q], centre, law)
            _normalise(memory.sums[q], memory.products[q], largest, memory.near[:, q], means[r, q], grams[r, q])


@kernel
def _multiply(exp2, keys, values, variances, largest, points, law, memory, first, last):
    # Sums and products of all heads at queries first .. last - 1.
    n_heads, _, n_keys = keys.shape
    y, scale, laid, rows, near = memory.data[0], memory.data[1], memory.laid, memory.rows, memory.near
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
                    slopes, limits = memory.slopes[h], memory.limits[h]
                    mass, total = weighted_sums_kept(exp2, laid[h], slopes, limits, q, y, scale, padded(size), rows[h])
                else:
                    nearest = memory.nearest[h, q]
                    fill_scores(keys[h], start, size, points[h, :, q], law.distance, rows[h])
                    mass, total = score_sums_kept(exp2, nearest, law.rate, law.low, law.magic, y, scale, size, rows[h])
                memory.sums[q, h, 0] += mass
                memory.sums[q, h, 1] += total
            add_products(rows, padded(size), memory.products[q])


@kernel
def _multiply_in_lanes(powers, keys, values, variances, largest, law, memory):
    # As `_multiply`, at all queries that the fast formula serves.
    n_heads, _, n_keys = keys.shape
    y, scale, laid, strips = memory.data[0], memory.data[1], memory.laid, memory.strips
    slopes, limits = memory.slopes, memory.limits
    lane_sums, lane_products, width = memory.lane_sums, memory.lane_products, memory.lane_sums.shape[2]
    scaled = not _constant(variances)
    memory.sums[:] = 0
    memory.products[:] = 0
    for start in range(0, n_keys, TILE):
        size = min(TILE, n_keys - start)
        copy(values, start, size, y)
        copy_scales(variances, largest, start, size, scale)
        for h in range(n_heads):
            lay_keys(keys[h], start, size, memory.centres[h], law.curvature, laid[h])
        for q in range(0, len(memory.sums), width):
            for first in range(0, padded(size), STRIP):
                for h in range(n_heads):
                    set_exponents(laid[h], slopes[h], q, first, STRIP, width, strips[h])
                    sum_weights(powers, limits[h], q, y, first, STRIP, lane_sums[h], strips[h])
                if scaled:
                    scale_weights(strips, scale, first, width)
                add_lane_products(strips, width, lane_products)
            take_sums(lane_sums, q, memory.sums)
            take_products(lane_products, q, memory.products)


@kernel
def _constant(numbers):
    same = True
    for i in range(numbers.size):
        same = same and numbers[i] == numbers[0]
    return same


@kernel
def _aim(lowest, keys, points, law, memory, h):
    near = memory.near[h]
    aim(lowest, keys, points, law, memory.rows[0], memory.centres[h], memory.slopes[h], memory.limits[h], near)
    for q in range(near.size):
        if not near[q]:
            _withdraw(lowest, keys, points[:, q], law, memory, h, q)


@kernel
def _withdraw(lowest, keys, point, law, memory, h, q):
    # From here on the careful formula serves this query.
    memory.near[h, q] = False
    memory.nearest[h, q] = nearest_score(lowest, keys, point, law.distance, memory.rows[0])


@kernel
def _mass(sums, near):
    # In the careful formula the nearest key has weight 1, unless no logit is finite.
    return sums[0] if near or sums[0] >= 0.5 else np.nan


@kernel
def _largest(variances):
    largest = variances[0]
    for i in range(variances.size):
        largest = max(largest, variances[i])
    return largest


@kernel
def _normalise(sums, products, largest, near, means, grams):
    for h in range(means.size):
        mass = _mass(sums[h], near[h])
        means[h] = sums[h, 1] / mass
        # Kept for later heads, since divisions are slow.
        sums[h, 0] = 1 / mass
        for g in range(h + 1):
            grams[h, g] = products[h, g] * largest * (sums[h, 0] * sums[g, 0])
            grams[g, h] = grams[h, g]
