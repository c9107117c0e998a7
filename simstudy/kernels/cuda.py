"""What a GPU computes of a replicate: random numbers, functions of keys, Nadaraya–Watson heads, sums over replicates.

Arrays stay there until something on the host asks for them.  The order of all sums depends on nothing but the number
of keys, heads or replicates.
Heads follow the plain formula of `shifts`, in one pass.  A block of threads takes the keys by tiles for one query of a
replicate.  Each warp weighs them for heads of its own, relative to the nearest key so far, and leaves the weights in
shared memory; then it multiplies those of one head with its own and with those of the heads that follow, half a turn in
all.  Sums over a tile are of the type of the keys, in registers, and meet by shuffles; sums over tiles are float64.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from simstudy.kernels.devices import is_there, on_device, stream, to_host
from simstudy.kernels.jit import cuda_compiler, cuda_function, cuda_kernel, cuda_simulated
from simstudy.kernels.philox import HALF_WORD, MASK, philox
from simstudy.kernels.shifts import law_of

cuda = cuda_compiler()

# Index legend: r replicate, i key or row, j feature or column of a block, c column of the stacked projections, q query,
# h and g head, k dimension of a head or number, a wave, b block; s: r, or 0 where all replicates have the same.

LANES, WARPS, OWN_BYTES, TILE_BYTES = (*((8, 2) if cuda_simulated() else (32, 16)), 16, 40 << 10)
"""Threads of a warp and warps of a block, few on the simulator, whose threads are those of Python (shuffles, which it
lacks, come with the tests); bytes of the weights of a tile that a lane makes for one head, and a block for all at most.
"""
# All lanes; distances between them that, one after the other, lead from every lane to every other.
_ALL, _STEPS = 0xFFFFFFFF, tuple(LANES >> k for k in range(1, LANES.bit_length()))
_THREADS, _ROLE_SHIFT, _LN_2 = LANES * WARPS // 2, np.uint64(24), math.log(2.0)


def fill(transform: Any, shape: tuple[int, ...], real: Any, *address: np.uint64) -> Any:
    """Return an array (replicate, column, row) of what ``transform`` makes of pairs of words; see `data.addresses`."""
    return _made(_filler(transform), shape, real, shape[0] * -(-shape[1] // 4) * shape[2], *address)


def project(keys: Any, projections: np.ndarray) -> Any:
    """Project the keys of each replicate by each head: as `kernels.project`, but the array stays on the device."""
    rows = np.moveaxis(projections.reshape((-1, *projections.shape[-3:])), -1, -2)
    (_, n_heads, head_dim, _), n_replicates, n_keys = rows.shape, keys.shape[0], keys.shape[2]
    shape, flat = (n_replicates, n_heads * head_dim, n_keys), rows.reshape(len(rows), n_heads * head_dim, -1)
    data = (on_device(x, keys.dtype) for x in (keys, flat))
    return _made(_project, shape, keys.dtype, n_replicates * n_keys, *data).reshape(-1, n_heads, head_dim, n_keys)


def evaluate(function: Any, keys: Any) -> Any:
    """Values (R, n) of a function, a `data.regression.Waves`, of keys (R, d, n) on the device, where they stay."""
    # Its polynomial by products of two features, one of which may be the number 1 after the last; no array is empty.
    matrix = np.column_stack([function.curvature, function.gradient])
    products = np.column_stack([matrix[np.nonzero(matrix)], np.argwhere(matrix)])
    waves = np.column_stack([function.amplitudes, function.phases, function.waves])
    terms = (on_device(np.pad(x, ((0, 1), (0, 0))), np.float64) for x in (products, waves))
    return _made(_evaluate, keys.shape[::2], keys.dtype, keys.shape[0] * keys.shape[2], keys, *terms)


def nw_moments(
    keys: Any, values: Any, variances: Any, queries: np.ndarray, bandwidth: float, logits: str, with_mass: bool = False
) -> tuple[Any, Any, np.ndarray | None]:
    """Estimates of heads, and their covariance given the keys: as `kernels.nw_moments`."""
    queries, real = queries.reshape((-1, *queries.shape[-3:])), np.dtype(keys.dtype)
    shape = n_replicates, n_queries, n_heads = keys.shape[0], queries.shape[1], keys.shape[1]
    grams = (1,) * 4 if variances is None else (*shape, n_heads)
    found = [cuda.device_array(each, np.float64) for each in (shape, grams, shape)]
    data = (on_device(x, real) for x in (keys, values, values if variances is None else variances, queries))
    weigher, n_blocks, n_warps = weigher_of(real.name, n_heads, variances is not None)
    law, grid = law_of(logits, float(bandwidth), real), n_replicates * n_queries * n_blocks
    weigher[grid, LANES * n_warps, stream()](*data, law.distance, law.rate, *found)
    if variances is None or with_mass or not is_there(values):
        found = to_host(*found)
    return found[0], None if variances is None else found[1], found[2] if with_mass else None


def mean_squares(means: Any, grams: Any, target: np.ndarray, factor: float = 1.0) -> Any:
    """Mean square error over queries of the average of heads, squares by a factor: (R,), not finite if undefined."""
    numbers = means, grams, on_device(target, np.float64), factor
    return _made(_mean, means.shape[:1], np.float64, LANES * means.shape[0], *numbers)


def sum_replicates(means: Any, grams: Any, target: np.ndarray, n_blocks: int) -> tuple[np.ndarray, ...]:
    """Sums over blocks of errors (b, Q, H) and products (b, Q, pair), and which replicates are defined (R,)."""
    _, n_queries, n_heads = means.shape
    shape, n_threads = (n_blocks, n_queries, n_heads * (n_heads + 3) // 2), n_blocks * n_queries * n_heads**2
    numbers = means, grams, on_device(target, np.float64), mean_squares(means, grams, target)
    sums, squares = to_host(_made(_add, shape, np.float64, n_threads, *numbers), numbers[-1])
    return sums[..., :n_heads], sums[..., n_heads:], np.isfinite(squares)


def _made(kernel: Any, shape: tuple[int, ...], real: Any, n_threads: int, *arguments: Any) -> Any:
    """Return a new array that so many threads fill."""
    out = cuda.device_array(shape, real)
    if n_threads:
        kernel[-(-n_threads // _THREADS), _THREADS, stream()](out, *arguments)
    return out


@cuda_function
def _sum_of_lanes(x):
    for step in _STEPS:
        x += cuda.shfl_xor_sync(_ALL, x, step)
    return x


@functools.cache
def _filler(transform: Any) -> Any:
    words, pair = cuda_function(philox), cuda_function(transform)

    @cuda_kernel
    def fill_counter(out, k0, k1, role, first):
        n_replicates, n_columns, n_rows = out.shape
        n_blocks, at = (n_columns + 3) // 4, cuda.grid(1)
        if at < n_replicates * n_blocks * n_rows:
            i, b, r = at % n_rows, at // n_rows % n_blocks, at // (n_rows * n_blocks)
            replicate = first + np.uint64(r)
            c3 = (role << _ROLE_SHIFT) | (replicate >> HALF_WORD)
            w0, w1, w2, w3 = words(np.uint64(b), np.uint64(i), replicate & MASK, c3, k0, k1)
            numbers = pair(w0, w1) + pair(w2, w3)
            for j in range(min(4, n_columns - 4 * b)):
                out[r, 4 * b + j, i] = numbers[j]

    return fill_counter


@cuda_kernel
def _project(projected, keys, rows):
    # projected[r, c, i] = sum_j rows[s, c, j] * keys[r, j, i], a thread for each key
    r, i = cuda.grid(1) // keys.shape[2], cuda.grid(1) % keys.shape[2]
    s = r if rows.shape[0] > 1 else 0
    for c in range(rows.shape[1] if r < keys.shape[0] else 0):
        total = keys.dtype.type(0)
        for j in range(keys.shape[1]):
            total += rows[s, c, j] * keys[r, j, i]
        projected[r, c, i] = total


@cuda_kernel
def _evaluate(values, keys, products, waves):
    # values[r, i] = sum_a coefficient_a x[j_a] x[k_a] + sum_a amplitude_a cos(phase_a + wave_a·x), x = keys[r, :, i]
    at, total = cuda.grid(1), 0.0
    if at < values.size:
        r, i = at // values.shape[1], at % values.shape[1]
        for a in range(products.shape[0]):
            j, k = int(products[a, 1]), int(products[a, 2])
            total += products[a, 0] * keys[r, j, i] * (keys[r, k, i] if k < keys.shape[1] else 1.0)
        for a in range(waves.shape[0]):
            angle = waves[a, 1]
            for j in range(keys.shape[1]):
                angle += waves[a, 2 + j] * keys[r, j, i]
            total += waves[a, 0] * math.cos(angle)
        values[r, i] = total


@functools.cache
def weigher_of(precision: str, n_heads: int, multiplies: bool) -> tuple[Any, int, int]:
    """Return the kernel for so many heads, how many blocks share them at one query, and warps of each: its heads."""
    # Sizes of arrays must be constants; what shall lie in registers is indexed by loops of constant length alone.
    real, n_blocks = np.dtype(precision), -(-n_heads // WARPS)
    n_warps, n_partners = -(-n_heads // n_blocks), n_heads // 2 + 1 if multiplies else 0
    n_rows = min(n_heads, n_warps + n_heads // 2) if multiplies else n_warps
    n_own, largest = min(OWN_BYTES, TILE_BYTES // (n_rows * LANES)) // real.itemsize, np.finfo(real).max
    n_sums, n_tile = n_partners // LANES + 1, n_own * LANES
    weigh, multiply = _weigh(n_own), _multiply(n_own, n_partners)

    @cuda_kernel
    def kernel(keys, values, variances, queries, distance, rate, means, grams, logs):
        part, lane, warp = cuda.blockIdx.x // n_blocks, cuda.threadIdx.x % LANES, cuda.threadIdx.x // LANES
        r, q, first = part // means.shape[1], part % means.shape[1], cuda.blockIdx.x % n_blocks * n_warps
        weights = cuda.shared.array((n_rows, n_tile), keys.dtype)
        # Of each row: nearest score, sums of weights and of weighted values, and what a tile left of earlier sums.
        states = cuda.shared.array((n_rows, 4), np.float64)
        sums, s = cuda.local.array(n_sums, np.float64), r if queries.shape[0] > 1 else 0
        for row in range(warp, n_rows, n_warps):
            states[row, 0], states[row, 1], states[row, 2] = largest, 0.0, 0.0
        for start in range(0, values.shape[1], n_tile):
            for row in range(warp, n_rows, n_warps):
                h = (first + row) % n_heads
                weigh(keys[r, h], values[r], queries[s, q, h], distance, rate, lane, start, states[row], weights[row])
            cuda.syncthreads()
            for k in range(n_sums):
                before = sums[k] if start else 0.0
                sums[k] = multiply(weights, variances[r, start:], states, warp, lane, k * LANES, before)
            cuda.syncthreads()
        h, mass = (first + warp) % n_heads, states[warp, 1]
        # The nearest key has weight 1, unless no logit is finite.
        means[r, q, h] = states[warp, 2] / mass if mass >= 0.5 else np.nan
        logs[r, q, h] = math.log(mass) - rate * states[warp, 0] * _LN_2 if mass >= 0.5 else np.nan
        for k in range(n_sums):
            j = k * LANES + lane
            g, scale = (h + j) % n_heads, mass * states[(warp + j) % n_rows, 1]
            if j < n_partners and (2 * j < n_heads or h < g):
                grams[r, q, h, g] = grams[r, q, g, h] = sums[k] / scale if scale >= 0.5 else np.nan

    return kernel, n_blocks, n_warps


def _weigh(n_own: int) -> Any:
    @cuda_function
    def weigh(keys, values, query, distance, rate, lane, start, state, weights):
        # Weights of a tile for one head, whose keys and query are given.
        before, scores = keys.dtype.type(state[0]), cuda.local.array(n_own, keys.dtype)
        lowest, mass, total, outcomes = before, rate * 0, rate * 0, values[start:]
        for own in range(n_own):
            scores[own] = 0 if own * LANES + lane < outcomes.size else np.inf
        for k in range(query.size):
            tile, a = keys[k, start:], query[k]
            for own in range(n_own):
                if own * LANES + lane < outcomes.size:
                    x = tile[own * LANES + lane]
                    scores[own] += (x - a) * (x - a) if distance else -(x * a)
        for own in range(n_own):
            # A NaN score need not be found: it makes its own weight NaN.
            lowest = scores[own] if scores[own] < lowest else lowest
        for step in _STEPS:
            lowest = min(lowest, cuda.shfl_xor_sync(_ALL, lowest, step))
        for own in range(n_own):
            w = math.exp2(rate * (lowest - scores[own]))
            mass += w
            total += w * outcomes[min(own * LANES + lane, outcomes.size - 1)]
            weights[own * LANES + lane] = w
        mass, total = _sum_of_lanes(mass), _sum_of_lanes(total)
        if lane == 0:
            factor = math.exp2(rate * (lowest - before)) if start else rate * 0
            state[0], state[1], state[2], state[3] = lowest, state[1] * factor + mass, state[2] * factor + total, factor

    return weigh


def _multiply(n_own: int, n_partners: int) -> Any:
    @cuda_function
    def multiply(weights, variances, states, row, lane, first, before):
        # Lane j returns the product of the weights of a head with those of the jth of LANES partners.
        mine, own_weights = weights.dtype.type(0), cuda.local.array(n_own, weights.dtype)
        for own in range(n_own):
            at = own * LANES + lane
            own_weights[own] = weights[row, at] * variances[at] if at < variances.size else 0
        for j in range(min(LANES, n_partners - first)):
            other, product = (row + first + j) % weights.shape[0], weights.dtype.type(0)
            for own in range(n_own):
                product += own_weights[own] * weights[other, own * LANES + lane]
            product = _sum_of_lanes(product)
            mine = product if lane == j else mine
        return before * (states[row, 3] * states[(row + first + lane) % weights.shape[0], 3]) + mine

    return multiply


@cuda_kernel
def _mean(squares, means, grams, target, factor):
    # squares[r] = average over q, h, g of factor (means[r, q, h] - m_q) (means[r, q, g] - m_q) + grams[r, q, h, g]
    r, lane, n_heads, total = cuda.grid(1) // LANES, cuda.grid(1) % LANES, means.shape[2], 0.0
    for at in range(lane, target.size * n_heads**2 if r < squares.size else 0, LANES):
        q, h, g = at // n_heads**2, at // n_heads % n_heads, at % n_heads
        total += factor * (means[r, q, h] - target[q]) * (means[r, q, g] - target[q]) + grams[r, q, h, g]
    total = _sum_of_lanes(total)
    if r < squares.size:
        squares[r] = total / (target.size * n_heads**2)


@cuda_kernel
def _add(sums, means, grams, target, squares):
    # sums[b, q]: over the defined replicates of a block, of errors (h) and then of products (pair of h <= g)
    (n_blocks, n_queries, _), n_heads = sums.shape, means.shape[2]
    at, length, error, product = cuda.grid(1), means.shape[0] // n_blocks, 0.0, 0.0
    h, g, q, b = at // n_heads % n_heads, at % n_heads, at // n_heads**2 % n_queries, at // (n_heads**2 * n_queries)
    if b < n_blocks and h <= g:
        for r in range(b * length, (b + 1) * length):
            if math.isfinite(squares[r]):
                error += means[r, q, h] - target[q]
                product += (means[r, q, h] - target[q]) * (means[r, q, g] - target[q]) + grams[r, q, h, g]
        sums[b, q, n_heads + h * n_heads - h * (h + 1) // 2 + g] = product
        if h == g:
            sums[b, q, h] = error
