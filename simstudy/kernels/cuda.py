"""Replicates on a GPU: projected keys, functions of keys, Nadaraya–Watson heads, sums over replicates.

Arrays stay in the memory of the GPU until the host needs them.  Random keys are never stored; they are drawn where
they are projected.  The order of sums depends only on the numbers of keys, heads, queries and replicates.
"""

import functools
import math
from typing import Any

import numpy as np

from simstudy.kernels import cuda_heads
from simstudy.kernels.cuda_heads import THREADS
from simstudy.kernels.devices import is_on_gpu, new_array, on_device, stream, to_host
from simstudy.kernels.jit import cuda_compiler, cuda_function, cuda_kernel
from simstudy.kernels.philox import HALF_WORD, MASK, philox
from simstudy.kernels.shifts import scale_of

cuda = cuda_compiler()

# Index legend: r replicate, i key, j feature, c column of the stacked projections, q query, h and g head, k dimension
# of a head or number, f function, a direction, b block; s: r, or 0 if all replicates have the same array.

COLUMNS = THREADS // 4  # most columns of the stacked projections for which a thread draws or reads its key once


def project(keys: Any, projections: np.ndarray) -> Any:
    """Return keys, drawn or in an array, projected by each head as in `kernels.project`, as an array on the GPU."""
    stacked = np.moveaxis(projections.reshape((-1, *projections.shape[-3:])), 1, 2)
    (*_, n_heads, head_dim), (n_replicates, _, n_keys), real = stacked.shape, keys.shape, keys.dtype
    rows = on_device(stacked.reshape(*stacked.shape[:2], n_heads * head_dim), real)
    transform, source = getattr(keys, "transform", None), getattr(keys, "address", None) or (on_device(keys, real),)
    projected, n_columns = new_array((n_replicates, n_heads, head_dim, n_keys), real), min(COLUMNS, n_heads * head_dim)
    out, n_parts = projected.reshape(n_replicates, n_heads * head_dim, n_keys), -(-n_heads * head_dim // n_columns)
    _start(_projector(transform, n_columns), n_replicates * n_parts, n_keys, out, rows, source)
    return projected


def evaluate(directions: np.ndarray, factors: np.ndarray, keys: Any) -> tuple[Any, Any]:
    """Return values (R, n) of the two functions of `data.span.directions_of` at drawn keys, on the GPU."""
    (n_replicates, _, n_keys), numbers = keys.shape, (project(keys, directions), on_device(factors, keys.dtype))
    values, others = (new_array((n_replicates, n_keys), keys.dtype) for _ in range(2))
    _start(_evaluate, 2 * n_replicates, n_keys, values, others, *numbers)
    return values, others


def nw_moments(
    keys: Any, values: Any, variances: Any, queries: np.ndarray, bandwidth: float, logits: str, with_mass: bool = False
) -> tuple[Any, Any, Any]:
    """Return the same as `kernels.nw_moments`, on the GPU if values and variances are."""
    queries, real = queries.reshape((-1, *queries.shape[-3:])), np.dtype(keys.dtype)
    n_replicates, n_heads, head_dim, _ = keys.shape
    shape, products = (n_replicates, queries.shape[1], n_heads), variances is not None
    scale, on_gpu = scale_of(logits, float(bandwidth), real), is_on_gpu(values)
    means, lowest, masses, logs = (new_array(shape, np.float64) for _ in range(4))
    grams = new_array((*shape, n_heads) if products else (n_replicates, 1, 1, 1), np.float64)
    points = np.moveaxis(queries, 1, 3).reshape(len(queries), -1, shape[1])
    data = [on_device(x, real) for x in (keys, values, variances if products else values, points)]
    numbers = data[0].reshape(n_replicates, -1), *data[1:], scale.rate, np.finfo(real).max, cuda_heads.MOST[real.name]
    for between in (False, True):
        tiles = cuda_heads.tiling(*shape[1:], head_dim, real, between)
        n_blocks = n_replicates * -(-shape[1] // tiles.queries) * len(tiles.heads)
        if n_blocks and (products or not between):
            n_sums = len(cuda_heads.sums_of(tiles.side, products, between))
            sums = new_array((n_blocks, n_sums, tiles.queries), np.float64)
            heads = on_device(tiles.heads, np.uint32)
            kernel = cuda_heads.heads_of(real.name, scale.distance, head_dim, tiles, products, between)
            _start(kernel, n_blocks, THREADS, means, lowest, masses, logs, grams, sums, heads, *numbers)
    found = [means, grams if products else None, logs if with_mass else None]
    if not (on_gpu and products):
        found = [x if x is None else to_host(x)[0] for x in found]
    return found[0], found[1], found[2]


def mean_squares(means: Any, grams: Any, target: Any, factor: float = 1.0) -> Any:
    """Return factor · squared error of the average of heads + its variance, averaged over queries: (R,)."""
    found, numbers = new_array(means.shape[:1], np.float64), (means, grams.reshape(len(means), -1))
    return _start(_mean_squares, len(means), THREADS, found, *numbers, on_device(target, np.float64), factor)


def sum_replicates(means: Any, grams: Any, target: np.ndarray, n_blocks: int) -> tuple[np.ndarray, ...]:
    """Return sums over blocks of errors (b, Q, H) and products (b, Q, pair), and which replicates are finite (R,)."""
    (_, n_queries, n_heads), numbers = means.shape, (means, grams, on_device(target, np.float64))
    sums = new_array((n_blocks, n_queries, n_heads * (n_heads + 3) // 2), np.float64)
    squares = mean_squares(*numbers)
    _start(_add, n_blocks, n_queries * n_heads**2, sums, *numbers, squares)
    found, squares = to_host(sums, squares)
    return found[..., :n_heads], found[..., n_heads:], np.isfinite(squares)


def expand(means: Any, grams: Any, logs: Any, *known: np.ndarray) -> Any:
    """Return the expansion (R, Q, H + pair) of `attention.expansion`, from the arrays of `Known` of a cell."""
    n_replicates, n_queries, n_heads = means.shape
    taken = new_array((n_replicates, n_queries, n_heads * (n_heads + 3) // 2), np.float64)
    numbers = means, grams, logs, *(on_device(each, np.float64) for each in known)
    return _start(_expand, n_replicates, n_queries * n_heads**2, taken, *numbers)


def sum_blocks(numbers: Any, defined: np.ndarray, n_blocks: int) -> np.ndarray:
    """Return sums (b, Q, number) of numbers (R, Q, number) over the defined replicates of each block."""
    sums = new_array((n_blocks, *numbers.shape[1:]), np.float64)
    data = numbers, on_device(defined, np.bool_)
    return to_host(_start(_sum, n_blocks, math.prod(sums.shape[1:]), sums, *data))[0]


def _start(kernel: Any, n_rows: int, n_threads: int, out: Any, *arguments: Any) -> Any:
    """Start ``n_threads`` threads for each row, in separate blocks; return the array that they fill."""
    if n_blocks := n_rows * -(-n_threads // THREADS):
        kernel[n_blocks, THREADS, stream()](out, *arguments)
    return out


@cuda_function
def _split(at, n):
    # Return at // n and at % n as unsigned 32-bit numbers; other types take 80 instructions.
    at, n = np.uint64(np.uint32(at)), np.uint64(np.uint32(n))
    return np.int64(at // n), np.int64(at % n)


@cuda_function
def _place(n_threads):
    # Return the row of a thread, and its number in that row.
    row, block = _split(cuda.blockIdx.x, (n_threads + THREADS - 1) // THREADS)
    return row, block * THREADS + cuda.threadIdx.x


@cuda_function
def _read_four(source, r, b, i):
    # Beyond the last feature, the last is repeated; projections have zeros there.
    of_key, j, last = source[0][r], 4 * b, source[0].shape[1] - 1
    return of_key[j, i], of_key[min(j + 1, last), i], of_key[min(j + 2, last), i], of_key[min(j + 3, last), i]


@functools.cache
def _projector(transform: Any, n_columns: int) -> Any:
    """Return the kernel that projects keys of an array, or keys that a transformation makes of pairs of words."""
    words, pair = cuda_function(philox), transform and cuda_function(transform)

    @cuda_function
    def draw_four(address, r, b, i):
        k0, k1, role, first = address
        replicate = first + np.uint64(r)
        c3 = (role << np.uint64(24)) | (replicate >> HALF_WORD)
        w0, w1, w2, w3 = words(np.uint64(b), np.uint64(i), replicate & MASK, c3, k0, k1)
        return pair(w0, w1) + pair(w2, w3)

    take_four = draw_four if transform else _read_four

    @functools.partial(cuda_kernel, max_registers=128)
    def project_keys(projected, rows, source):
        # projected[r, c, i] = sum_j rows[s, j, c] x_j, a thread for key i and some columns, of four features at once
        (_, n_all, n_keys), (row, i) = projected.shape, _place(projected.shape[2])
        r, part = _split(row, (n_all + n_columns - 1) // n_columns)
        shared, sums = cuda.shared.array(THREADS, rows.dtype, alignment=16), cuda.local.array(n_columns, rows.dtype)
        of_set, known, first = rows[r if rows.shape[0] > 1 else 0], min(i, n_keys - 1), part * n_columns
        column, feature = first + cuda.threadIdx.x // 4, cuda.threadIdx.x % 4
        for c in range(n_columns):
            sums[c] = 0
        for b in range((of_set.shape[0] + 3) // 4):
            cuda.syncthreads()
            shared[cuda.threadIdx.x] = 0
            if column < n_all and 4 * b + feature < of_set.shape[0]:
                shared[cuda.threadIdx.x] = of_set[4 * b + feature, column]
            cuda.syncthreads()
            x = take_four(source, r, b, known)
            for c in range(n_columns):
                for k in range(4):
                    sums[c] += shared[4 * c + k] * x[k]
        left, columns = n_all - first if i < n_keys else 0, projected[r, first:, known]
        for c in range(n_columns):
            if c < left:
                columns[np.uint64(c)] = sums[c]

    return project_keys


@cuda_kernel
def _evaluate(values, others, numbers, factors):
    # Set values[r, i] or others[r, i], by the number of the function, from numbers[r, 0, a, i].
    row, i = _place(values.shape[1])
    (r, f), total = _split(row, 2), values.dtype.type(0)
    if i < values.shape[1]:
        for a in range(factors.shape[0]):
            of, y = factors[a], numbers[r, 0, a, i]
            if of[0] == f:
                total += of[1] * y + of[2] * y * y
                if of[3] != 0 or of[4] != 0:
                    total += of[3] * math.cos(y) + of[4] * math.sin(y)
        (others if f else values)[r, i] = total


@cuda_function
def _expand_head(h, mean, log, log_scale, centre, first, second, error_mean):
    # Return a, l and the expansion of the error of head h at one query, with letters of `attention.expansion`.
    pair, a = h * mean.size - h * (h - 1) // 2, math.exp(log[h] - log_scale[h]) - 1.0
    linear = (1.0 + a) * (mean[h] - centre[h])
    return a, linear, linear * (first[pair] - a * second[pair]) - error_mean[h]


@cuda_kernel
def _expand(taken, means, grams, logs, log_scale, centre, bias, first, second, leading, error_mean, product_mean):
    # taken[r, q]: expansion of errors (h), then of products (pair of h <= g); a thread for each pair
    _, n_queries, n_heads = means.shape
    r, at = _place(n_queries * n_heads**2)
    rest, g = _split(at, n_heads)
    q, h = _split(rest, n_heads)
    if q < n_queries and h <= g:
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
    (n_blocks, n_queries, n_columns), total = sums.shape, 0.0
    b, at = _place(n_queries * n_columns)
    (q, c), (length, _) = _split(at, n_columns), _split(numbers.shape[0], n_blocks)
    if q < n_queries:
        for r in range(b * length, (b + 1) * length):
            total += numbers[r, q, c] if defined[r] else 0.0
        sums[b, q, c] = total


@cuda_kernel
def _add(sums, means, grams, target, squares):
    # sums[b, q]: over the defined replicates of a block, of errors (h) and then of products (pair of h <= g)
    (n_blocks, n_queries, _), n_heads, error, product = sums.shape, means.shape[2], 0.0, 0.0
    b, at = _place(n_queries * n_heads**2)
    rest, g = _split(at, n_heads)
    (q, h), (length, _) = _split(rest, n_heads), _split(means.shape[0], n_blocks)
    if q < n_queries and h <= g:
        for r in range(b * length, (b + 1) * length):
            if math.isfinite(squares[r]):
                error += means[r, q, h] - target[q]
                product += (means[r, q, h] - target[q]) * (means[r, q, g] - target[q]) + grams[r, q, h, g]
        sums[b, q, n_heads + h * n_heads - h * (h + 1) // 2 + g] = product
        if h == g:
            sums[b, q, h] = error


@cuda_kernel
def _mean_squares(found, means, grams, target, factor):
    # found[r] = mean over q, h, g of factor (means_h - target) (means_g - target) + grams_hg, a block for each r
    (_, n_queries, n_heads), total, r = means.shape, 0.0, cuda.blockIdx.x
    shared = cuda.shared.array(THREADS, np.float64)
    for q in range(cuda.threadIdx.x, n_queries, THREADS):
        error = 0.0
        for h in range(n_heads):
            error += means[r, q, h] - target[q]
        total += factor * error * error
    for at in range(cuda.threadIdx.x, grams.shape[1], THREADS):
        total += grams[r, at]
    shared[cuda.threadIdx.x] = total
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        for k in range(1, THREADS):
            total += shared[k]
        found[r] = total / (n_queries * n_heads**2)
