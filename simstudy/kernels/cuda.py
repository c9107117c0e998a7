"""Projections and Nadaraya–Watson heads on a GPU: the functions of this package for CUDA.

The plain formula of `shifts` in two passes over the keys, at all queries: a GPU has arithmetic to spare where a CPU
profits from the fast formula.  Sums are float64 in either precision, and in an order that depends on nothing but the
number of keys.  Projected keys stay on the device; what `nw_moments` gives returns to the host.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from simstudy.kernels.elementary import exp2_float32, exp2_float64
from simstudy.kernels.jit import cuda_compiler, cuda_function, cuda_kernel
from simstudy.kernels.shifts import law_of

cuda = cuda_compiler()

# Index legend: r replicate, i key, j feature, c column of the stacked projections, q query, h and g head,
# k dimension of a head, t thread of a block; s: r, or 0 where all replicates have the same queries or projections.

THREADS = 32
"""Threads of a block, one warp: they share the keys of one sum."""
GROUP = 4
"""Heads whose products one thread keeps: 8 weights give 16 products."""
# Sizes of shared arrays must be constants, not products of them.
_PRODUCTS = GROUP * GROUP
_EXP2 = {"float32": exp2_float32, "float64": exp2_float64}


def project(keys: np.ndarray, projections: np.ndarray) -> Any:
    """Project the keys of each replicate by each head: as `kernels.project`, but the array stays on the device."""
    n_heads, n_features, head_dim = projections.shape[-3:]
    stacked = np.moveaxis(projections.reshape((-1, n_heads, n_features, head_dim)), -1, -2)
    rows = stacked.reshape(len(stacked), n_heads * head_dim, n_features)
    n_replicates, _, n_keys = keys.shape
    projected = cuda.device_array((n_replicates, n_heads * head_dim, n_keys), keys.dtype)
    _project[-(-n_replicates * n_keys // THREADS), THREADS](
        _on_device(keys, keys.dtype), _on_device(rows, keys.dtype), projected
    )
    return projected.reshape(n_replicates, n_heads, head_dim, n_keys)


def nw_estimates(
    projected_keys: Any, values: np.ndarray, projected_queries: np.ndarray, bandwidth: float, logits: str
) -> np.ndarray:
    """Estimate every head at every query in every replicate: as `kernels.nw_estimates`."""
    keys, queries, law = _arguments(projected_keys, projected_queries, bandwidth, logits)
    return _means(keys, values, queries, law)[0].copy_to_host()


def nw_moments(
    projected_keys: Any,
    values: np.ndarray,
    variances: np.ndarray,
    projected_queries: np.ndarray,
    bandwidth: float,
    logits: str,
    with_mass: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Mean and covariance of the head estimates given the keys: as `kernels.nw_moments`."""
    keys, queries, law = _arguments(projected_keys, projected_queries, bandwidth, logits)
    means, nearest, inverses = _means(keys, values, queries, law)
    n_replicates, n_queries, n_heads = means.shape
    n_groups = -(-n_heads // GROUP)
    grams = cuda.device_array((*means.shape, n_heads), np.float64)
    blocks = n_replicates * n_queries * (n_groups * (n_groups + 1) // 2)
    multiply = _multiply(np.dtype(keys.dtype).name)
    multiply[blocks, THREADS](keys, _on_device(variances, keys.dtype), queries, *law, nearest, inverses, grams)
    logs = None
    if with_mass:
        # The nearest key has weight 1, whatever its kernel is.
        with np.errstate(over="ignore"):
            logs = -np.log(inverses.copy_to_host()) - math.log(2.0) * (np.float64(law[1]) * nearest.copy_to_host())
    return means.copy_to_host(), grams.copy_to_host(), logs


def _arguments(keys: Any, queries: np.ndarray, bandwidth: float, logits: str) -> tuple[Any, Any, tuple]:
    keys = keys if hasattr(keys, "copy_to_host") else _on_device(keys, keys.dtype)
    real = np.dtype(keys.dtype)
    law = law_of(logits, float(bandwidth), real)
    queries = _on_device(queries.reshape((-1, *queries.shape[-3:])), real)
    return keys, queries, (law.distance, law.rate, law.low, law.magic, np.finfo(real).max)


def _on_device(x: np.ndarray, real: np.dtype) -> Any:
    return cuda.to_device(np.require(x, real, "C"))


def _means(keys: Any, values: np.ndarray, queries: Any, law: tuple) -> tuple[Any, Any, Any]:
    """Estimates, lowest scores and inverse sums of weights: (R, Q, H) on the device."""
    shape = keys.shape[0], queries.shape[1], keys.shape[1]
    found = tuple(cuda.device_array(shape, real) for real in (np.float64, keys.dtype, np.float64))
    means, nearest, inverses = found
    average = _average(np.dtype(keys.dtype).name)
    average[shape[0] * shape[1] * shape[2], THREADS](
        keys, _on_device(values, keys.dtype), queries, *law, means, nearest, inverses
    )
    return found


@cuda_kernel
def _project(keys, rows, projected):
    # projected[r, c, i] = sum_j rows[s, c, j] * keys[r, j, i], a thread for each key
    n_replicates, n_columns, n_keys = projected.shape
    at = cuda.grid(1)
    if at < n_replicates * n_keys:
        r, i = at // n_keys, at % n_keys
        s = r if rows.shape[0] > 1 else 0
        for c in range(n_columns):
            total = keys.dtype.type(0)
            for j in range(keys.shape[1]):
                total += rows[s, c, j] * keys[r, j, i]
            projected[r, c, i] = total


@cuda_function
def _score(keys, queries, r, q, h, i, distance):
    s = r if queries.shape[0] > 1 else 0
    total = keys.dtype.type(0)
    for k in range(keys.shape[2]):
        x, a = keys[r, h, k, i], queries[s, q, h, k]
        total += (x - a) * (x - a) if distance else -(x * a)
    return total


@cuda_function
def _add_up(sums, t):
    # sums[0] becomes the sum of all rows: so few that steps in pairs would gain nothing, in an order that is fixed.
    cuda.syncthreads()
    if t < sums.shape[1]:
        for other in range(1, THREADS):
            sums[0, t] += sums[other, t]
    cuda.syncthreads()


# A GPU kernel takes no functions as arguments, so each precision has kernels of its own around its power of 2.


@functools.cache
def _weight(precision: str) -> Any:
    exp2 = cuda_function(_EXP2[precision])

    @cuda_function
    def weight(keys, queries, r, q, h, i, distance, rate, low, magic, nearest):
        exponent = rate * (nearest - _score(keys, queries, r, q, h, i, distance))
        w = exp2(exponent, low, magic)
        return w if not exponent < low else w * 0

    return weight


@functools.cache
def _average(precision: str) -> Any:
    weight = _weight(precision)

    @cuda_kernel
    def average(keys, values, queries, distance, rate, low, magic, largest, means, nearest, inverses):
        # means[r, q, h] = sum_i w_i values[r, i] / sum_i w_i, a block of threads for each (r, q, h)
        _, n_queries, n_heads = means.shape
        t, block = cuda.threadIdx.x, cuda.blockIdx.x
        h, q, r = block % n_heads, block // n_heads % n_queries, block // (n_heads * n_queries)
        lows = cuda.shared.array(THREADS, np.float64)
        sums = cuda.shared.array((THREADS, 2), np.float64)
        lowest = largest
        for i in range(t, values.shape[1], THREADS):
            score = _score(keys, queries, r, q, h, i, distance)
            # A NaN score need not be found: it makes its own weight NaN.
            lowest = score if score < lowest else lowest
        lows[t] = lowest
        cuda.syncthreads()
        for other in range(THREADS):
            lowest = keys.dtype.type(lows[other]) if lows[other] < lowest else lowest
        mass = total = 0.0
        for i in range(t, values.shape[1], THREADS):
            w = np.float64(weight(keys, queries, r, q, h, i, distance, rate, low, magic, lowest))
            mass += w
            total += w * values[r, i]
        sums[t, 0], sums[t, 1] = mass, total
        _add_up(sums, t)
        if t == 0:
            # The nearest key has weight 1, unless no logit is finite.
            inverse = 1.0 / sums[0, 0] if sums[0, 0] >= 0.5 else np.nan
            means[r, q, h], nearest[r, q, h], inverses[r, q, h] = sums[0, 1] * inverse, lowest, inverse

    return average


@functools.cache
def _multiply(precision: str) -> Any:
    weight = _weight(precision)

    @cuda_function
    def weigh(keys, queries, r, q, first, i, distance, rate, low, magic, nearest, inverses, weights):
        # Normalised weights of the heads of a group, zero beyond the last head.
        for k in range(GROUP):
            h = first + k
            weights[k] = 0.0
            if h < nearest.shape[2]:
                w = weight(keys, queries, r, q, h, i, distance, rate, low, magic, nearest[r, q, h])
                weights[k] = w * inverses[r, q, h]

    @cuda_kernel
    def multiply(keys, variances, queries, distance, rate, low, magic, _, nearest, inverses, grams):
        # grams[r, q, h, g] = sum_i w_hi w_gi variances[r, i], sum_i w_hi = 1: a block for each (r, q, two groups)
        n_queries, n_heads = grams.shape[1], grams.shape[2]
        n_groups = (n_heads + GROUP - 1) // GROUP
        n_pairs = n_groups * (n_groups + 1) // 2
        t, block = cuda.threadIdx.x, cuda.blockIdx.x
        q, r = block // n_pairs % n_queries, block // (n_pairs * n_queries)
        upper, lower = _pair(block % n_pairs)
        x, y = cuda.local.array(GROUP, np.float64), cuda.local.array(GROUP, np.float64)
        sums = cuda.shared.array((THREADS, _PRODUCTS), np.float64)
        for k in range(_PRODUCTS):
            sums[t, k] = 0.0
        for i in range(t, variances.shape[1], THREADS):
            weigh(keys, queries, r, q, GROUP * upper, i, distance, rate, low, magic, nearest, inverses, x)
            if upper == lower:
                _add_products(x, x, variances[r, i], sums[t])
            else:
                weigh(keys, queries, r, q, GROUP * lower, i, distance, rate, low, magic, nearest, inverses, y)
                _add_products(x, y, variances[r, i], sums[t])
        _add_up(sums, t)
        if t < _PRODUCTS:
            h, g = GROUP * upper + t // GROUP, GROUP * lower + t % GROUP
            if g <= h < n_heads:
                grams[r, q, h, g] = grams[r, q, g, h] = sums[0, t]

    return multiply


@cuda_function
def _add_products(x, y, factor, sums):
    for k in range(_PRODUCTS):
        sums[k] += x[k // GROUP] * y[k % GROUP] * factor


@cuda_function
def _pair(number):
    # The pairs of groups (0, 0), (1, 0), (1, 1), (2, 0), ...
    upper = 0
    while (upper + 1) * (upper + 2) // 2 <= number:
        upper += 1
    return upper, number - upper * (upper + 1) // 2
