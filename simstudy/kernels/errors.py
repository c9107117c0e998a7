"""Errors of heads, and their products over pairs: the bits of NumPy, in one pass."""

from __future__ import annotations

import numpy as np

from simstudy.kernels.jit import exact_kernel, writable

# Index legend: r replicate, q query, h and g head, k pair h ≤ g in the order of `numpy.triu_indices`.


def error_products(
    means: np.ndarray, target: np.ndarray, gram: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors of heads, and what replicates add to sums of their products.

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
