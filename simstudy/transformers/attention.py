"""Queries, keys and values of one layer, and the weights of its heads, for one sequence at a time.

Index legend: h head; t token that looks; s token that is looked at; p dimension of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simstudy.transformers.heads import TransformerHeads


class Projected(NamedTuple):
    """By what the heads of one layer weigh the tokens of one sequence: (H, T, p) each, positions applied."""

    query: np.ndarray
    key: np.ndarray


def project(heads: TransformerHeads, layer: int, states: np.ndarray, places: np.ndarray | None = None) -> Projected:
    """Queries and keys of all tokens of one sequence, or of several that are laid end to end.

    Parameters
    ----------
    heads : TransformerHeads
    layer : int
    states : (T, d) array
        What enters the attention of the layer: after the norm, if one stands there.
    places : (T,) array, optional
        Positions of the tokens, for rotary ones; 0, 1, ... by default.
    """
    query, key = (
        states @ matrix[layer] + bias[layer][:, None]
        for matrix, bias in ((heads.query, heads.query_bias), (heads.key, heads.key_bias))
    )
    if heads.rotary_base is not None:
        places = np.arange(len(states)) if places is None else places
        query, key = (_rotated(array, heads.rotary_base, places) for array in (query, key))
    return Projected(query, key)


def _rotated(array: np.ndarray, base: float, places: np.ndarray) -> np.ndarray:
    """Turn the pairs (j, j + p/2) of dimensions by the angle t base^(-2j/p) at place t (Su et al. 2021)."""
    half = array.shape[-1] // 2
    angles = np.outer(places, base ** (-np.arange(half) / half)).astype(array.dtype)
    cosine, sine = np.cos(angles), np.sin(angles)
    first, second = array[..., :half], array[..., half:]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def attention_weights(query: np.ndarray, key: np.ndarray, scale: float, first: int | None = None) -> np.ndarray:
    """Weights (H, T, S) of every head, from queries (H, T, p) and keys (H, S, p).

    Parameters
    ----------
    query, key : arrays
    scale : float
    first : int, optional
        Place of the first of the queries among the keys, if each sees the keys up to its own place only.
    """
    logits = scale * (query @ key.mT)
    if first is not None:
        logits = np.where(np.tri(logits.shape[1], logits.shape[2], first, dtype=bool), logits, -np.inf)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
