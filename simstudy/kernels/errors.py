"""Sums of errors of heads and their products with the bits of NumPy, correlations, and sums over pairs of heads."""

import functools
import math
from typing import NamedTuple

import numpy as np

from simstudy.kernels.devices import gpu_kernels, is_on_gpu, to_host
from simstudy.kernels.jit import exact_kernel, kept_by_thread, kernel, writable

# Index legend: b block, r replicate, c case, q query, h and g head, k pair h ≤ g in the order of `numpy.triu_indices`.
# Targets are (q,), or (s, q) for s parts of equal numbers of successive replicates.

_NO_GRAM = np.empty((0, 0, 0, 0))


def add_errors(
    means: np.ndarray, target: np.ndarray, gram: np.ndarray | None, error_sums: np.ndarray, product_sums: np.ndarray
) -> np.ndarray:
    """Add errors, and their products plus gram, to sums of blocks; return (R,), true for replicates that are finite."""
    if is_on_gpu(gram):
        errors, products, defined = gpu_kernels().sum_replicates(means, gram, target, len(error_sums))
        error_sums += errors
        product_sums += products
        return defined
    defined = np.empty(len(means), np.bool_)
    sums = _in_rows(error_sums, product_sums)
    given = writable(means, float), np.atleast_2d(target), _NO_GRAM if gram is None else writable(gram, float)
    _add_errors(*given, *_memory(*(each.shape[1:] for each in sums)), *sums, defined)
    return defined


def _in_rows(*arrays: np.ndarray) -> list[np.ndarray]:
    """Return views of arrays with all axes after the first joined."""
    return [each.reshape((len(each), math.prod(each.shape[1:])), copy=False) for each in arrays]


def sum_blocks(numbers: np.ndarray, defined: np.ndarray, n_blocks: int) -> np.ndarray:
    """Return sums (B, Q, number) of numbers (R, Q, number) over the defined replicates of equal blocks."""
    if is_on_gpu(numbers):
        return gpu_kernels().sum_blocks(numbers, defined, n_blocks)
    taken = np.where(defined[:, None, None], numbers, 0.0)
    return taken.reshape(n_blocks, len(taken) // n_blocks, *taken.shape[1:]).sum(axis=1)


def mean_squares(means: np.ndarray, gram: np.ndarray | None, target: np.ndarray) -> np.ndarray:
    """Return the squared error of the average of heads plus its variance, averaged over queries: float64 (R,)."""
    if is_on_gpu(gram):
        return to_host(gpu_kernels().mean_squares(means, gram, target))[0]
    # By heads, as NumPy's mean over a short axis takes two to four times as long.
    average, targets = functools.reduce(np.add, np.moveaxis(means, 2, 0)) / means.shape[2], np.atleast_2d(target)
    errors = average.reshape(len(targets), -1, means.shape[1]) - targets[:, None]
    found = np.square(errors).mean(axis=2).reshape(len(means))
    return found if gram is None else found + mean_variances(means, gram)


def mean_variances(means: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Return the variance of the average of heads given the keys, averaged over queries: float64 (R,)."""
    if is_on_gpu(gram):
        return to_host(gpu_kernels().mean_squares(means, gram, np.zeros(means.shape[1]), 0.0))[0]
    return _in_rows(writable(gram, float))[0].mean(axis=1)


def correlations_over_queries(numbers: np.ndarray) -> np.ndarray:
    """Return correlations over queries of heads h ≠ g: float64 (R, H(H − 1)) of (R, Q, H); NaN for a constant head."""
    centred = numbers - numbers.mean(axis=1, keepdims=True)
    products = (centred[..., :, None] * centred[..., None, :]).sum(axis=1)
    sizes = np.sqrt(np.diagonal(products, axis1=1, axis2=2))
    with np.errstate(invalid="ignore"):
        return (products / (sizes[:, :, None] * sizes[:, None, :]))[:, ~np.eye(numbers.shape[2], dtype=bool)]


class PairSums(NamedTuple):
    """Sums over heads, or over ordered pairs of distinct heads, at each query: float64 (C, Q)."""

    error: np.ndarray  # second moments of errors, over heads
    variance: np.ndarray  # over heads
    second: np.ndarray  # second moments of errors, over pairs, as are the following
    covariance: np.ndarray
    correlation: np.ndarray


def sums_over_pairs(bias: np.ndarray, products: np.ndarray, overlap: np.ndarray) -> PairSums:
    """Return sums over heads and pairs at each query, from errors (C, Q, H), products (C, Q, P), overlaps (H, H)."""
    sums = np.empty((len(PairSums._fields), *bias.shape[:2]))
    arguments = (writable(each, float) for each in (bias, products, overlap))
    _sum_over_pairs(*arguments, np.empty((2, bias.shape[2])), sums)
    return PairSums(*sums)


@kernel
def _sum_over_pairs(bias, products, overlap, work, sums):
    # Second moments S = O P, covariances C = S - O b b', and correlations C[h, g] / sqrt(C[h, h] C[g, g]).
    # sums[:, c, q] = sum_h S[h, h], sum_h C[h, h], sum of S, of C and of correlations over h != g
    n_cases, n_queries, n_heads = bias.shape
    variance, inverse = work
    for c in range(n_cases):
        for q in range(n_queries):
            b, error, negative = bias[c, q], 0.0, 0
            for h in range(n_heads):
                moment = overlap[h, h] * products[c, q, h * n_heads - h * (h - 1) // 2]
                error += moment
                variance[h] = moment - overlap[h, h] * (b[h] * b[h])
                negative += variance[h] < 0.0
                inverse[h] = 1.0 / math.sqrt(abs(variance[h]))
            second = covariance = correlation = 0.0
            for h in range(n_heads):
                row, first = overlap[h], h * n_heads - h * (h - 1) // 2 - h
                of_row = 0.0
                for g in range(h + 1, n_heads):
                    moment = row[g] * products[c, q, first + g]
                    centred = moment - row[g] * (b[h] * b[g])
                    second += moment
                    covariance += centred
                    of_row += centred * inverse[g]
                correlation += of_row * inverse[h]
            sums[0, c, q], sums[1, c, q] = error, variance.sum()
            sums[2, c, q], sums[3, c, q] = 2.0 * second, 2.0 * covariance
            # Estimates of variances may be negative; heads with different signs have no correlation.
            sums[4, c, q] = 2.0 * correlation if negative in (0, n_heads) else np.nan


@kept_by_thread
def _memory(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.empty((2, *shape)) for shape in shapes]


@exact_kernel
def _add_errors(means, target, gram, errors, products, error_sums, product_sums, defined):
    # errors[0, (q, h)] = means[r, q, h] - target[q] and products[0, (q, k)] = errors[0, (q, h)] errors[0, (q, g)] +
    # gram[r, q, h, g]; errors[1] and products[1] are the sums of one block.  Separate rows for queries take longer.
    length = len(means) // max(1, len(error_sums))
    for b in range(len(error_sums)):
        errors[1], products[1], truth = 0, 0, target[b * len(target) // len(error_sums)]
        for r in range(b * length, (b + 1) * length):
            _multiply_errors(means[r], truth, gram[r : r + 1], errors[0], products[0])
            defined[r] = _finite(products[0])
            if defined[r]:
                _add(errors[0], errors[1])
                _add(products[0], products[1])
        _add(errors[1], error_sums[b])
        _add(products[1], product_sums[b])


@exact_kernel
def _multiply_errors(means, target, gram, errors, products):
    # Unsigned, as signed indices would be checked for their sign at each product.
    n_heads, step = np.uint64(means.shape[1]), np.uint64(1)
    first, k = np.uint64(0), np.uint64(0)
    for q in range(target.size):
        for h in range(n_heads):
            errors[first + h] = means[q, h] - target[q]
        for h in range(n_heads):
            for g in range(h, n_heads):
                product = errors[first + h] * errors[first + g]
                products[k] = product + gram[0, q, h, g] if gram.size else product
                k += step
        first += n_heads


@exact_kernel
def _finite(row):
    finite = True
    for k in range(row.size):
        # x - x is NaN for infinities and NaN.
        finite &= row[k] - row[k] == 0
    return finite


@exact_kernel
def _add(numbers, sums):
    for k in range(sums.size):
        sums[k] += numbers[k]
