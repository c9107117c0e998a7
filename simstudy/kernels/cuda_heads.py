"""Nadaraya–Watson heads on a GPU: estimates, and products of weights.

Heads follow the plain formula of `shifts`, in two passes over the keys: the first finds the nearest, relative to which
the second weighs.  For estimates a warp of threads takes one head of a replicate and several queries, for which each
key is read once; its lanes take keys in turn.  For products a block takes some queries and two groups of heads.  Its
warps leave the weights of a tile of keys in shared memory; then each thread multiplies those of two runs of heads, for
products that stay in registers.  Sums over few keys are of the type of the keys, sums of these are float64.

Sizes of arrays must be constants.  What shall lie in registers is indexed by loops of constant length, or by calls that
are written out.  Indices of inner loops are unsigned, as others would be checked for their sign at each key.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

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
LARGEST_SIDE = {"float32": 8, "float64": 4}
"""Heads whose weights a thread multiplies with those of as many."""
_SHARED = 2
"""Keys of a lane whose weights a block of threads shares."""
TILE = _SHARED * LANES
_AT_ONCE = 4 * TILE
"""Keys whose products are summed in the type of the keys."""
_ESTIMATING, _MULTIPLYING = 168, 128
"""Registers of a thread at most: 12 or 16 warps of a multiprocessor have so many, of 64 that it can hold.  Estimates
without the limit took 1.02 to 1.28 times as long (one H200, 8 heads, medians of 5), products with 168 took 0.98 to 1.2
times as long (one H100, medians of 7)."""
# All lanes; distances between them that, one after the other, lead from every lane to every other.
_ALL, _STEPS = 0xFFFFFFFF, tuple(LANES >> k for k in range(1, LANES.bit_length()))


@functools.cache
def estimator_of(distance: bool, n_together: int) -> Any:
    """Return the kernel that estimates: a warp takes a replicate, a head and so many queries."""
    find_nearest, sum_weights = _finder(distance, n_together), _summer(distance, n_together)

    @functools.partial(cuda_kernel, max_registers=_ESTIMATING)
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


class Tiling(NamedTuple):
    """How a block of threads multiplies weights: each thread those of two runs of heads at one query."""

    side: int  # heads of a run; a thread has side² products
    runs: int  # of one group of heads
    groups: int  # of all heads: a block takes two, or one twice
    queries: int  # that a block takes at once

    @property
    def heads(self) -> int:
        """Of one group."""
        return self.side * self.runs

    @property
    def columns(self) -> int:
        """Weights of one key that a block shares."""
        return self.heads * self.queries * min(2, self.groups)

    def blocks(self, n_queries: int) -> int:
        """Return the number of blocks for one replicate."""
        return -(-n_queries // self.queries) * self.groups * (self.groups + 1) // 2


def tiling(n_queries: int, n_heads: int, real: np.dtype[Any]) -> Tiling:
    """Return the tiling by which most threads have products, and read each weight seldom."""
    largest = LARGEST_SIDE[real.name]
    n_runs = -(-n_heads // largest)
    groups = -(-n_runs // math.isqrt(THREADS // 2))
    runs = -(-n_runs // groups)
    side = -(-n_heads // (groups * runs))
    most = min(n_queries, THREADS // runs**2, 16 * largest // (runs * side)) if groups == 1 else 1
    return Tiling(side, runs, groups, max(1, most))


@functools.cache
def multiplier_of(distance: bool, tiling: Tiling) -> Any:
    """Return the kernel of weight Gram matrices: a block takes a replicate, some queries and two groups of heads."""
    n_group, n_groups, n_together, n_products = tiling.heads, tiling.groups, tiling.queries, tiling.side**2
    weigh, multiply_keys, keep = _weigher(distance, tiling), _multiplier(tiling), _keeper(tiling)
    n_pairs, n_numbers = n_groups * (n_groups + 1) // 2, max((tiling.columns + 1) * TILE, n_products * THREADS)

    @functools.partial(cuda_kernel, max_registers=_MULTIPLYING)
    def multiply(grams, lowest, masses, keys, variances, queries, rate):
        n_keys, n_parts = variances.shape[1], (lowest.shape[1] + n_together - 1) // n_together
        at, a = cuda.blockIdx.x, 0
        part, pair, r = at % n_parts, at // n_parts % n_pairs, at // (n_parts * n_pairs)
        while pair >= n_groups - a:
            pair, a = pair - (n_groups - a), a + 1
        first, h0, g0 = part * n_together, a * n_group, (a + pair) * n_group
        shared, sums = cuda.shared.array(n_numbers, keys.dtype), cuda.local.array(n_products, keys.dtype)
        points = queries[r if queries.shape[0] > 1 else 0]
        for begin in range(0, n_keys, _AT_ONCE):
            end = min(begin + _AT_ONCE, n_keys)
            for c in range(n_products):
                sums[c] = 0
            for start in range(begin, end, TILE):
                weigh(keys[r], points, first, h0, g0, start, lowest[r], rate, shared)
                cuda.syncthreads()
                multiply_keys(start, variances[r], h0 < g0, shared, sums)
                cuda.syncthreads()
            keep(sums, shared, first, h0, g0, begin == 0, end == n_keys, masses[r], grams[r])

    return multiply


def _weigher(distance: bool, tiling: Tiling) -> Any:
    """Return the function that leaves the weights of the keys of a tile in shared memory: (key, head, query)."""
    n_group, n_together, row = tiling.heads, tiling.queries, tiling.columns + 1
    n_at_once = min(n_together, 4)
    score, n_scores = _scorer(distance, n_at_once, _SHARED), _SHARED * n_at_once

    @cuda_function
    def weigh(keys, queries, first, h0, g0, start, lowest, rate, weights):
        lane, warp = cuda.threadIdx.x % LANES, cuda.threadIdx.x // LANES
        scores = cuda.local.array(n_scores, keys.dtype)
        for column in range(warp, 2 * n_group if h0 < g0 else n_group, WARPS):
            h = min(h0 + column if column < n_group else g0 + column - n_group, keys.shape[0] - 1)
            for begin in range(0, n_together, n_at_once):
                score(keys[h], queries, first + begin, h, start, lane, scores)
                for t in range(n_at_once):
                    nearest = keys.dtype.type(lowest[min(first + begin + t, lowest.shape[0] - 1), h])
                    at = np.uint64(lane * row + column * n_together + begin + t)
                    for own in range(_SHARED):
                        w = math.exp2(rate * (nearest - scores[t * _SHARED + own]))
                        if begin + t < n_together:
                            weights[at + np.uint64(own * LANES * row)] = w

    return weigh


def _multiplier(tiling: Tiling) -> Any:
    """Return the function that adds the products at the keys that a thread takes of a tile."""
    side, n_together, n_tiles = tiling.side, tiling.queries, tiling.queries * tiling.runs**2
    n_slices, row, step = THREADS // n_tiles, tiling.columns + 1, np.uint64(tiling.runs * tiling.queries)
    other_group = tiling.heads * tiling.queries

    @cuda_function
    def multiply_keys(start, noise, apart, weights, sums):
        tile, begin, n_keys = cuda.threadIdx.x % n_tiles, cuda.threadIdx.x // n_tiles, min(TILE, noise.size - start)
        first, second = tile % step, tile // step * n_together + tile % n_together + (other_group if apart else 0)
        x, y = cuda.local.array(side, weights.dtype), cuda.local.array(side, weights.dtype)
        for k in range(begin, n_keys if begin < n_slices else 0, n_slices):
            variance, one, other = noise[np.uint64(start + k)], np.uint64(k * row + first), np.uint64(k * row + second)
            for a in range(side):
                x[a] = weights[one + np.uint64(a) * step] * variance
                y[a] = weights[other + np.uint64(a) * step]
            for a in range(side):
                for c in range(side):
                    sums[a * side + c] += x[a] * y[c]

    return multiply_keys


def _keeper(tiling: Tiling) -> Any:
    """Return the function that adds the sums of all threads to Gram matrices."""
    side, n_runs, n_together = tiling.side, tiling.runs, tiling.queries
    n_tiles = n_together * n_runs**2
    n_slices = THREADS // n_tiles

    @cuda_function
    def keep(sums, shared, first, h0, g0, begins, ends, masses, grams):
        for c in range(side**2):
            shared[c * THREADS + cuda.threadIdx.x] = sums[c]
        cuda.syncthreads()
        for at in range(cuda.threadIdx.x, side**2 * n_tiles, THREADS):
            tile, c, total = at % n_tiles, at // n_tiles, 0.0
            for k in range(n_slices):
                total += shared[c * THREADS + k * n_tiles + tile]
            q, i, j = first + tile % n_together, tile // n_together % n_runs, tile // (n_together * n_runs)
            h, g = h0 + i + c // side * n_runs, g0 + j + c % side * n_runs
            if q < masses.shape[0] and h <= g and g < masses.shape[1]:
                total = total if begins else grams[q, h, g] + total
                total = total / (masses[q, h] * masses[q, g]) if ends else total
                grams[q, h, g] = grams[q, g, h] = total
        cuda.syncthreads()

    return keep


def _scorer(distance: bool, n_together: int, n_own: int = OWN) -> Any:
    """Return the function that sets the scores of a lane's keys at so many queries."""

    @cuda_function
    def add(keys, at, whole, queries, points, h, scores):
        x, last = cuda.local.array(n_own, keys.dtype), np.uint64(keys.shape[1] - 1)
        for k in range(np.uint64(keys.shape[0])):
            for own in range(n_own):
                i = at + np.uint64(own) * np.uint64(LANES)
                x[own] = keys[k, i if whole else min(i, last)]
            for t in range(n_together):
                a = queries[points[t], np.uint64(h), k]
                for own in range(n_own):
                    gap = x[own] - a
                    scores[t * n_own + own] += gap * gap if distance else -(x[own] * a)

    @cuda_function
    def score(keys, queries, first, h, start, lane, scores):
        at, points = np.uint64(start + lane), cuda.local.array(n_together, np.uint64)
        for t in range(n_together):
            points[t] = min(first + t, queries.shape[0] - 1)
        for c in range(scores.size):
            scores[c] = 0
        # Twice, since one address serves all keys of a whole tile.
        if start + n_own * LANES <= keys.shape[1]:
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
def sum_squares(squares, means, grams, target, factor):
    """Set the sum over pairs of heads of squared errors and variances at each query, which a warp takes."""
    # squares[r, q] = sum over h, g of factor (means[r, q, h] - m_q) (means[r, q, g] - m_q) + grams[r, q, h, g]
    lane, at, (n_replicates, n_queries, n_heads), total = cuda.grid(1) % LANES, cuda.grid(1) // LANES, means.shape, 0.0
    q, r = at % n_queries, at // n_queries
    for c in range(lane, n_heads**2 if r < n_replicates else 0, LANES):
        h, g = c // n_heads, c % n_heads
        total += factor * (means[r, q, h] - target[q]) * (means[r, q, g] - target[q]) + grams[r, q, h, g]
    total = _sum_of_lanes(total)
    if r < n_replicates and lane == 0:
        squares[r, q] = total


@cuda_kernel
def average(averages, numbers, divisor):
    """Set the sum of each row over a divisor."""
    r, total = cuda.grid(1), 0.0
    if r < averages.size:
        for k in range(numbers.shape[1]):
            total += numbers[r, k]
        averages[r] = total / divisor
