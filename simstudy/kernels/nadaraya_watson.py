"""Nadaraya–Watson heads of many replicates: estimates, and moments given the keys.

Imports NumPy, math and jit, and elementary and tiles beside it.

The weights of head h at query q are a softmax over the keys of the logits −|k_q − k_i|²/(2b²) or k_q·k_i/b²
(Nadaraya 1964; Watson 1964; Vaswani et al. 2017).  Keys pass in tiles.  Each tile is shifted by its own lowest
score, so that no query is too far, and joins the running sums rescaled to the lowest score so far (Milakov and
Gimelshein 2018); the running sums are float64 in either precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from simstudy.jit import kernel
from simstudy.kernels.elementary import exp2_float32, exp2_float64, inlined, lowest_float32, lowest_float64
from simstudy.kernels.tiles import (
    fill_scores,
    minus_product,
    pair_products,
    square,
    weighted_sums,
    weighted_sums_kept,
)

# Index legend: r replicate, i key, q query, h and g head, k dimension of a head.
#
# score_i is |k_q − k_i|² or −k_q·k_i, and w_i = 2^(rate · (lowest score − score_i)).

_TILE = 1024
_LARGEST = np.finfo(np.float64).max
_TERMS = {"distance": (square, 0.5), "dot_product": (minus_product, 1.0)}
_FUNCTIONS = {"float32": (exp2_float32, lowest_float32), "float64": (exp2_float64, lowest_float64)}


def nw_estimates(
    projected_keys: np.ndarray, values: np.ndarray, projected_queries: np.ndarray, bandwidth: float, logits: str
) -> np.ndarray:
    """Estimate every head at every query in every replicate.

    Parameters
    ----------
    projected_keys : array (R, H, p, n), float64 or float32
        W_hᵀ X_i, feature-major; its precision is that of the computation.
    values : array (R, n)
        Y_i.
    projected_queries : array (Q, H, p) or (R, Q, H, p)
        W_hᵀ x_q: the same for all replicates, or one set for each.
    bandwidth : float
        b > 0; the softmax temperature is b².
    logits : {"distance", "dot_product"}
        −|·|²/(2b²) or (·)/b².

    Returns
    -------
    float64 array (R, Q, H)
        sum_i w_i Y_i.  NaN where it is undefined: a NaN among the keys, or no finite logit.  The bits for one
        replicate do not depend on the others.
    """
    functions, keys, queries, rate = _arguments(projected_keys, projected_queries, bandwidth, logits)
    estimates = np.empty((len(keys), queries.shape[1], keys.shape[1]))
    _estimates(*functions, keys, _writable(values, keys.dtype), queries, rate, estimates)
    return estimates


def nw_moments(
    projected_keys: np.ndarray,
    values: np.ndarray,
    variances: np.ndarray,
    projected_queries: np.ndarray,
    bandwidth: float,
    logits: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the head estimates given the keys, so that noise need not be drawn.

    Parameters
    ----------
    projected_keys, projected_queries, bandwidth, logits
        As in `nw_estimates`.
    values : array (R, n)
        m(X_i).
    variances : array (R, n)
        Var(ε_i | X_i) ≥ 0.

    Returns
    -------
    mean : float64 array (R, Q, H)
        sum_i w_hi m(X_i).
    noise_gram : float64 array (R, Q, H, H)
        sum_i w_hi w_gi Var(ε_i | X_i), symmetric to the bit; σ² times the weight Gram where the variance is σ².
        Both are NaN where `nw_estimates` is.
    """
    functions, keys, queries, rate = _arguments(projected_keys, projected_queries, bandwidth, logits)
    means = np.empty((len(keys), queries.shape[1], keys.shape[1]))
    grams = np.zeros((*means.shape, keys.shape[1]))
    scales = np.sqrt(_writable(variances, keys.dtype))
    _moments(*functions, keys, _writable(values, keys.dtype), scales, queries, rate, means, grams)
    return means, grams


def _arguments(
    projected_keys: np.ndarray, projected_queries: np.ndarray, bandwidth: float, logits: str
) -> tuple[tuple[Any, ...], np.ndarray, np.ndarray, np.floating]:
    real = projected_keys.dtype
    term, factor = _TERMS[logits]
    queries = projected_queries.reshape((-1, *projected_queries.shape[-3:]))
    b = float(bandwidth)
    # Divided twice, since b² may be out of range; where the rate is, the nearest key has all the weight.
    rate = min(factor / math.log(2.0) / b / b, float(np.finfo(real).max))
    return (term, *_FUNCTIONS[real.name]), _writable(projected_keys, real), _writable(queries, real), real.type(rate)


def _writable(x: np.ndarray, real: np.dtype) -> np.ndarray:
    # Read-only or strided arrays are other types to the compiler, and would compile every kernel again.
    return np.require(x, real, ("C", "W"))


@kernel
def _estimates(term, exp2, lowest, keys, values, queries, rate, estimates):
    # estimates[r, q, h] = sum_i w_i values[r, i] / sum_i w_i
    n_replicates, n_heads, _, n_keys = keys.shape
    n_queries = queries.shape[1]
    scores = np.empty(min(_TILE, n_keys), keys.dtype)
    state = np.empty((n_queries, 3))
    for r in range(n_replicates):
        points = queries[r if len(queries) > 1 else 0]
        for h in range(n_heads):
            for q in range(n_queries):
                _clear(state[q])
            for start in range(0, n_keys, _TILE):
                row = scores[: min(_TILE, n_keys - start)]
                y = values[r, start : start + row.size]
                for q in range(n_queries):
                    fill_scores(term, keys[r, h], start, points[q, h], row)
                    shift = lowest(row)
                    mass, total = weighted_sums(exp2, row, shift, rate, y)
                    _merge(state[q], shift, rate, mass, total)
            for q in range(n_queries):
                estimates[r, q, h] = state[q, 2] / state[q, 1]


@kernel
def _moments(term, exp2, lowest, keys, values, scales, queries, rate, means, grams):
    # means[r, q, h] = sum_i w_hi values[r, i] / W_h,  W_h = sum_i w_hi
    # grams[r, q, h, g] = sum_i w_hi w_gi scales[r, i]^2 / (W_h W_g)
    n_replicates, n_heads, _, n_keys = keys.shape
    n_queries = queries.shape[1]
    # An odd number of heads is made even by a head of zero weight.
    rows = np.zeros((n_heads + n_heads % 2, min(_TILE, n_keys)), keys.dtype)
    products = np.empty((len(rows), len(rows)))
    state = np.empty((n_queries, n_heads, 3))
    factors = np.empty((n_heads, 2))
    for r in range(n_replicates):
        points = queries[r if len(queries) > 1 else 0]
        for q in range(n_queries):
            for h in range(n_heads):
                _clear(state[q, h])
        for start in range(0, n_keys, _TILE):
            size = min(_TILE, n_keys - start)
            y, scale = values[r, start : start + size], scales[r, start : start + size]
            for q in range(n_queries):
                for h in range(n_heads):
                    row = rows[h, :size]
                    fill_scores(term, keys[r, h], start, points[q, h], row)
                    shift = lowest(row)
                    mass, total = weighted_sums_kept(exp2, row, shift, rate, y, scale)
                    factors[h, 0], factors[h, 1] = _merge(state[q, h], shift, rate, mass, total)
                pair_products(rows, size, products)
                _merge_products(grams[r, q], factors, products)
        _normalise(state, means[r], grams[r])


@inlined
def _clear(state):
    # State: lowest score so far, sum of weights, weighted sum of values.
    state[0], state[1], state[2] = _LARGEST, 0.0, 0.0


@inlined
def _merge(state, shift, rate, mass, total):
    # Return the factors that rescale the earlier sums and those of the tile.
    lower = shift if shift < state[0] else state[0]
    earlier, tile = exp2_float64(rate * (lower - state[0])), exp2_float64(rate * (lower - shift))
    state[0] = lower
    state[1] = state[1] * earlier + mass * tile
    state[2] = state[2] * earlier + total * tile
    return earlier, tile


@kernel
def _merge_products(gram, factors, products):
    for h in range(len(gram)):
        for g in range(h + 1):
            earlier, tile = factors[h, 0] * factors[g, 0], factors[h, 1] * factors[g, 1]
            gram[h, g] = gram[h, g] * earlier + products[h, g] * tile


@kernel
def _normalise(state, means, grams):
    n_queries, n_heads = means.shape
    for q in range(n_queries):
        for h in range(n_heads):
            means[q, h] = state[q, h, 2] / state[q, h, 1]
            for g in range(h + 1):
                grams[q, h, g] /= state[q, h, 1] * state[q, g, 1]
                grams[q, g, h] = grams[q, h, g]
