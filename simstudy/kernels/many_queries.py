"""Kernels for many queries: vectors hold queries, by the fast formula alone.

Queries that the fast formula does not serve are left to `few_queries`; each is told.
"""

from __future__ import annotations

import numpy as np

from simstudy.kernels.elementary import lowest_float32, lowest_float64
from simstudy.kernels.few_queries import arrays_for, log_mass
from simstudy.kernels.jit import inlined, kernel
from simstudy.kernels.lanes import (
    EXP2,
    STRIP,
    add_lane_products,
    add_lanes,
    scale_weights,
    set_grams,
    set_means,
    sum_weights,
)
from simstudy.kernels.memory import memory_for
from simstudy.kernels.shifts import Law, aim
from simstudy.kernels.tiles import TILE, copy, copy_scales, largest_of, lay_keys, padded
from simstudy.kernels.vectors import lanes, lanes_of

# Index legend: r replicate, i key, q query, h and g head, k dimension of a head.

BUSY_LANES = 0.9
"""Share of lanes with a query from which on vectors of queries are faster than vectors of keys."""


def worth_while(keys: np.ndarray, queries: np.ndarray) -> bool:
    """Return whether queries (r or 1, h, k, q) are many for the lanes of vectors."""
    width, n_queries = lanes(keys.itemsize), queries.shape[3]
    return n_queries >= BUSY_LANES * width * -(-n_queries // width)


def moments(
    keys: np.ndarray, values: np.ndarray, variances: np.ndarray, queries: np.ndarray, law: Law, with_mass: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return what `few_queries.moments` does, and which (r, q) of it are done."""
    found = *arrays_for(keys, variances, queries, with_mass), np.empty((len(keys), queries.shape[3]), np.bool_)
    _MOMENTS[keys.dtype](keys, values, variances, queries, law, memory_for(keys, queries), *found)
    return found


@inlined
def _multiply(exp2, keys, values, variances, largest, law, memory):
    # Sums of all heads at all queries, and their products if there are variances.
    n_heads, _, n_keys = keys.shape
    y, scale, laid, strips = memory.data[0], memory.data[1], memory.laid, memory.strips
    slopes, limits = memory.slopes, memory.limits
    sums, lane_products, products = memory.lane_sums, memory.lane_products, memory.totals
    width, scaled = lanes_of(keys), not _constant(variances)
    sums[:] = 0
    products[:] = 0
    for start in range(0, n_keys, TILE):
        size = min(TILE, n_keys - start)
        copy(values, start, size, y)
        if scaled:
            copy_scales(variances, largest, start, size, scale)
        for h in range(n_heads):
            lay_keys(keys[h], start, size, memory.centres[h], law.curvature, laid[h])
        for v in range(len(sums)):
            q = v * width
            for first in range(0, padded(size), STRIP):
                for h in range(n_heads):
                    sum_weights(exp2, laid[h], slopes[h], limits[h], q, y, first, STRIP, sums[v, h], strips[h])
                if scaled:
                    scale_weights(strips, scale, first)
                if variances.size:
                    add_lane_products(strips, lane_products)
            add_lanes(lane_products, products[v])


@inlined
def _constant(numbers):
    # Counted, which is done for as many numbers at once as a vector holds.
    others = 0
    for i in range(numbers.size):
        others += numbers[i] != numbers[0]
    return others == 0


# A kernel for each precision: functions among the arguments of a call cost more than a small replicate.


def _moments_by(exp2, lowest):
    @kernel
    def moments(keys, values, variances, queries, law, memory, means, grams, logs, done):
        # means, grams and logs as in `few_queries`
        n_replicates, n_heads, n_queries, width = len(keys), keys.shape[1], queries.shape[3], lanes_of(keys)
        row, centres, near, limits = memory.rows[0], memory.centres, memory.near, memory.limits
        sums, products = memory.lane_sums, memory.totals
        done[:] = True
        for r in range(n_replicates):
            points = queries[r if len(queries) > 1 else 0]
            largest = largest_of(variances[r])
            for h in range(n_heads):
                aim(lowest, keys[r, h], points[h], law, row, centres[h], memory.slopes[h], limits[h], near[h])
            _multiply(exp2, keys[r], values[r], variances[r], largest, law, memory)
            for q in range(n_queries if logs.size else 0):
                for h in range(n_heads):
                    mass = sums[q // width, h, 0, q % width]
                    logs[r, q, h] = log_mass(mass, True, 0, limits[h, 0, q], points[h, :, q], centres[h], law)
            for v in range(len(sums)):
                set_means(sums[v], v * width, law.least, near, means[r], done[r])
                if len(grams):
                    set_grams(products[v], sums[v], v * width, largest, grams[r])

    return moments


_LOWEST = {"float32": lowest_float32, "float64": lowest_float64}
_MOMENTS = {np.dtype(name): _moments_by(EXP2[name], lowest) for name, lowest in _LOWEST.items()}
