"""Latent vectors of consecutive tokens merged in a cache: computed for all prefixes at once, and token by token.

The claims are those of arXiv 2505.13544.

Token i of chunk j adds σ(Ac_i·Bp_j)c_i to the latent of its chunk, with c_i its own latent, normalised, and p_j the
encoding of the position of the chunk.
"""

import numpy as np
from scipy import special

from simstudy.attention.members import Array, Rows, quantities
from simstudy.attention.normalisers import softmax
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.latent_cache import LatentCacheInstance

# Index legend: r replicate, i token, m token that asks, k dimension of latents.


@quantities.register
def decode_latents(instance: LatentCacheInstance, cell: Cell, shared: SharedData) -> Rows:
    """Difference of the outputs of n_keys tokens by both ways."""
    queries, parts = _drawn(cell, shared, instance.stride)
    queries = queries / cell.bandwidth**2
    decoded = _token_by_token(queries, parts, instance.stride)
    gap = np.abs(_all_at_once(queries, parts, instance) - decoded).max(axis=(1, 2))
    return zip(gap / np.abs(decoded).max(axis=(1, 2)), strict=True)


def _drawn(cell: Cell, shared: SharedData, stride: int) -> tuple[Array, Array]:
    """Queries (r, i, k), and what each token adds to the latent of its chunk (r, i, k)."""
    n, d, p = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim
    rows = max(n, d, p)
    drawn = shared.normals(rows, d + 4 * p).swapaxes(1, 2)
    tokens = drawn[:, :n, :d]
    query, latent, own, place = (drawn[:, :, d + j * p : d + (j + 1) * p] for j in range(4))
    latents = tokens @ latent[:, :d] / np.sqrt(d)
    latents -= latents.mean(axis=2, keepdims=True)
    latents /= np.sqrt((latents**2).mean(axis=2, keepdims=True))
    # Sines and cosines at geometric frequencies (Vaswani et al. 2017): (token, k).
    k = np.arange(p)
    angles = (np.arange(n) // stride)[:, None] / 10_000.0 ** (2 * (k // 2) / p)
    places = np.where(k % 2 == 0, np.sin(angles), np.cos(angles))
    gates = special.expit(((latents @ own[:, :p]) * (places @ place[:, :p])).sum(axis=2, keepdims=True) / p)
    return tokens @ query[:, :d] / np.sqrt(d), gates * latents


def _all_at_once(queries: Array, parts: Array, instance: LatentCacheInstance) -> Array:
    """Output of every token (r, m, k) from the partial latents of all prefixes, under a mask."""
    asking, seen = np.ogrid[1 : parts.shape[1] + 1, 1 : parts.shape[1] + 1]
    stride = instance.stride
    same_chunk = (asking - 1) // stride == (seen - 1) // stride
    partial = (same_chunk & (seen <= asking)).astype(float) @ parts
    # A chunk is seen once it is complete, and the one of the token that asks as far as it goes.
    visible = (seen <= asking) & ((seen % stride == 0) | (seen == asking) | (instance.mask == "causal"))
    logits = np.where(visible, queries @ partial.swapaxes(1, 2), -np.inf)
    return softmax(logits) @ partial


def _token_by_token(queries: Array, parts: Array, stride: int) -> Array:
    """Output of every token (r, m, k) from a cache that grows by one latent for each chunk."""
    cache: list[Array] = []
    outputs = np.empty_like(parts)
    for m in range(parts.shape[1]):
        if m % stride:
            cache[-1] = cache[-1] + parts[:, m]
        else:
            cache.append(parts[:, m])
        latents = np.stack(cache, axis=1)
        weights = softmax((latents @ queries[:, m, :, None])[..., 0])
        outputs[:, m] = (weights[:, None] @ latents)[:, 0]
    return outputs
