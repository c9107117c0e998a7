"""Errors of heads, and sums over pairs of heads, in one pass over memory."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from simstudy.kernels.jit import exact_kernel, kernel, writable

# Index legend: r replicate, c case, q query, h and g head, k pair h ≤ g in the order of `numpy.triu_indices`.


def error_products(
    means: np.ndarray, target: np.ndarray, gram: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors of heads, and what replicates add to sums of their products: the bits of NumPy.

    Parameters
    ----------
    means : array (R, Q, H)
        Estimates, or their means given the keys.
    target : array (Q,)
        m(x_q).
    gram : array (R, Q, H, H) or None
        Covariance of the estimates given the keys, which is added to the products.

    Returns
    -------
    errors : float64 array (R, Q, H)
    products : float64 array (R, Q, P)
        Over pairs h ≤ g, in the order of `numpy.triu_indices`.
    defined : bool array (R,)
        Whether all products are finite.
    """
    n_heads = means.shape[2]
    errors = np.empty(means.shape)
    products = np.empty((*means.shape[:2], n_heads * (n_heads + 1) // 2))
    defined = np.empty(len(means), np.bool_)
    added = np.empty((0, 0, 0, 0)) if gram is None else writable(gram, float)
    _error_products(writable(means, float), writable(target, float), added, errors, products, defined)
    return errors, products, defined


def sums_over_queries(numbers: np.ndarray) -> np.ndarray:
    """Σ_q x_qh x_qg: float64 (R, H, H) from (R, Q, H)."""
    sums = np.zeros((len(numbers), numbers.shape[2], numbers.shape[2]))
    _sum_products(writable(numbers, float), sums)
    return sums


class PairSums(NamedTuple):
    """Sums over heads, or over ordered pairs of different heads, at each query: float64 (C, Q).

    Attributes
    ----------
    error, variance
        Over heads: of second moments, and of variances.
    second, covariance, correlation
        Over pairs.
    """

    error: np.ndarray
    variance: np.ndarray
    second: np.ndarray
    covariance: np.ndarray
    correlation: np.ndarray


def sums_over_pairs(bias: np.ndarray, products: np.ndarray, overlap: np.ndarray) -> PairSums:
    """Sums over pairs of heads at each query, without a matrix at each: these would pass memory many times.

    Parameters
    ----------
    bias : array (C, Q, H)
        Mean errors.
    products : array (C, Q, P)
        Mean products of errors over pairs h ≤ g, in the order of `numpy.triu_indices`.
    overlap : array (C, H, H) or (1, H, H)
        What products of numbers are multiplied with to be those of vectors.
    """
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
        shared = overlap[c % overlap.shape[0]]
        for q in range(n_queries):
            b, error, negative = bias[c, q], 0.0, 0
            for h in range(n_heads):
                own = shared[h, h] * products[c, q, h * n_heads - h * (h - 1) // 2]
                error += own
                variance[h] = own - shared[h, h] * (b[h] * b[h])
                negative += variance[h] < 0.0
                inverse[h] = 1.0 / math.sqrt(abs(variance[h]))
            second = covariance = correlation = 0.0
            for h in range(n_heads):
                row, first = shared[h], h * n_heads - h * (h - 1) // 2 - h
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
            # Estimates of a variance may be negative: heads of either sign have no correlation.
            sums[4, c, q] = 2.0 * correlation if negative in (0, n_heads) else np.nan


@exact_kernel
def _error_products(means, target, gram, errors, products, defined):
    # errors[r, q, h] = means[r, q, h] - target[q]
    # products[r, q, k] = errors[r, q, h] errors[r, q, g] + gram[r, q, h, g]
    n_replicates, n_queries, n_heads = means.shape
    for r in range(n_replicates):
        finite = True
        for q in range(n_queries):
            row, pairs = errors[r, q], products[r, q]
            for h in range(n_heads):
                row[h] = means[r, q, h] - target[q]
            for h in range(n_heads):
                some = pairs[h * n_heads - h * (h - 1) // 2 :]
                for g in range(n_heads - h):
                    some[g] = row[h] * row[h + g]
                for g in range(n_heads - h if gram.size else 0):
                    some[g] += gram[r, q, h, h + g]
            for k in range(pairs.size):
                # Of infinities and NaN the difference is NaN.
                finite &= pairs[k] - pairs[k] == 0
        defined[r] = finite


@exact_kernel
def _sum_products(numbers, sums):
    # sums[r, h, g] = sum_q numbers[r, q, h] numbers[r, q, g]
    n_replicates, n_queries, n_heads = numbers.shape
    for r in range(n_replicates):
        for q in range(n_queries):
            for h in range(n_heads):
                for g in range(n_heads):
                    sums[r, h, g] += numbers[r, q, h] * numbers[r, q, g]
