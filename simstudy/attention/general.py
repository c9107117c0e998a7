"""Heads of any normaliser: weights as arrays, of one replicate and some of its queries at a time."""

from __future__ import annotations

import numpy as np

from simstudy.attention.normalisers import Array, normalise, tilted
from simstudy.attention.transformations import Inputs
from simstudy.design.settings.mechanisms import LocalLinearNormaliser, Normaliser

# Index legend: r replicate, q query, h and g head, k dimension of a head, i key.

BLOCK_BYTES = 1 << 20
"""Largest array of weights held at once, one query of one replicate apart: it stays in the second-level cache."""


def moments(inputs: Inputs, bandwidth: float, logits: str, normaliser: Normaliser) -> tuple[Array, Array | None]:
    """Return what the kernels return, for any normaliser: Σ_i w_hi Y_i, (r, q, h), and Σ_i w_hi w_gi Var_i."""
    n_replicates, n_heads, _, n_keys = inputs.keys.shape
    n_queries = inputs.queries.shape[-3]
    means = np.empty((n_replicates, n_queries, n_heads))
    gram = None if inputs.variances is None else np.empty((*means.shape, n_heads))
    step = max(1, BLOCK_BYTES // (8 * n_heads * n_keys))
    # One replicate at a time, so that its bits do not depend on the others.
    for r in range(n_replicates):
        keys = np.ascontiguousarray(inputs.keys[r], np.float64)
        points = (inputs.queries[r] if inputs.queries.ndim == 4 else inputs.queries).astype(np.float64)
        for first in range(0, n_queries, step):
            part = slice(first, first + step)
            weights = normalise(normaliser, scores(keys, points[part], bandwidth, logits))
            if isinstance(normaliser, LocalLinearNormaliser):
                weights = tilted(weights, keys, points[part], normaliser.ridge * bandwidth**2)
            means[r, part] = np.einsum("qhi,i->qh", weights, inputs.values[r].astype(np.float64))
            if gram is not None and inputs.variances is not None:
                gram[r, part] = np.einsum("qhi,qgi->qhg", weights * inputs.variances[r], weights)
    return means, gram


def scores(keys: Array, queries: Array, bandwidth: float, logits: str) -> Array:
    """Logits (q, h, i) of keys (h, k, i) at queries (q, h, k): −|k_q − k_i|²/(2b²) or k_q·k_i/b²."""
    total = np.zeros((len(queries), len(keys), keys.shape[-1]))
    for k in range(keys.shape[1]):
        if logits == "distance":
            total -= (keys[None, :, k] - queries[:, :, k, None]) ** 2 / 2.0
        else:
            total += keys[None, :, k] * queries[:, :, k, None]
    return total / bandwidth**2
