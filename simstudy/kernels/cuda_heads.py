"""Nadaraya–Watson heads on a GPU: estimates and products of weights, where each weight is computed once.

A block of threads computes a few queries of a replicate for a group of heads, or products between two groups.  Each
thread has one query and every n-th run of keys.  It keeps the weights of a run, their sums and products for all heads
in registers.  Keys are read through shared memory.

Weights are relative to the nearest of the first keys (see `shifts`).  If a later key is so much nearer that its weight
leaves the range, the block starts again, relative to the nearest of all keys.  Sums over few keys have the type of the
keys, and sums of these are float64.

Sizes of arrays must be constants.  Arrays in registers are indexed by loops of constant length.  Indices of inner
loops are unsigned, as others would be checked for their sign at each key.
"""

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from simstudy.kernels.jit import cuda_compiler, cuda_exp2_of, cuda_function, cuda_kernel, cuda_simulated

cuda = cuda_compiler()

# Index legend: r replicate, i key, q query, h and g head, k dimension of a head, c head or sum of a block.

LANES, THREADS = (8, 16) if cuda_simulated() else (32, 128)
"""Threads of a warp and of a block; few on the simulator, which uses threads of Python."""
FIRST = 4 * LANES  # number of first keys, of which the nearest is the reference
TOGETHER = 2 if cuda_simulated() else 64  # runs of keys whose weights a thread sums in the type of the keys
LARGEST_SIDE = {"float32": 8, "float64": 4}  # most heads of a group: a thread has all products of one or two groups
_FETCHED, _HELD, _LN_2 = 8, 64, math.log(2.0)  # numbers that a thread fetches at once, most coordinates in registers
MOST = {"float32": 2.0**40, "float64": 2.0**400}  # largest sum of weights whose products do not overflow
_REGISTERS = {("float32", False): 168}  # of 255, so that 12 of 64 possible warps run on a multiprocessor


class Tiling(NamedTuple):
    """Division of the heads, queries and keys of a replicate among blocks of threads."""

    heads: tuple[tuple[int, ...], ...]  # of each kind of block: one or two groups, where the last may repeat a head
    side: int  # number of heads of a group
    queries: int  # number of queries of a block, a power of two
    keys: int  # number of keys of a run
    dims: int  # number of dimensions of a head that are in shared memory at once
    span: int  # number of keys of the runs of all threads


def tiling(n_queries: int, n_heads: int, head_dim: int, real: np.dtype[Any], between: bool) -> Tiling:
    """Return a tiling with few idle threads, by groups of heads, or by pairs of groups if ``between``."""
    n_groups = -(-n_heads // LARGEST_SIDE[real.name])
    side, queries = -(-n_heads // n_groups), min(LANES, 1 << (n_queries - 1).bit_length())
    groups = [tuple(min(h, n_heads - 1) for h in range(a * side, (a + 1) * side)) for a in range(n_groups)]
    heads = tuple(one + other for one, other in itertools.combinations(groups, 2)) if between else tuple(groups)
    keys = max(1, 16 // real.itemsize // (2 if between else 1)) if THREADS // queries <= LANES // 2 else 1
    room = _FETCHED * queries // (side * keys * (2 if between else 1))
    return Tiling(heads, side, queries, keys, min(head_dim, max(room, 1)), THREADS // queries * keys)


def sums_of(side: int, products: bool, between: bool) -> np.ndarray:
    """Return (head, head, kind) of each sum of a block; kind 0: weights, 1: weighted values, 2: products."""
    pairs = [(h, g, 2) for h in range(side) for g in (range(side, 2 * side) if between else range(h, side))]
    alone = [(h, h, kind) for kind in range(2) for h in range(side)]
    return np.array(pairs if between else alone + pairs if products else alone, np.int32)


@functools.cache
def heads_of(real: str, distance: bool, head_dim: int, tiling: Tiling, products: bool, between: bool) -> Any:
    """Return the kernel of a group of heads, with or without products; or of products of two groups if ``between``."""
    heads, side, n_lanes, n_run, dims, span = tiling
    n, n_kinds = len(heads[0]), len(heads)
    n_sums = len(sums_of(side, products, between))
    n_rows, n_shared, n_scores = n * dims, max((n * dims + 2) * span, n_sums * THREADS), n * n_run
    held = n * head_dim <= _HELD
    n_held = n * head_dim * held or 1
    add_scores, adders = _scorer(distance, head_dim, tiling, n, held), _adders(tiling, n_sums, products, between)
    prepare, find_nearest = _preparer(head_dim, tiling, n, n_sums, held), _finder(add_scores, tiling, n)
    sum_keys = _summer(add_scores, cuda_exp2_of(real), *adders, tiling, n)
    note, finish = _results(tiling, products, between)

    @functools.partial(cuda_kernel, max_registers=_REGISTERS.get((real, between), 255))
    def compute(means, lowest, masses, logs, grams, sums, table, keys, values, variances, queries, rate, largest, most):
        n_queries, n_keys, of_block = means.shape[1], values.shape[1], sums[cuda.blockIdx.x]
        n_parts = (n_queries + n_lanes - 1) // n_lanes
        r, kind = cuda.blockIdx.x // (n_parts * n_kinds), cuda.blockIdx.x // n_parts % n_kinds
        first, members = cuda.blockIdx.x % n_parts * n_lanes, table[kind]
        q, known = min(first + cuda.threadIdx.x % n_lanes, n_queries - 1), min(n_keys, FIRST)
        shared, of_thread = cuda.shared.array(n_shared, keys.dtype, alignment=16), cuda.local.array(n_sums, keys.dtype)
        rows, point = cuda.shared.array(n_rows, np.uint32), cuda.local.array(n_held, keys.dtype)
        scores, nearest = cuda.local.array(n_scores, keys.dtype), cuda.local.array(n, keys.dtype)
        points = queries[r if queries.shape[0] > 1 else 0]
        data, memory = (keys[r], values[r], variances[r], rows, points, q), (shared, scores, of_thread, of_block)
        prepare(points, q, members, rows, point, of_thread)
        while True:
            if between:
                for c in range(n):
                    nearest[c] = lowest[r, q, members[c]]
            else:
                find_nearest(data, point, known, largest, shared, scores, nearest)
            sum_keys(data, point, rate, nearest, *memory)
            far = 0
            for h in range(side):
                far += not of_block[h, cuda.threadIdx.x % n_lanes] <= most
            if between or known == n_keys or not cuda.syncthreads_or(np.int32(far)):
                break
            known = n_keys
        if not between:
            note(of_block, members, first, nearest, rate, lowest[r], masses[r], logs[r])
        cuda.syncthreads()
        finish(of_block, members, first, means[r], masses[r], grams[r])

    return compute


def _preparer(head_dim: int, tiling: Tiling, n: int, n_sums: int, held: bool) -> Any:
    """Return the function that sets the rows of keys (head, dimension) of a block, and loads a query."""
    dims = tiling.dims

    @cuda_function
    def prepare(points, q, members, rows, point, of_thread):
        for c in range(n_sums):
            of_thread[c] = 0
        for at in range(cuda.threadIdx.x, n * dims, THREADS):
            rows[at] = members[at // dims] * np.uint64(head_dim) + np.uint64(at % dims)
        if held:
            for c in range(n * head_dim):
                point[c] = points[members[c // head_dim] * np.uint64(head_dim) + np.uint64(c % head_dim), q]

    return prepare


def _scorer(distance: bool, head_dim: int, tiling: Tiling, n: int, held: bool) -> Any:
    """Return the function that adds the scores (head of the block, key) for the run of keys of a thread.

    Afterwards shared memory has the keys of all threads, then their values and noise variances.
    """
    n_lanes, n_run, dims, span = tiling[2:]
    n_numbers = n * dims * span

    @cuda_function
    def add_scores(data, point, start, shared, scores):
        keys, values, variances, rows, points, q = data
        run_start, thread = np.uint64(cuda.threadIdx.x // n_lanes * n_run), np.uint64(cuda.threadIdx.x)
        n_keys, last = np.uint64(np.uint32(values.size)), np.uint64(values.size - 1)
        i = min(np.uint64(start) + thread % np.uint64(span), last)
        for k0 in range(0, head_dim, dims):
            cuda.syncthreads()
            for e in range(0, n_numbers, THREADS):
                to = np.uint64(e) + thread
                if n_numbers % THREADS == 0 or to < np.uint64(n_numbers):
                    begin = np.uint64(rows[to // np.uint64(span)]) * n_keys + i
                    if dims < head_dim:
                        begin = min(begin + np.uint64(k0) * n_keys, np.uint64(keys.size - 1))
                    shared[to] = keys[begin]
            if thread < np.uint64(span):
                shared[np.uint64(n_numbers) + thread] = values[i]
                shared[np.uint64(n_numbers + span) + thread] = variances[i]
            cuda.syncthreads()
            for c in range(n):
                row = np.uint64(rows[c * dims]) + np.uint64(k0)
                for k in range(dims if dims == head_dim else min(dims, head_dim - k0)):
                    x = point[c * head_dim + k0 + k] if held else points[row + np.uint64(k), q]
                    at = np.uint64((c * dims + k) * span) + run_start
                    for j in range(n_run):
                        gap = shared[at + np.uint64(j)] - x
                        scores[c * n_run + j] += gap * gap if distance else -(shared[at + np.uint64(j)] * x)

    return add_scores


def _finder(add_scores: Any, tiling: Tiling, n: int) -> Any:
    """Return the function that finds the lowest scores of the first keys."""
    n_lanes, n_run, span = tiling.queries, tiling.keys, tiling.span

    @cuda_function
    def find_nearest(data, point, known, largest, shared, scores, nearest):
        for c in range(n):
            nearest[c] = largest
        for start in range(0, known, span):
            for c in range(n * n_run):
                scores[c] = 0
            add_scores(data, point, start, shared, scores)
            for c in range(n * n_run):
                # A NaN score may be missed here, as it makes its weight NaN.
                nearest[c // n_run] = scores[c] if scores[c] < nearest[c // n_run] else nearest[c // n_run]
        cuda.syncthreads()
        for c in range(n):
            shared[c * THREADS + cuda.threadIdx.x] = nearest[c]
        cuda.syncthreads()
        for c in range(n):
            for k in range(cuda.threadIdx.x % n_lanes, THREADS, n_lanes):
                nearest[c] = min(nearest[c], shared[c * THREADS + k])

    return find_nearest


def _summer(add_scores: Any, exp2: Any, add: Any, keep: Any, tiling: Tiling, n: int) -> Any:
    """Return the function that computes weights of all keys, and adds weights, weighted values and products."""
    n_run, n_lanes, span, n_numbers = tiling.keys, tiling.queries, tiling.span, n * tiling.dims * tiling.span

    @cuda_function
    def sum_keys(data, point, rate, nearest, shared, scores, of_thread, of_block):
        run_start, n_keys = np.uint64(cuda.threadIdx.x // n_lanes * n_run), data[1].size
        for start in range(0, n_keys, span):
            for c in range(n * n_run):
                scores[c] = 0
            add_scores(data, point, start, shared, scores)
            for c in range(n * n_run):
                scores[c] = exp2(-rate * (scores[c] - nearest[c // n_run]))
            if start + span > n_keys:
                for c in range(n * n_run):
                    if start + run_start + c % n_run >= n_keys:
                        scores[c] = 0
            for j in range(n_run):
                at = np.uint64(n_numbers) + run_start + np.uint64(j)
                add(j, shared[at], shared[at + np.uint64(span)], scores, of_thread)
            if start // span % TOGETHER == TOGETHER - 1 or start + span >= n_keys:
                keep(of_thread, shared, start < TOGETHER * span, of_block)

    return sum_keys


def _adders(tiling: Tiling, n_sums: int, products: bool, between: bool) -> tuple[Any, Any]:
    """Return functions that add weights, values and products of a key, and that add sums of threads to a block."""
    side, n_run, n_lanes, stop = tiling.side, tiling.keys, tiling.queries, len(tiling.heads[0])

    @cuda_function
    def add(j, y, v, scores, of_thread):
        for h in range(side):
            w, c = scores[h * n_run + j], (h - 1) * side if between else (2 + h) * side - h * (h + 1) // 2
            if not between:
                of_thread[h] += w
                of_thread[side + h] += w * y
            if products:
                w *= v
                for g in range(side if between else h, stop):
                    of_thread[c + g] += w * scores[g * n_run + j]

    @cuda_function
    def keep(of_thread, shared, begins, sums):
        cuda.syncthreads()
        for c in range(n_sums):
            shared[c * THREADS + cuda.threadIdx.x] = of_thread[c]
            of_thread[c] = 0
        cuda.syncthreads()
        for at in range(cuda.threadIdx.x, n_sums * n_lanes, THREADS):
            c, lane, total = at // n_lanes, at % n_lanes, 0.0
            for k in range(lane, THREADS, n_lanes):
                total += shared[c * THREADS + k]
            sums[c, lane] = total if begins else sums[c, lane] + total
        cuda.syncthreads()

    return add, keep


def _results(tiling: Tiling, products: bool, between: bool) -> tuple[Any, Any]:
    """Return functions that store sums of weights with their references, and that turn all sums into results."""
    table, n_lanes, side = sums_of(tiling.side, products, between), tiling.queries, tiling.side
    n_sums = len(table)

    @cuda_function
    def note(sums, members, first, nearest, rate, lowest, masses, logs):
        q = first + cuda.threadIdx.x
        if cuda.threadIdx.x < n_lanes and q < masses.shape[0]:
            for h in range(side):
                mass = sums[h, cuda.threadIdx.x]
                # The reference has weight 1, unless no logit is finite.
                if not mass >= 0.5:
                    mass = nearest[h] = math.nan
                lowest[q, members[h]], masses[q, members[h]] = nearest[h], mass
                logs[q, members[h]] = math.log(mass) - _LN_2 * rate * nearest[h]

    @cuda_function
    def finish(sums, members, first, means, masses, grams):
        kinds = cuda.const.array_like(table)
        for at in range(cuda.threadIdx.x, n_sums * n_lanes, THREADS):
            c, lane = at // n_lanes, at % n_lanes
            h, g, q = members[kinds[c, 0]], members[kinds[c, 1]], first + lane
            if q < means.shape[0] and kinds[c, 2] == 1:
                means[q, h] = sums[c, lane] / masses[q, h]
            elif q < means.shape[0] and kinds[c, 2] == 2:
                grams[q, h, g] = grams[q, g, h] = sums[c, lane] / (masses[q, h] * masses[q, g])

    return note, finish
