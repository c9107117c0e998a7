"""Nadaraya–Watson heads on a GPU: estimates, and products of weights.

Heads follow the plain formula of `shifts`, in two passes over the keys: the first finds the nearest, relative to which
the second weighs.  A warp of threads takes one replicate, and its lanes take keys in turn; nothing is shared between
warps.  For estimates a warp takes one head and several queries, for which each key is read once.  For products it takes
one query and two groups of heads, whose products stay in registers.  Sums over few keys are of the type of the keys,
sums of these are float64.

Sizes of arrays must be constants.  What shall lie in registers is indexed by loops of constant length, or by calls that
are written out.  Indices of inner loops are unsigned, as others would be checked for their sign at each key.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from simstudy.kernels.jit import cuda_compiler, cuda_function, cuda_kernel, cuda_simulated

cuda = cuda_compiler()

# Index legend: r replicate, i key, q query, t query of a warp, h and g head, k dimension of a head, c product.

LANES, WARPS = (8, 2) if cuda_simulated() else (32, 4)
"""Threads of a warp and warps of a block, few on the simulator, whose threads are those of Python (shuffles, which it
lacks, come with the tests)."""
THREADS = LANES * WARPS
OWN, TOGETHER = 4, 8
"""Keys of a lane that wait in registers, and queries of a warp."""
GROUPS = {"float32": 8, "float64": 4}
"""Heads of one group."""
_AT_ONCE = 64
"""Keys of a lane whose products are summed in the type of the keys."""
_MOST_REGISTERS = 168
"""Of a thread: 12 warps of a multiprocessor have so many, of 64 that it can hold.  Without the limit there are 8, and
kernels took 1.02 to 1.28 times as long (one H200, 8 heads, medians of 5)."""
# All lanes; distances between them that, one after the other, lead from every lane to every other.
_ALL, _STEPS = 0xFFFFFFFF, tuple(LANES >> k for k in range(1, LANES.bit_length()))


@functools.cache
def estimator_of(distance: bool, n_together: int) -> Any:
    """Return the kernel that estimates: a warp takes a replicate, a head and so many queries."""
    find_nearest, sum_weights = _finder(distance, n_together), _summer(distance, n_together)

    @functools.partial(cuda_kernel, max_registers=_MOST_REGISTERS)
    def estimate(means, lowest, masses, keys, values, queries, rate, largest):
        n_queries, n_heads = means.shape[1:]
        n_parts, lane, at = (n_queries + n_together - 1) // n_together, cuda.grid(1) % LANES, cuda.grid(1) // LANES
        first, h, r = at % n_parts * n_together, at // n_parts % n_heads, at // (n_parts * n_heads)
        if r >= means.shape[0]:
            return
        nearest = cuda.local.array(n_together, keys.dtype)
        mass, total = cuda.local.array(n_together, np.float64), cuda.local.array(n_together, np.float64)
        for t in range(n_together):
            nearest[t], mass[t], total[t] = largest, 0.0, 0.0
        points = queries[r if queries.shape[0] > 1 else 0]
        find_nearest(keys[r, h], points, first, h, lane, nearest)
        sum_weights(keys[r, h], points, first, h, lane, nearest, values[r], rate, mass, total)
        for t in range(n_together):
            one, other, q = _sum_of_lanes(mass[t]), _sum_of_lanes(total[t]), first + t
            if lane == 0 and q < n_queries:
                # The nearest key has weight 1, unless no logit is finite.
                lowest[r, q, h], one = (nearest[t], one) if one >= 0.5 else (np.nan, np.nan)
                means[r, q, h], masses[r, q, h] = other / one, one

    return estimate


def _finder(distance: bool, n_together: int) -> Any:
    """Return the function that finds the lowest scores of the keys."""
    score, n_scores = _scorer(distance, n_together), OWN * n_together

    @cuda_function
    def find_nearest(keys, queries, first, h, lane, nearest):
        scores = cuda.local.array(n_scores, keys.dtype)
        for start in range(0, keys.shape[1], LANES * OWN):
            score(keys, queries, first, h, start, lane, scores)
            for t in range(n_together):
                for own in range(OWN):
                    # A NaN score need not be found: it makes its own weight NaN.
                    x = scores[t * OWN + own]
                    nearest[t] = x if x < nearest[t] else nearest[t]
        for t in range(n_together):
            for step in _STEPS:
                nearest[t] = min(nearest[t], cuda.shfl_xor_sync(_ALL, nearest[t], step))

    return find_nearest


def _summer(distance: bool, n_together: int) -> Any:
    """Return the function that sums the weights of a lane's keys, and weighted values."""
    score, n_scores = _scorer(distance, n_together), OWN * n_together

    @cuda_function
    def sum_weights(keys, queries, first, h, lane, nearest, outcomes, rate, mass, total):
        # Not the bare number, which would make float64 of float32.
        scores, none = cuda.local.array(n_scores, keys.dtype), keys.dtype.type(0)
        for start in range(0, keys.shape[1], LANES * OWN):
            score(keys, queries, first, h, start, lane, scores)
            for t in range(n_together):
                one = other = none
                for own in range(OWN):
                    i = start + own * LANES + lane
                    w = math.exp2(rate * (nearest[t] - scores[t * OWN + own])) if i < outcomes.size else none
                    one += w
                    other += w * outcomes[np.uint64(min(i, outcomes.size - 1))]
                mass[t] += one
                total[t] += other

    return sum_weights


@functools.cache
def multiplier_of(distance: bool, n_group: int) -> Any:
    """Return the kernel of weight Gram matrices: a warp takes a replicate, a query and two groups of so many heads."""
    sum_products, n_products = _multiplier(distance, n_group), n_group**2
    n_kept = -(-n_products // LANES)

    @functools.partial(cuda_kernel, max_registers=_MOST_REGISTERS)
    def multiply(grams, lowest, masses, keys, variances, queries, rate):
        n_replicates, n_queries, n_heads = lowest.shape
        n_groups, lane, at = (n_heads + n_group - 1) // n_group, cuda.grid(1) % LANES, cuda.grid(1) // LANES
        n_pairs = n_groups * (n_groups + 1) // 2
        q, pair, r, a = at % n_queries, at // n_queries % n_pairs, at // (n_queries * n_pairs), 0
        if r >= n_replicates:
            return
        while pair >= n_groups - a:
            pair, a = pair - (n_groups - a), a + 1
        h0, g0, kept = a * n_group, (a + pair) * n_group, cuda.local.array(n_kept, np.float64)
        for k in range(n_kept):
            kept[k] = 0.0
        points = queries[r if queries.shape[0] > 1 else 0]
        sum_products(h0, g0, keys[r], variances[r], points, q, lowest[r, q], rate, lane, kept)
        for k in range(n_kept):
            h, g = h0 + (k * LANES + lane) // n_group, g0 + (k * LANES + lane) % n_group
            if k * LANES + lane < n_products and h <= g and g < n_heads:
                grams[r, q, h, g] = grams[r, q, g, h] = kept[k] / (masses[r, q, h] * masses[r, q, g])

    return multiply


def _multiplier(distance: bool, n_group: int) -> Any:
    """Return the function that adds the products of weights of two groups, over all keys, to what lanes keep."""
    weigh, (multiply_all, keep_all) = _weigher(distance, n_group), _products(n_group)
    n_products, n_numbers = n_group**2, 2 * n_group * OWN * THREADS

    @cuda_function
    def sum_products(h0, g0, keys, noise, queries, q, lowest, rate, lane, kept):
        # Each lane has a column of its own, weights of the first group above those of the second, if that is another.
        column = cuda.shared.array(n_numbers, keys.dtype)[cuda.threadIdx.x :]
        second, none, n_keys = n_numbers // 2 if h0 < g0 else 0, keys.dtype.type(0), noise.size
        sums = cuda.local.array(n_products, keys.dtype)
        for begin in range(0, n_keys, LANES * _AT_ONCE):
            for c in range(n_products):
                sums[c] = 0
            for start in range(begin, min(begin + LANES * _AT_ONCE, n_keys), LANES * OWN):
                weigh(keys, queries, q, h0, lowest, start, lane, rate, 0, column)
                if h0 < g0:
                    weigh(keys, queries, q, g0, lowest, start, lane, rate, second, column)
                for own in range(OWN):
                    i = start + own * LANES + lane
                    variance = noise[np.uint64(min(i, n_keys - 1))] if i < n_keys else none
                    multiply_all(variance, np.uint64(second), column[own * THREADS :], sums)
            keep_all(sums, kept, np.uint64(lane))

    return sum_products


def _weigher(distance: bool, n_group: int) -> Any:
    """Return the function that leaves the weights of a lane's keys for a group of heads in its column."""
    score = _scorer(distance, 1)

    @cuda_function
    def weigh(keys, queries, q, first, lowest, start, lane, rate, row, column):
        scores = cuda.local.array(OWN, keys.dtype)
        for h in range(first, first + n_group):
            h = min(h, keys.shape[0] - 1)
            score(keys[h], queries, q, h, start, lane, scores)
            nearest = keys.dtype.type(lowest[h])
            for own in range(OWN):
                column[row + own * THREADS] = math.exp2(rate * (nearest - scores[own]))
            row += OWN * THREADS

    return weigh


def _products(n_group: int) -> tuple[Any, Any]:
    """Return the functions that add the products of the weights at one key, and the sums of all lanes to what is kept.

    Lane j keeps the sums c with c % LANES = j.
    """
    n_heads, step, n_lanes = np.uint64(n_group), np.uint64(OWN * THREADS), np.uint64(LANES)

    @cuda_function
    def add(g, h, w, second, column, sums):
        sums[h * n_heads + g] += w * column[second + g * step]

    add_each = _unrolled(add, n_group)

    @cuda_function
    def add_all(h, variance, second, column, sums):
        add_each(h, column[h * step] * variance, second, column, sums)

    @cuda_function
    def keep(c, sums, kept, lane):
        total = _sum_of_lanes(sums[c])
        kept[c // n_lanes] += total if lane == c % n_lanes else 0.0

    return _unrolled(add_all, n_group), _unrolled(keep, n_group**2)


def _unrolled(body: Any, stop: int, start: int = 0) -> Any:
    """Return the function that calls ``body`` with each number before what it is given, without a loop."""
    if stop - start == 1:
        number = np.uint64(start)
        return cuda_function(lambda *given: body(number, *given))
    half = (start + stop) // 2
    one, other = _unrolled(body, half, start), _unrolled(body, stop, half)

    @cuda_function
    def each(*given):
        one(*given)
        other(*given)

    return each


def _scorer(distance: bool, n_together: int) -> Any:
    """Return the function that sets the scores of a lane's keys at so many queries."""

    @cuda_function
    def add(keys, at, whole, queries, points, h, scores):
        x, last = cuda.local.array(OWN, keys.dtype), np.uint64(keys.shape[1] - 1)
        for k in range(np.uint64(keys.shape[0])):
            for own in range(OWN):
                i = at + np.uint64(own) * np.uint64(LANES)
                x[own] = keys[k, i if whole else min(i, last)]
            for t in range(n_together):
                a = queries[points[t], np.uint64(h), k]
                for own in range(OWN):
                    gap = x[own] - a
                    scores[t * OWN + own] += gap * gap if distance else -(x[own] * a)

    @cuda_function
    def score(keys, queries, first, h, start, lane, scores):
        at, points = np.uint64(start + lane), cuda.local.array(n_together, np.uint64)
        for t in range(n_together):
            points[t] = min(first + t, queries.shape[0] - 1)
        for c in range(scores.size):
            scores[c] = 0
        # Twice, since one address serves all keys of a whole tile.
        if start + OWN * LANES <= keys.shape[1]:
            add(keys, at, True, queries, points, h, scores)
        else:
            add(keys, at, False, queries, points, h, scores)

    return score


@cuda_function
def _sum_of_lanes(x):
    # What all lanes of a warp have, in each of them.
    for step in _STEPS:
        x += cuda.shfl_xor_sync(_ALL, x, step)
    return x


@cuda_kernel
def average_squares(squares, means, grams, target, factor):
    """Set the average of squared errors and variances of each replicate, which a warp takes."""
    # squares[r] = average over q, h, g of factor (means[r, q, h] - m_q) (means[r, q, g] - m_q) + grams[r, q, h, g]
    r, lane, n_heads, total = cuda.grid(1) // LANES, cuda.grid(1) % LANES, means.shape[2], 0.0
    for q in range(target.size if r < squares.size else 0):
        for at in range(lane, n_heads**2, LANES):
            h, g = at // n_heads, at % n_heads
            total += factor * (means[r, q, h] - target[q]) * (means[r, q, g] - target[q]) + grams[r, q, h, g]
    total = _sum_of_lanes(total)
    if r < squares.size and lane == 0:
        squares[r] = total / (target.size * n_heads**2)
