"""Kernels for many queries, with queries in the lanes of vectors, and for queries that see only some of the keys."""

import numpy as np

from simstudy.kernels.few_queries import defined_mass, log_mass
from simstudy.kernels.jit import inlined, kernel, spliced
from simstudy.kernels.lanes import (
    EXP2,
    ROW,
    STEP,
    STRIP,
    add_lane_products,
    add_lanes,
    find_closest,
    hide,
    rescale,
    scale_weights,
    set_grams,
    set_means,
    sum_products,
    sum_relative_weights,
    sum_squares,
    sum_weights,
)
from simstudy.kernels.shifts import set_shifts
from simstudy.kernels.tiles import TILE, copy, copy_scales, largest_of, lay_keys, others
from simstudy.kernels.vectors import lanes, lanes_of, load, spread, store

# Index legend: r replicate, i key, q query, h and g head, k dimension of a head.

BUSY_LANES = 0.9
"""Least share of lanes with a query at which vectors of queries are faster than vectors of keys."""


def worth_while(keys: np.ndarray, queries: np.ndarray) -> bool:
    """Return true if queries (r or 1, h, k, q) fill the lanes of vectors, or have many dimensions."""
    width, (_, _, head_dim, n_queries) = lanes(keys.itemsize), queries.shape
    # Vectors of keys have no registers for sums over many dimensions: from 16 on, three queries take 0.7 of the time.
    counted = n_queries * (min(head_dim, 42) / 3 if head_dim > 4 else 1)
    return counted >= BUSY_LANES * width * -(-n_queries // width)


@spliced
def _multiply(exp2, keys, values, variances, largest, scale, visible, memory, v_first, v_last):
    # Compute sums of all heads at some vectors of queries, and products if there are variances.  If a tile of all heads
    # is large and no products are needed, each head is laid out separately and fits into the cache.
    n_heads, _, n_keys = keys.shape
    y, noise, laid, strips = memory.data[0], memory.data[1], memory.laid, memory.strips
    sums, lane_products, products = memory.lane_sums, memory.lane_products, memory.totals
    width, scaled = lanes_of(keys), others(variances, largest) > 0
    n_together = n_heads if variances.size or visible[0].size or laid.size <= _IN_CACHE else 1
    sums[v_first:v_last] = 0
    products[v_first : v_last if variances.size else v_first] = 0
    memory.references[v_first:v_last] = keys.dtype.type(-0.5 * np.finfo(keys.dtype).max)
    for start in range(0, n_keys, TILE):
        size = min(TILE, n_keys - start)
        copy(values, start, size, y)
        copy_scales(variances if scaled else variances[:0], largest, start, size, noise)
        for begin in range(0, n_heads, n_together):
            _lay(keys, start, size, scale, memory, begin, begin + n_together)
            for v in range(v_first, v_last):
                q = v * width
                for first in range(0, size, STRIP):
                    n_strip = min(STRIP, size - first)
                    part = _seen(visible, v, width, start + first, n_strip)
                    if part[0] < part[1]:
                        left = 0
                        for h in range(begin, begin + n_together):
                            if memory.near[h, q] and part[2]:
                                slopes, limits, row = memory.slopes[h], memory.limits[h], strips[h]
                                sum_weights(exp2, laid[h], slopes, limits, q, y, first, part[1], sums[v, h], row)
                            else:
                                left += 1
                        # Separately, so that the loop above keeps all it needs in registers.
                        for h in range(begin, begin + n_together if left else begin):
                            if not (memory.near[h, q] and part[2]):
                                _weigh(exp2, scale, memory, v, h, y, first, n_strip, part, visible[0], start + first)
                        if scaled:
                            scale_weights(strips, noise, first, part)
                        if variances.size:
                            add_lane_products(strips, part[0] * width, ROW * width, part[1] * width, lane_products)
                if variances.size:
                    add_lanes(lane_products, products[v])


@inlined
def _lay(keys, start, size, scale, memory, begin, end):
    for h in range(begin, end):
        lay_keys(keys[h], start, size, memory.centres[h], scale.curvature, memory.laid[h])
        for k in range(keys.shape[1] if others(memory.near[h], True) else 0):
            raw, part = memory.raw[h, 2 + k], keys[h, k, start : start + size]
            for i in range(size):
                raw[i] = _plain(part[i])


@inlined
def _weigh(exp2, scale, memory, v, h, values, first, size, part, visible, start):
    # If near, keys that pad the last strip have weight 0 without being hidden.
    begin, end, whole = part
    row, slopes, limits, sums = memory.strips[h], memory.slopes[h], memory.limits[h], memory.lane_sums[v, h]
    width, none = lanes_of(row), spread(row.dtype.type(0))
    q = v * width
    near = memory.near[h, q]
    laid, rate, zero = memory.laid[h] if near else memory.raw[h], row.dtype.type(1) if near else scale.rate, none
    if scale.distance and not near:
        sum_squares(laid, slopes, q, first, begin, end, row)
    else:
        sum_products(laid, slopes, len(slopes), q, first, begin, end, row)
    if near or not whole:
        place = start * visible.shape[1] + v * max(1, width // 8)
        hide(visible, place, begin, min(end, size), row)
    for i in range(size, end):
        store(row, i * width, spread(-np.finfo(row.dtype).max))
    if not near:
        reference, closest = memory.references[v, h], memory.closest
        if find_closest(row, begin, end, reference, closest, rate):
            rescale(exp2, closest, reference, scale, h, memory.lane_sums[v], memory.lane_products, memory.totals[v])
        zero = load(reference, 0)
    known = load(limits, q), load(limits, limits.shape[1] + q), spread(scale.negligible)
    sum_relative_weights(exp2, known, zero, rate, values, first, begin, end, sums, row)


_IN_CACHE = 1 << 16
"""Most numbers of a tile of all heads that are laid out together even without products."""


@inlined
def _seen(visible, v, width, start, size):
    # Return begin and end, in whole steps, of the keys of a strip that any lane sees, and whether all lanes see all
    # keys of it.  Flags of a vector are one word or two.
    flags, some, every = visible
    begin, end, whole = 0, size, True
    if flags.size:
        first, strip, full = v * max(1, width // 8), start // STRIP, ~flags.dtype.type(0) // flags.dtype.type(255)
        last = first + max(0, width // 8 - 1)
        whole = size == STRIP and (every[strip, first] & every[strip, last]) == full
        end = size if some[strip, first] | some[strip, last] else 0
        while begin < end and not flags[start + begin, first] | flags[start + begin, last]:
            begin += 1
        while begin < end and not flags[start + end - 1, first] | flags[start + end - 1, last]:
            end -= 1
    return begin // STEP * STEP, -(-end // STEP) * STEP, whole


@inlined
def _leave_tiny(points, scale, memory, v):
    # Return true if a head with a known shift has tiny sums of weights at a vector of queries.
    n_heads, width, found = memory.near.shape[0], memory.closest.size, False
    for h in range(n_heads):
        tiny = 0
        for mass in memory.lane_sums[v, h, 0, : points.shape[2] - v * width]:
            tiny += not mass >= scale.least
        if tiny and memory.near[h, v * width]:
            _leave(points, scale, memory, h, v * width, width)
            found = True
    return found


@inlined
def _set_logs(points, scale, memory, logs):
    width = memory.closest.size
    for q in range(points.shape[2] if len(logs) else 0):
        for h in range(points.shape[0]):
            v, lane = q // width, q % width
            mass = defined_mass(memory.lane_sums[v, h, 0, lane], scale)
            near, nearest, low = memory.near[h, q], memory.references[v, h, lane], memory.limits[h, 0, q]
            logs[0, q, h] = log_mass(mass, near, nearest, low, points[h, :, q], memory.centres[h], scale)


@inlined
def _leave(points, scale, memory, h, q, width):
    # From now on, weights at a vector of queries are relative to the nearest key.
    for lane in range(q, min(q + width, points.shape[2])):
        memory.near[h, lane], memory.limits[h, 0, lane], memory.limits[h, 1, lane] = False, scale.low, scale.magic
        for k in range(points.shape[1]):
            memory.slopes[h, k, lane] = _plain(points[h, k, lane])


@inlined
def _plain(number):
    # Return a number, or NaN without a payload: see `times_power`.
    return number if number == number else np.nan


def _moments_by(exp2):
    @kernel
    def moments(keys, values, variances, queries, scale, visible, memory, means, grams, logs):
        # means, grams and logs as in `few_queries`
        n_replicates, n_heads, n_queries, width = len(keys), keys.shape[1], queries.shape[3], lanes_of(keys)
        row, centres, near, limits = memory.rows[0], memory.centres, memory.near, memory.limits
        sums, products = memory.lane_sums, memory.totals
        for r in range(n_replicates):
            points = queries[r * len(queries) // len(keys)]
            largest = largest_of(variances[r])
            for h in range(n_heads):
                set_shifts(keys[r, h], points[h], scale, row, centres[h], memory.slopes[h], limits[h], near[h])
                for q in range(0, n_queries if others(near[h], True) else 0, width):
                    if others(near[h, q : q + width], True):
                        _leave(points, scale, memory, h, q, width)
            first, last = 0, len(sums)
            while first < last:
                _multiply(exp2, keys[r], values[r], variances[r], largest, scale, visible, memory, first, last)
                while first < len(sums) and not _leave_tiny(points, scale, memory, first):
                    first += 1
                last = min(first + 1, len(sums))
            _set_logs(points, scale, memory, logs[r : r + 1])
            for v in range(len(sums)):
                set_means(sums[v], v * width, scale.least, means[r])
                if len(grams):
                    set_grams(products[v], sums[v], v * width, largest, grams[r])

    return moments


MOMENTS = {np.dtype(name): _moments_by(exp2) for name, exp2 in EXP2.items()}
