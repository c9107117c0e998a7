"""Attention in the notation of machine learning, an independent computation to compare with Nadaraya–Watson heads.

Logits, weights, tokens and concatenated heads are arrays.  No code is shared with the kernels.
Index legend: r replicate, q query, h head, k dimension of a head, i key, j token feature.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Visible = NDArray[np.bool_] | None
"""Mask (q, i), true for keys that a query sees; None for all keys."""


class MultiHeadAttention(NamedTuple):
    """A layer on tokens (X, Y) with d + 1 features: query, key, value (head, token feature, k), output (head, k)."""

    query: Array
    key: Array
    value: Array
    output: Array


def attention(queries: Array, keys: Array, values: Array, temperature: float, visible: Visible = None) -> Array:
    """Return scaled dot-product attention (Vaswani et al. 2017), (r, q, h) or (r, q, h, j), for keys (r, h, k, i)."""
    weights = _softmax(queries.swapaxes(1, 2) @ keys / temperature, visible)
    heads = (weights @ values.reshape(len(values), 1, keys.shape[3], -1)).swapaxes(1, 2)
    return heads.reshape(*heads.shape[:3], *values.shape[2:])


def _softmax(logits: Array, visible: Visible) -> Array:
    """Return softmax weights of logits (r, h, q, i)."""
    if visible is not None:
        logits = np.where(visible, logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def layer(key: Array, query: Array, combination: Array) -> MultiHeadAttention:
    """Return a layer on tokens (X, Y) whose output is Σ_h a_h Σ_i w_hi Y_i, with projections (h, d, k), a (h,)."""
    n_heads, d, k = key.shape
    no_outcome = np.zeros((n_heads, 1, k))
    direction = np.cos(np.arange(1.0, k + 1.0)) + 2.0
    value = np.concatenate([np.zeros((n_heads, d, k)), np.broadcast_to(direction, (n_heads, 1, k))], axis=1)
    output = combination[:, None] * direction / (direction @ direction)
    # Query and key projections ignore outcomes.
    return MultiHeadAttention(
        np.concatenate([query, no_outcome], axis=1), np.concatenate([key, no_outcome], axis=1), value, output
    )


def multi_head_attention(
    weights: MultiHeadAttention, points: Array, tokens: Array, temperature: float, visible: Visible = None
) -> Array:
    """Return the projected concatenation of heads for each replicate, (r, q)."""
    q, k, v = points @ weights.query, tokens[:, None] @ weights.key, tokens[:, None] @ weights.value
    heads = (_softmax(q @ k.mT / temperature, visible) @ v).swapaxes(1, 2)
    return heads.reshape(*heads.shape[:2], -1) @ weights.output.reshape(-1)


def torch_multi_head_attention(
    weights: MultiHeadAttention, points: Array, tokens: Array, temperature: float, visible: Visible = None
) -> Array:
    """Return the same as `multi_head_attention`, by `torch.nn.MultiheadAttention` on padded tokens."""
    import torch

    n_heads, n_features, k = weights.key.shape
    width = n_heads * k * -(-n_features // (n_heads * k))
    size = width // n_heads
    module = torch.nn.MultiheadAttention(width, n_heads, bias=False, batch_first=True, dtype=torch.float64)

    def stacked(projections: Array) -> Array:
        padded = np.zeros((n_heads, size, width))
        padded[:, :k, :n_features] = projections.swapaxes(1, 2)
        return padded.reshape(width, width)

    output = np.zeros((width, n_heads, size))
    output[0, :, :k] = weights.output
    inputs = np.concatenate([stacked(weights.query) * np.sqrt(size) / temperature, *map(stacked, weights[1:3])])
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.from_numpy(inputs))
        module.out_proj.weight.copy_(torch.from_numpy(output.reshape(width, width)))
        padding = ((0, 0), (0, 0), (0, width - n_features))
        # The reference is in double precision, whatever the precision of the ensemble.
        memory = torch.from_numpy(np.pad(tokens.astype(np.float64), padding))
        question = torch.from_numpy(np.pad(np.broadcast_to(points, (len(tokens), *points.shape)), padding))
        hidden = None if visible is None else torch.from_numpy(~visible)
        result, _ = module(question, memory, memory, need_weights=False, attn_mask=hidden)
    return result[..., 0].numpy()
