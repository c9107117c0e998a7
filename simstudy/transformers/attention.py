"""Queries, keys and values of one layer, and the weights of its heads, for one sequence at a time.

Index legend: h head; t token that looks; s token that is looked at; p dimension of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simstudy.transformers.heads import TransformerHeads


class Projected(NamedTuple):
    """What the heads of one layer see of the tokens of one sequence: (H, T, p) each, positions applied."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray


def project(heads: TransformerHeads, layer: int, states: np.ndarray) -> Projected:
    """Queries, keys and values of all tokens of one sequence.

    Parameters
    ----------
    heads : TransformerHeads
    layer : int
    states : (T, d) array
        What enters the attention of the layer: after the norm, if one stands there.
    """
    query, key, value = (
        states @ matrix[layer] + bias[layer][:, None]
        for matrix, bias in (
            (heads.query, heads.query_bias),
            (heads.key, heads.key_bias),
            (heads.value, heads.value_bias),
        )
    )
    if heads.rotary_base is not None:
        query, key = (_rotated(array, heads.rotary_base) for array in (query, key))
    return Projected(query, key, value)


def _rotated(array: np.ndarray, base: float) -> np.ndarray:
    """Turn the pairs (j, j + p/2) of dimensions by the angle t base^(-2j/p) at place t (Su et al. 2021)."""
    half = array.shape[-1] // 2
    angles = np.outer(np.arange(array.shape[-2]), base ** (-np.arange(half) / half))
    cosine, sine = np.cos(angles), np.sin(angles)
    first, second = array[..., :half], array[..., half:]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def attention_weights(query: np.ndarray, key: np.ndarray, scale: float, causal: bool = False) -> np.ndarray:
    """Weights (H, T, S) of every head, from queries (H, T, p) and keys (H, S, p)."""
    logits = scale * (query @ key.mT)
    if causal:
        logits = np.where(np.tri(*logits.shape[1:], dtype=bool), logits, -np.inf)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
