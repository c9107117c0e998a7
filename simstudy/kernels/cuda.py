"""What a GPU computes of a replicate: random numbers, functions of keys, Nadaraya–Watson heads, sums over replicates.

Arrays stay there until something on the host asks for them.  The order of all sums depends on nothing but the numbers
of keys, heads, queries and replicates.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from simstudy.kernels import cuda_heads
from simstudy.kernels.devices import is_on_gpu, on_device, stream, to_host
from simstudy.kernels.jit import cuda_compiler, cuda_function, cuda_kernel
from simstudy.kernels.philox import HALF_WORD, MASK, philox
from simstudy.kernels.shifts import scale_of

cuda = cuda_compiler()

# Index legend: r replicate, i key or row, j feature or column of a block, c column of the stacked projections, q query,
# h and g head, k dimension of a head or number, a wave, b block; s: r, or 0 where all replicates have the same.

COLUMNS = 8  # of the stacked projections, for which a thread reads its key once


def fill(transform: Any, shape: tuple[int, ...], real: Any, *address: np.uint64) -> Any:
    """Return an array (replicate, column, row) of what ``transform`` makes of pairs of words; see `data.addresses`."""
    return _made(_filler(transform), shape, real, shape[0] * -(-shape[1] // 4) * shape[2], *address)


def project(keys: Any, projections: np.ndarray) -> Any:
    """Project the keys of each replicate by each head: as `kernels.project`, but the array stays on the device."""
    rows = np.moveaxis(projections.reshape((-1, *projections.shape[-3:])), -1, -2)
    (_, n_heads, head_dim, _), n_replicates, n_keys = rows.shape, keys.shape[0], keys.shape[2]
    shape, flat = (n_replicates, n_heads * head_dim, n_keys), rows.reshape(len(rows), n_heads * head_dim, -1)
    data = (on_device(x, keys.dtype) for x in (keys, flat))
    n_threads = n_replicates * n_keys * -(-shape[1] // COLUMNS)
    return _made(_project, shape, keys.dtype, n_threads, *data).reshape(-1, n_heads, head_dim, n_keys)


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
) -> tuple[Any, Any, Any]:
    """As `kernels.nw_moments`; where values and variances are on the device, so are the results."""
    queries, real = queries.reshape((-1, *queries.shape[-3:])), np.dtype(keys.dtype)
    n_replicates, n_heads, head_dim, _ = keys.shape
    shape, products = (n_replicates, queries.shape[1], n_heads), variances is not None
    law, there = scale_of(logits, float(bandwidth), real), is_on_gpu(values)
    means, lowest, masses, logs = (cuda.device_array(shape, np.float64) for _ in range(4))
    grams = cuda.device_array((*shape, n_heads) if products else (n_replicates, 1, 1, 1), np.float64)
    points = np.moveaxis(queries, 1, 3).reshape(len(queries), -1, shape[1])
    data = [on_device(x, real) for x in (keys, values, variances if products else values, points)]
    numbers = data[0].reshape(n_replicates, -1), *data[1:], law.rate, np.finfo(real).max, cuda_heads.MOST[real.name]
    for apart in (False, True):
        tiles = cuda_heads.tiling(*shape[1:], head_dim, real, apart)
        n_blocks = n_replicates * -(-shape[1] // tiles.queries) * len(tiles.heads)
        if n_blocks and (products or not apart):
            n_sums = len(cuda_heads.sums_of(tiles.side, products, apart))
            sums = cuda.device_array((n_blocks, n_sums, tiles.queries), np.float64)
            heads = on_device(tiles.heads, np.uint32)
            kernel = cuda_heads.heads_of(real.name, law.distance, head_dim, tiles, products, apart)
            _start(kernel, n_blocks * cuda_heads.THREADS, means, lowest, masses, logs, grams, sums, heads, *numbers)
    found = [means, grams if products else None, logs if with_mass else None]
    if not (there and products):
        found = [x if x is None else to_host(x)[0] for x in found]
    return found[0], found[1], found[2]


def mean_squares(means: Any, grams: Any, target: np.ndarray, factor: float = 1.0) -> Any:
    """Mean square error over queries of the average of heads, squares by a factor: (R,), not finite if undefined."""
    (n_replicates, n_queries, n_heads), there = means.shape, on_device(target, np.float64)
    shape, n_threads = (n_replicates, n_queries), n_replicates * n_queries
    squares = _made(cuda_heads.sum_squares, shape, np.float64, n_threads, means, grams, there, factor)
    return _made(cuda_heads.average, shape[:1], np.float64, n_replicates, squares, n_queries * n_heads**2)


def sum_replicates(means: Any, grams: Any, target: np.ndarray, n_blocks: int) -> tuple[np.ndarray, ...]:
    """Sums over blocks of errors (b, Q, H) and products (b, Q, pair), and which replicates are defined (R,)."""
    _, n_queries, n_heads = means.shape
    shape, n_threads = (n_blocks, n_queries, n_heads * (n_heads + 3) // 2), n_blocks * n_queries * n_heads**2
    numbers = means, grams, on_device(target, np.float64), mean_squares(means, grams, target)
    sums, squares = to_host(_made(_add, shape, np.float64, n_threads, *numbers), numbers[-1])
    return sums[..., :n_heads], sums[..., n_heads:], np.isfinite(squares)


def expand(means: Any, grams: Any, logs: Any, *known: np.ndarray) -> Any:
    """Return the expansion (R, Q, H + pair) of `attention.expansion`, from what is `Known` of a cell."""
    n_replicates, n_queries, n_heads = means.shape
    shape = n_replicates, n_queries, n_heads * (n_heads + 3) // 2
    numbers = means, grams, logs, *(on_device(each, np.float64) for each in known)
    return _made(_expand, shape, np.float64, means.size * n_heads, *numbers)


def sum_blocks(numbers: Any, defined: np.ndarray, n_blocks: int) -> np.ndarray:
    """Sums (b, Q, number) over the defined replicates of each block, of numbers (R, Q, number)."""
    shape = n_blocks, *numbers.shape[1:]
    return to_host(_made(_sum, shape, np.float64, math.prod(shape), numbers, on_device(defined, np.bool_)))[0]


def _made(kernel: Any, shape: tuple[int, ...], real: Any, n_threads: int, *arguments: Any) -> Any:
    """Return a new array that so many threads fill."""
    out = cuda.device_array(shape, real)
    _start(kernel, n_threads, out, *arguments)
    return out


def _start(kernel: Any, n_threads: int, *arguments: Any) -> None:
    if n_threads:
        kernel[-(-n_threads // cuda_heads.THREADS), cuda_heads.THREADS, stream()](*arguments)


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
            c3 = (role << np.uint64(24)) | (replicate >> HALF_WORD)
            w0, w1, w2, w3 = words(np.uint64(b), np.uint64(i), replicate & MASK, c3, k0, k1)
            numbers = pair(w0, w1) + pair(w2, w3)
            for j in range(min(4, n_columns - 4 * b)):
                out[r, 4 * b + j, i] = numbers[j]

    return fill_counter


@cuda_kernel
def _project(projected, keys, rows):
    # projected[r, c, i] = sum_j rows[s, c, j] * keys[r, j, i], a thread for each key and COLUMNS columns
    n_columns, n_keys = rows.shape[1], keys.shape[2]
    n_parts, at = (n_columns + COLUMNS - 1) // COLUMNS, cuda.grid(1)
    first, i, r = at // n_keys % n_parts * COLUMNS, at % n_keys, at // (n_keys * n_parts)
    if r < keys.shape[0]:
        columns, of_key = rows[r if rows.shape[0] > 1 else 0], keys[r]
        sums = cuda.local.array(COLUMNS, keys.dtype)
        for c in range(COLUMNS):
            sums[c] = 0
        for j in range(of_key.shape[0]):
            x = of_key[j, i]
            for c in range(COLUMNS):
                sums[c] += columns[min(first + c, n_columns - 1), j] * x
        for c in range(COLUMNS):
            if first + c < n_columns:
                projected[r, first + c, i] = sums[c]


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


@cuda_function
def _expand_head(h, mean, log, log_scale, centre, first, second, error_mean):
    # a, l and what is taken off the error of head h at one query, letters as in `attention.expansion`
    own, a = h * mean.size - h * (h - 1) // 2, math.exp(log[h] - log_scale[h]) - 1.0
    linear = (1.0 + a) * (mean[h] - centre[h])
    return a, linear, linear * (first[own] - a * second[own]) - error_mean[h]


@cuda_kernel
def _expand(taken, means, grams, logs, log_scale, centre, bias, first, second, leading, error_mean, product_mean):
    # taken[r, q]: of errors (h) and then of products (pair of h <= g), a thread for each pair
    (n_replicates, n_queries, n_heads), at = means.shape, cuda.grid(1)
    h, g, q, r = at // n_heads % n_heads, at % n_heads, at // n_heads**2 % n_queries, at // (n_heads**2 * n_queries)
    if r < n_replicates and h <= g:
        known = means[r, q], logs[r, q], log_scale[q], centre[q], first[q], second[q], error_mean[q]
        a, linear, error = _expand_head(h, *known)
        b, other, error_g = _expand_head(g, *known)
        c, total, product = h * n_heads - h * (h + 1) // 2 + g, a + b, bias[q, h] * error_g + bias[q, g] * error
        both, mean = linear * other, leading[q, c]
        if mean > 0.0:
            gap = grams[r, q, h, g] * (1.0 + a) * (1.0 + b) - mean * (1.0 + total)
            product += first[q, c] * gap
            both -= gap * total + mean * a * b
        product += second[q, c] * both
        taken[r, q, n_heads + c] = product - product_mean[q, c]
        if h == g:
            taken[r, q, h] = error


@cuda_kernel
def _sum(sums, numbers, defined):
    # sums[b, q, c] = sum of numbers[r, q, c] over the defined replicates of a block
    (n_blocks, n_queries, n_columns), at, total = sums.shape, cuda.grid(1), 0.0
    c, q, b = at % n_columns, at // n_columns % n_queries, at // (n_columns * n_queries)
    if b < n_blocks:
        length = numbers.shape[0] // n_blocks
        for r in range(b * length, (b + 1) * length):
            total += numbers[r, q, c] if defined[r] else 0.0
        sums[b, q, c] = total


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
