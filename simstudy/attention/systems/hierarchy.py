"""A causal attention layer over a hierarchy of resolutions: what it is and is not equal to.

The claims are those of arXiv 2604.08829.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.normalisers import softmax
from simstudy.attention.reference import attention
from simstudy.attention.systems.draws import matrices
from simstudy.attention.systems.mixed_scores import mixed_scores
from simstudy.data.shared import SharedData
from simstudy.design.settings import HierarchyInstance
from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]

# Index legend: i and j position, k dimension of the head.

CUTS = 8
"""Positions from each of which on the sequence is changed."""


def run_hierarchy(cell: Cell, shared: SharedData) -> dict[str, Array]:
    """One causal head of head_dim on a sequence of n_keys tokens, of random projections and random convex weights."""
    instance = cell.estimator.instance
    assert isinstance(instance, HierarchyInstance)  # for the type checker
    n, d, p = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim
    draws = matrices(shared, (n, d), (3, d, p), (instance.levels,))
    rows = []
    # Stored alike, so that unchanged tokens go through the same instructions and have the same bits.
    sequences = np.ascontiguousarray(shared.keys(n).swapaxes(1, 2))
    for tokens, others, projections, logits in zip(sequences, *draws, strict=True):
        heads, causal = projections / np.sqrt(d), instance.downsampling == "causal"
        found = causal_layer(tokens @ heads, softmax(logits), causal, cell.bandwidth**2)
        gap = np.abs(found - causal_attention(tokens @ heads, cell.bandwidth**2)).max()
        change = 0.0
        for cut in np.linspace(1, n - 1, CUTS).astype(int):
            changed = np.concatenate([tokens[:cut], others[cut:]])
            outputs = causal_layer(changed @ heads, softmax(logits), causal, cell.bandwidth**2)
            change = max(change, np.abs(outputs[:cut] - found[:cut]).max())
        rows.append((gap, change))
    return dict(zip(("attention_gap", "future_effect"), np.array(rows).T, strict=True))


def causal_layer(inputs: Array, weights: Array, causal: bool, temperature: float) -> Array:
    """Softmax attention by mixed scores, the future masked, of queries, keys and values (3, i, k)."""
    queries, keys, values = inputs
    mixed = mixed_scores(queries, keys, weights, causal)
    future = np.triu(np.ones(mixed.shape, bool), 1)
    return softmax(np.where(future, -np.inf, mixed / temperature)) @ values


def causal_attention(inputs: Array, temperature: float) -> Array:
    """Ordinary attention of every position to all up to itself, by the independent reference."""
    queries, keys, values = inputs
    n, p = values.shape
    outputs = np.empty((n, p))
    for i in range(n):
        past = np.broadcast_to(keys[: i + 1].T, (p, 1, p, i + 1))
        outputs[i] = attention(queries[None, i, None, None], past, values[: i + 1].T, temperature)[:, 0, 0]
    return outputs
