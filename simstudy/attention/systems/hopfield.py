"""Attention with the hidden state of a modern Hopfield network: logits remember those of former layers.

The claims are those of arXiv 2511.20698.

The hidden state of a layer is h_l = α'h_{l−1} + (1 − α')s_l, s_l the logits of the layer, from h_1 = s_1 on.
"""

import numpy as np

from simstudy.attention.members import Array, Rows, quantities
from simstudy.attention.normalisers import softmax
from simstudy.attention.reference import attention
from simstudy.data.geometry import exp_entropy
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.hopfield import HopfieldNoiseInstance, HopfieldTowerInstance

# Index legend: r replicate, l layer, i token, j feature, k dimension of the head.


@quantities.register
def remember_noise(instance: HopfieldNoiseInstance, cell: Cell, shared: SharedData) -> Rows:
    """Second moment of the hidden states of n_keys logits with expectation 0."""
    drawn = shared.normals(cell.data.n_keys, 1 + instance.layers)
    common, own = np.sqrt(instance.persistence), np.sqrt(1.0 - instance.persistence)
    state = common * drawn[:, 0] + own * drawn[:, 1]
    for layer in range(2, 1 + instance.layers):
        logits = common * drawn[:, 0] + own * drawn[:, layer]
        state = instance.memory * state + (1.0 - instance.memory) * logits
    return zip((state**2).mean(axis=1), strict=True)


@quantities.register
def climb_tower(instance: HopfieldTowerInstance, cell: Cell, shared: SharedData) -> Rows:
    """Tokens after the last layer, beside those of ordinary attention; weights of that layer, beside a product."""
    tokens, projections = _drawn(cell, shared, instance)
    plain, state, pool, n = tokens, np.zeros(()), np.ones(()), cell.data.n_keys
    cosines, ranks = [], []
    for layer, (query, key, value) in enumerate(projections):
        logits = _images(cell, tokens @ query) @ _images(cell, tokens @ key).swapaxes(1, 2) / cell.bandwidth**2
        memory = instance.memory if layer else 0.0
        state = memory * state + (1.0 - memory) * logits
        # The same as a product of kernels, each layer to its power.
        pool = pool**memory * softmax(logits) ** (1.0 - memory)
        tokens = instance.skip * tokens + (1.0 - instance.skip) * softmax(state) @ (tokens @ value)
        units = tokens / np.linalg.norm(tokens, axis=2, keepdims=True)
        cosines.append(((units.sum(axis=1) ** 2).sum(axis=1) - n) / (n * (n - 1)))
        sizes = np.linalg.svd(tokens, compute_uv=False) ** 2
        ranks.append(exp_entropy(sizes / sizes.sum(axis=1, keepdims=True)))
        # Attention without a memory.
        queries, keys = _images(cell, plain @ query)[:, :, None], _images(cell, plain @ key).swapaxes(1, 2)[:, None]
        output = attention(queries, keys, plain @ value, cell.bandwidth**2)[:, :, 0]
        plain = instance.skip * plain + (1.0 - instance.skip) * output
    means = np.mean(cosines, axis=0), np.mean(ranks, axis=0)
    ordinary = np.abs(tokens - plain).max(axis=(1, 2)) / np.abs(plain).max(axis=(1, 2))
    pooled = np.abs(softmax(state) - pool / pool.sum(axis=2, keepdims=True)).max(axis=(1, 2))
    return zip(cosines[-1], ranks[-1], *means, ordinary, pooled, strict=True)


def _drawn(cell: Cell, shared: SharedData, instance: HopfieldTowerInstance) -> tuple[Array, list[list[Array]]]:
    """Tokens (r, i, j); of each layer query, key (r, j, k) and value projection (r, j, j), of variance 1/d."""
    n, d, p = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim
    n_layers = 1 if instance.projections == "tied" else instance.layers
    columns = 2 * p + d
    drawn = shared.normals(max(n, d), d + n_layers * columns)
    layers = []
    for first in range(d, d + n_layers * columns, columns):
        weights = drawn[:, first : first + columns, :d].swapaxes(1, 2) / np.sqrt(d)
        layers.append(np.split(weights, [p, 2 * p], axis=2))
    return drawn[:, :d, :n].swapaxes(1, 2), layers * (instance.layers // n_layers)


def _images(cell: Cell, projected: Array) -> Array:
    """Queries or keys (r, i, k), of length √k where the setting key_scale says so."""
    if cell.estimator.key_scale == "raw":
        return projected
    return projected / np.sqrt((projected**2).mean(axis=2, keepdims=True))
