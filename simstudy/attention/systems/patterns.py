"""Patterns of attention that a head of given dimension can and cannot draw.

The claim is that of Bhojanapalli and others (2020): a head of dimension p < n has scores of rank p at most.
"""

from __future__ import annotations

import numpy as np

from simstudy.attention.members import Array, by_name, matrices, measure
from simstudy.attention.normalisers import softmax
from simstudy.attention.reference import attention
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.patterns import PatternInstance

# Index legend: i query, j key, m feature, k dimension of the head.


@measure.register
def draw_pattern(instance: PatternInstance, cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Errors of the head of head_dim whose logits are nearest to those of the pattern, at every query together."""
    n, d, p = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim
    rows = []
    for tokens, logits in zip(*matrices(shared, (n, d), (n, n)), strict=True):
        centred = logits - logits.mean(axis=1, keepdims=True)
        query, key = nearest_head(tokens, centred, p)
        queries, keys = tokens @ query, tokens @ key
        scores = queries @ keys.T
        missed = scores - scores.mean(axis=1, keepdims=True) - centred
        drawn = attention(queries[None, :, None], keys.T[None, None], np.eye(n)[None], 1.0)[0, :, 0]
        distance = np.abs(drawn - softmax(logits)).sum(axis=1).mean() / 2.0
        rows.append(((missed**2).sum() / (centred**2).sum(), distance))
    return by_name(instance, rows)


def nearest_head(tokens: Array, centred: Array, head_dim: int) -> tuple[Array, Array]:
    """Projections (m, k) of tokens (i, m) with scores next to centred logits (i, j) (Eckart and Young 1936)."""
    differences = tokens - tokens.mean(axis=0)
    left, right = (np.linalg.svd(each, full_matrices=False) for each in (tokens, differences))
    # Centring takes a dimension, if there are as many as tokens.
    inside = min(tokens.shape[1], len(tokens) - 1)
    towards = right.U[:, :inside]
    first, sizes, second = np.linalg.svd(left.U.T @ centred @ towards, full_matrices=False)
    roots = np.sqrt(sizes[:head_dim])
    query = (left.Vh.T / left.S) @ (first[:, :head_dim] * roots)
    key = (right.Vh.T[:, :inside] / right.S[:inside]) @ (second[:head_dim].T * roots)
    return query, key
