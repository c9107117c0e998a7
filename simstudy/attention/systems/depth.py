"""How alike tokens become with depth, in layers of random attention with and without residual connections.

The claim is one of arXiv 2604.23681; rank collapse is that of Dong, Cordonnier and Loukas (2021).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.normalisers import softmax
from simstudy.attention.systems.draws import matrices
from simstudy.attention.systems.layer_norm import layer_norm
from simstudy.data.shared import SharedData
from simstudy.design.settings import DepthInstance
from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]

# Index legend: t position, h head, k dimension of a head, m feature of the model.

VISIBLE = 1e-6
"""Differences of tokens below this share of the tokens themselves are lost."""


def descend(cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Differences of n_keys tokens of n_features after layers of n_heads heads, without feed-forward blocks."""
    instance = cell.estimator.instance
    assert isinstance(instance, DepthInstance)  # for the type checker
    n, d, n_heads, p = cell.data.n_keys, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim
    # Queries, keys, values and outputs of one layer after the other: a deeper stack begins with the same layers.
    layers = matrices(shared, (n, d), *[(4, n_heads, p, d)] * instance.depth)
    rows = []
    for tokens, *weights in zip(*layers, strict=True):
        for query, key, value, output in weights:
            inputs = layer_norm(tokens) if instance.normalisation == "layer_norm" else tokens
            branch = attention_layer(inputs, query, key, value, output)
            tokens = branch if instance.residual == "none" else tokens + share(instance) * branch
        apart = tokens - tokens.mean(axis=0)
        size = np.linalg.norm(tokens)
        visible = np.linalg.svd(apart, compute_uv=False) > VISIBLE * size
        rows.append((np.linalg.norm(apart) / size, visible.sum()))
    return dict(zip(("token_spread", "visible_rank"), np.array(rows, np.float64).T, strict=True))


def share(instance: DepthInstance) -> float:
    """Factor of what a layer adds to the residual stream."""
    return 1.0 / np.sqrt(instance.depth) if instance.residual == "scaled" else 1.0


def attention_layer(tokens: Array, query: Array, key: Array, value: Array, output: Array) -> Array:
    """Σ_h softmax(QK'/√p)V O of tokens (t, m) by standard normal weights (h, k, m), scaled to keep their size."""
    n_heads, p, d = query.shape
    projected = [np.einsum("tm,hkm->htk", tokens, weights) / np.sqrt(d) for weights in (query, key, value)]
    weights = softmax(projected[0] @ projected[1].swapaxes(1, 2) / np.sqrt(p))
    return np.einsum("htk,hkm->tm", weights @ projected[2], output) / np.sqrt(n_heads * p)
