"""What a GPU computes of a replicate: random numbers, functions of keys, Nadaraya–Watson heads, sums over replicates.

Arrays stay there until something on the host asks for them.  The order of all sums depends on nothing but the number
of keys, or of replicates.

Heads follow the plain formula of `shifts`, in one pass.  A block of threads takes the keys by tiles for one query of a
replicate: each warp weighs them for a group of heads and leaves the weights in shared memory, then multiplies those of
some pairs of groups.  Sums over a tile are of the type of the keys, in registers, and meet by shuffles; sums over tiles
are float64.  Weights are relative to the nearest key so far: a nearer one scales down what was summed before.
"""

from __future__ import annotations

import functools
import math
import threading
from typing import Any

import numpy as np

from simstudy.kernels.devices import is_there, on_device, stream, to_host
from simstudy.kernels.elementary import exp2_float32, exp2_float64
from simstudy.kernels.jit import cuda_compiler, cuda_function, cuda_kernel, cuda_simulated
from simstudy.kernels.philox import HALF_WORD, MASK, philox
from simstudy.kernels.shifts import law_of

cuda = cuda_compiler()

# Index legend: r replicate, i key or row, j feature, c column of the stacked projections, q query, h and g head,
# k dimension of a head or number, a wave, b block; s: r, or 0 where all replicates have the same.

LANES, WARPS, GROUP = (8, 2, 2) if cuda_simulated() else (32, 8, 4)
"""Threads of a warp, warps of a block, heads of a group; few on the simulator, whose threads are those of Python."""
OWN_BYTES = 16
"""Weights of a head that a lane makes of a tile."""
# Distances between lanes that, one after the other, lead from every lane to every other.
_STEPS = tuple(LANES >> k for k in range(1, LANES.bit_length()))
# Sizes of arrays must be constants, not products of them.
_THREADS, _PRODUCTS, _ROWS, _HALF, _ROUNDS = LANES * WARPS, GROUP * GROUP, GROUP * WARPS, WARPS // 2, WARPS // 2 + 1
_ROLE_SHIFT = np.uint64(24)
_EXP2 = {"float32": exp2_float32, "float64": exp2_float64}
_TILE = {"float32": LANES * OWN_BYTES // 4, "float64": LANES * OWN_BYTES // 8}


def fill(transform: Any, shape: tuple[int, ...], real: Any, *address: np.uint64) -> Any:
    """Return an array (replicate, column, row) of what ``transform`` makes of pairs of words; see `data.addresses`."""
    out = cuda.device_array(shape, real)
    _launch(_filler(transform), shape[0] * -(-shape[1] // 4) * shape[2], out, *address)
    return out


def project(keys: Any, projections: np.ndarray) -> Any:
    """Project the keys of each replicate by each head: as `kernels.project`, but the array stays on the device."""
    n_heads, n_features, head_dim = projections.shape[-3:]
    stacked = np.moveaxis(projections.reshape((-1, n_heads, n_features, head_dim)), -1, -2)
    rows = stacked.reshape(len(stacked), n_heads * head_dim, n_features)
    n_replicates, _, n_keys = keys.shape
    projected = cuda.device_array((n_replicates, n_heads * head_dim, n_keys), keys.dtype)
    _launch(_project, n_replicates * n_keys, *(on_device(x, keys.dtype) for x in (keys, rows)), projected)
    return projected.reshape(n_replicates, n_heads, head_dim, n_keys)


def evaluate(function: Any, keys: Any) -> Any:
    """Values (R, n) of a function, a `data.regression.Waves`, of keys (R, d, n) on the device, where they stay."""
    n_curved = int(np.flatnonzero(function.curvature.any(axis=0)).max(initial=-1)) + 1
    # An array may not be empty there.
    waves = np.pad(np.column_stack([function.amplitudes, function.phases, function.waves]), ((0, 1), (0, 0)))
    numbers = (on_device(x, np.float64) for x in (function.gradient, function.curvature, waves))
    values = cuda.device_array((keys.shape[0], keys.shape[2]), keys.dtype)
    _launch(_evaluate, values.size, keys, *numbers, n_curved, values)
    return values


def nw_estimates(keys: Any, values: Any, queries: np.ndarray, bandwidth: float, logits: str) -> np.ndarray:
    """Estimate every head at every query in every replicate: as `kernels.nw_estimates`."""
    return to_host(_solve(keys, values, None, queries, bandwidth, logits)[0])[0]


def nw_moments(
    keys: Any, values: Any, variances: Any, queries: np.ndarray, bandwidth: float, logits: str, with_mass: bool = False
) -> tuple[Any, Any, np.ndarray | None]:
    """Mean and covariance of the head estimates given the keys: as `kernels.nw_moments`.

    They stay on the device if the values are there and the mass is not asked for.
    """
    found = _solve(keys, values, variances, queries, bandwidth, logits)
    if is_there(values) and not with_mass:
        return *found[:2], None
    means, grams, masses, shifts = to_host(*found)
    return means, grams, np.log(masses) - math.log(2.0) * shifts if with_mass else None


def _solve(keys: Any, values: Any, variances: Any, queries: np.ndarray, bandwidth: float, logits: str) -> list[Any]:
    """Estimates (R, Q, H), covariances (R, Q, H, H) if there are variances, sums of weights, powers of 2 off them."""
    real, queries = np.dtype(keys.dtype), queries.reshape((-1, *queries.shape[-3:]))
    shape = n_replicates, n_queries, n_heads = keys.shape[0], queries.shape[1], keys.shape[1]
    grams = (1,) * 4 if variances is None else (*shape, n_heads)
    found = [cuda.device_array(each, np.float64) for each in (shape, grams, shape, shape)]
    data = (on_device(x, real) for x in (keys, values, values if variances is None else variances, queries))
    law, (n_pairs, n_warps, n_tasks) = law_of(logits, float(bandwidth), real), blocks_of(n_heads)
    grid = n_replicates * n_queries * n_pairs, LANES * n_warps, stream(), n_warps * GROUP * LANES * OWN_BYTES
    numbers = (law.distance, law.rate, law.low, law.magic), np.finfo(real).max
    _weigher(real.name)[grid](*data, *numbers, (n_pairs, 0 if variances is None else n_tasks), *found)
    return found


def blocks_of(n_heads: int) -> tuple[int, int, int]:
    """Blocks of threads for one query of a replicate, warps of each, pairs of groups of heads that it multiplies."""
    n_groups = -(-n_heads // GROUP)
    n_halves, n_warps = -(-n_groups // _HALF), min(n_groups, WARPS)
    return max(1, n_halves * (n_halves - 1) // 2), n_warps, n_warps * (n_warps + 1) // 2


def mean_squares(means: Any, grams: Any, target: np.ndarray) -> Any:
    """Mean square error over queries of the average of all heads, for targets (Q,): (R,), not finite if undefined."""
    squares = cuda.device_array(means.shape[:1], np.float64)
    _launch(_average, LANES * squares.size, means, grams, on_device(target, np.float64), squares)
    return squares


def sum_replicates(means: Any, grams: Any, target: np.ndarray, n_blocks: int) -> list[np.ndarray]:
    """Sums over blocks of errors (b, Q, H) and products (b, Q, pair), and which replicates are defined (R,)."""
    _, n_queries, n_heads = means.shape
    squares, sizes = mean_squares(means, grams, target), (n_heads, n_heads * (n_heads + 1) // 2)
    sums = [cuda.device_array((n_blocks, n_queries, size), np.float64) for size in sizes]
    _launch(_add, n_blocks * n_queries * n_heads**2, means, grams, on_device(target, np.float64), squares, *sums)
    errors, products, found = to_host(*sums, squares)
    return [errors, products, np.isfinite(found)]


def _launch(kernel: Any, n_threads: int, *arguments: Any) -> None:
    if n_threads:
        kernel[-(-n_threads // _THREADS), _THREADS, stream()](*arguments)


if cuda_simulated():
    _meetings, _shown = [threading.Barrier(LANES) for _ in range(WARPS)], [0.0] * _THREADS

    def exchange(x, step):
        """What lane ^ step has in the place of x: the simulator knows no shuffles, so lanes meet and look."""
        t = threading.current_thread().thread_id  # type: ignore[attr-defined]
        _shown[t] = x
        _meetings[t // LANES].wait()
        found = _shown[t ^ step]
        _meetings[t // LANES].wait()
        return found

else:

    @cuda_function
    def exchange(x, step):
        """What lane ^ step has in the place of x."""
        return cuda.shfl_xor_sync(0xFFFFFFFF, x, step)


@cuda_function
def _sum_of_lanes(x):
    for step in _STEPS:
        x += exchange(x, step)
    return x


@cuda_function
def _share_sums(x, lane):
    # x[0] becomes the sum over lanes of number lane * x.size // LANES: in each step lanes halve what they hold.
    half = x.size // 2
    for step in _STEPS:
        for k in range(max(half, 1)):
            low, high = x[k], x[k + half]
            x[k] = (high if lane & step else low) + exchange(low if lane & step else high, step)
        half //= 2


@functools.cache
def _filler(transform: Any) -> Any:
    words, pair = cuda_function(philox), cuda_function(transform)

    @cuda_kernel
    def fill_counter(out, k0, k1, role, first):
        # b: block of four columns; j: column within it
        n_replicates, n_columns, n_rows = out.shape
        n_blocks, at = (n_columns + 3) // 4, cuda.grid(1)
        if at < n_replicates * n_blocks * n_rows:
            i, b, r = at % n_rows, at // n_rows % n_blocks, at // (n_rows * n_blocks)
            replicate = first + np.uint64(r)
            c3 = (role << _ROLE_SHIFT) | (replicate >> HALF_WORD)
            w0, w1, w2, w3 = words(np.uint64(b), np.uint64(i), replicate & MASK, c3, k0, k1)
            x0, x1 = pair(w0, w1)
            x2, x3 = pair(w2, w3)
            for j in range(min(4, n_columns - 4 * b)):
                out[r, 4 * b + j, i] = (x0 if j == 0 else x1) if j < 2 else (x2 if j == 2 else x3)

    return fill_counter


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


@cuda_kernel
def _evaluate(keys, gradient, curvature, waves, n_curved, values):
    # values[r, i] = gradient·x + x' curvature x + sum_a amplitude_a cos(phase_a + wave_a·x), x = keys[r, :, i]
    at, total = cuda.grid(1), 0.0
    if at < values.size:
        r, i = at // values.shape[1], at % values.shape[1]
        for j in range(gradient.size):
            slope = gradient[j]
            for k in range(n_curved):
                slope += curvature[j, k] * keys[r, k, i]
            total += slope * keys[r, j, i]
        for a in range(waves.shape[0]):
            angle = waves[a, 1]
            for j in range(gradient.size):
                angle += waves[a, 2 + j] * keys[r, j, i]
            total += waves[a, 0] * math.cos(angle)
        values[r, i] = total


@cuda_function
def _pair(number):
    # The pairs (0, 0), (1, 0), (1, 1), (2, 0), ...
    upper = 0
    while (upper + 1) * (upper + 2) // 2 <= number:
        upper += 1
    return upper, number - upper * (upper + 1) // 2


@cuda_function
def _head(pair, row):
    # Head of a row of weights; where there are more heads than rows, a block has two halves of as many as it has rows.
    upper, lower = _pair(pair)
    return row + _HALF * GROUP * (upper if row >= _HALF * GROUP else lower)


@cuda_function
def _score(keys, queries, r, q, h, i, distance):
    s = r if queries.shape[0] > 1 else 0
    total = keys.dtype.type(0)
    for k in range(keys.shape[2]):
        x, a = keys[r, h, k, i], queries[s, q, h, k]
        total += (x - a) * (x - a) if distance else -(x * a)
    return total


# A GPU kernel takes no functions as arguments, so each precision has kernels of its own around its power of 2.


@functools.cache
def _weigher(precision: str) -> Any:
    real, n_tile, weigh, multiply = np.dtype(precision).type, _TILE[precision], _weigh(precision), _multiply(precision)

    @cuda_kernel
    def kernel(keys, values, variances, queries, law, largest, sizes, means, grams, masses, shifts):
        t, n_warps, (n_pairs, n_tasks) = cuda.threadIdx.x, cuda.blockDim.x // LANES, sizes
        part, pair = cuda.blockIdx.x // n_pairs, cuda.blockIdx.x % n_pairs
        lane, warp, r, q = t % LANES, t // LANES, part // means.shape[1], part % means.shape[1]
        first = _head(pair, GROUP * warp)
        n_own, n_rounds = min(GROUP, means.shape[2] - first), (n_tasks - warp + n_warps - 1) // n_warps
        weights, factors = cuda.shared.array(0, keys.dtype), cuda.shared.array(_ROWS, np.float64)
        nearest, sums = cuda.local.array(GROUP, real), cuda.local.array((GROUP, 2), np.float64)
        groups, products = cuda.local.array((_ROUNDS, 2), np.int32), cuda.local.array(_ROUNDS, np.float64)
        for k in range(GROUP):
            nearest[k], sums[k, 0], sums[k, 1] = largest, 0.0, 0.0
        for k in range(_ROUNDS):
            products[k], (groups[k, 0], groups[k, 1]) = 0.0, _pair(warp + k * n_warps)
        for start in range(0, values.shape[1], n_tile):
            for k in range(n_own):
                row, place = GROUP * warp + k, (r, q, first + k, start, lane)
                found = weigh(keys, values, queries, place, law, nearest[k], weights[row * n_tile :])
                nearest[k], factors[row], mass, total = found
                sums[k, 0], sums[k, 1] = sums[k, 0] * factors[row] + mass, sums[k, 1] * factors[row] + total
            cuda.syncthreads()
            for k in range(n_rounds):
                products[k] = multiply(weights, variances, factors, groups[k], (r, start, lane), products[k])
            cuda.syncthreads()
        for k in range(n_own):
            at, mass = (r, q, first + k), _sum_of_lanes(sums[k, 0])
            # The nearest key has weight 1, unless no logit is finite.
            masses[at] = mass = mass if mass >= 0.5 else np.nan
            means[at] = _sum_of_lanes(sums[k, 1]) / mass
            shifts[at] = np.float64(law[1]) * (nearest[k] if mass >= 0.5 else np.nan)
            factors[GROUP * warp + k] = 1.0 / mass
        cuda.syncthreads()
        for k in range(n_rounds):
            x, y = _rows(groups[k], lane)
            h, g = _head(pair, x), _head(pair, y)
            if g <= h < means.shape[2]:
                grams[r, q, h, g] = grams[r, q, g, h] = products[k] * (factors[x] * factors[y])

    return kernel


@cuda_function
def _rows(groups, lane):
    # Rows of the weights whose product a lane sums.
    number = lane * _PRODUCTS // LANES
    return GROUP * groups[0] + number // GROUP, GROUP * groups[1] + number % GROUP


def _weigh(precision: str) -> Any:
    real, exp2, n_own = np.dtype(precision).type, cuda_function(_EXP2[precision]), _TILE[precision] // LANES

    @cuda_function
    def power(exponent, law):
        w = exp2(exponent, law[2], law[3])
        return w if not exponent < law[2] else w * 0

    @cuda_function
    def weigh(keys, values, queries, place, law, before, weights):
        # Weights of a tile for one head; the nearest score so far, what that leaves of earlier ones, sums of this lane.
        r, q, h, start, lane = place
        scores, lowest, mass, total = cuda.local.array(n_own, real), before, real(0), real(0)
        for own in range(n_own):
            i = start + own * LANES + lane
            scores[own] = _score(keys, queries, r, q, h, i, law[0]) if i < values.shape[1] else real(np.inf)
            # A NaN score need not be found: it makes its own weight NaN.
            lowest = scores[own] if scores[own] < lowest else lowest
        for step in _STEPS:
            lowest = min(lowest, exchange(lowest, step))
        for own in range(n_own):
            w = power(law[1] * (lowest - scores[own]), law)
            mass += w
            total += w * values[r, min(start + own * LANES + lane, values.shape[1] - 1)]
            weights[own * LANES + lane] = w
        return lowest, power(law[1] * (lowest - before), law) if start else real(0), mass, total

    return weigh


def _multiply(precision: str) -> Any:
    real, n_tile = np.dtype(precision).type, _TILE[precision]

    @cuda_function
    def multiply(weights, variances, factors, groups, place, before):
        # The product of two rows of weights that this lane sums, over the keys so far; `before` without this tile.
        r, start, lane = place
        x, y = cuda.local.array(GROUP, real), cuda.local.array(GROUP, real)
        products = cuda.local.array(_PRODUCTS, real)
        for k in range(_PRODUCTS):
            products[k] = 0
        for own in range(n_tile // LANES):
            at = own * LANES + lane
            variance = variances[r, min(start + at, variances.shape[1] - 1)]
            for k in range(GROUP):
                x[k] = weights[(GROUP * groups[0] + k) * n_tile + at]
                y[k] = weights[(GROUP * groups[1] + k) * n_tile + at] * variance
            for k in range(_PRODUCTS):
                products[k] += x[k // GROUP] * y[k % GROUP]
        _share_sums(products, lane)
        upper, lower = _rows(groups, lane)
        return before * (factors[upper] * factors[lower]) + products[0]

    return multiply


@cuda_kernel
def _average(means, grams, target, squares):
    # squares[r] = the average over q, h and g of (means[r, q, h] - m_q) (means[r, q, g] - m_q) + grams[r, q, h, g]
    r, lane, n_heads, total = cuda.grid(1) // LANES, cuda.grid(1) % LANES, means.shape[2], 0.0
    if r < squares.size:
        for at in range(lane, target.size * n_heads**2, LANES):
            q, h, g = at // n_heads**2, at // n_heads % n_heads, at % n_heads
            total += (means[r, q, h] - target[q]) * (means[r, q, g] - target[q]) + grams[r, q, h, g]
        squares[r] = _sum_of_lanes(total) / (target.size * n_heads**2)


@cuda_kernel
def _add(means, grams, target, squares, errors, products):
    # errors[b, q, h] and products[b, q, pair of h <= g]: sums over the defined replicates of a block
    n_blocks, n_queries, n_heads = errors.shape
    at, length, error, product = cuda.grid(1), means.shape[0] // n_blocks, 0.0, 0.0
    h, g, q, b = at // n_heads % n_heads, at % n_heads, at // n_heads**2 % n_queries, at // (n_heads**2 * n_queries)
    if b < n_blocks and h <= g:
        for r in range(b * length, (b + 1) * length):
            if math.isfinite(squares[r]):
                error += means[r, q, h] - target[q]
                product += (means[r, q, h] - target[q]) * (means[r, q, g] - target[q]) + grams[r, q, h, g]
        products[b, q, h * n_heads - h * (h + 1) // 2 + g] = product
        if h == g:
            errors[b, q, h] = error
