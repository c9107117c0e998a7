"""Queries, keys and values of one layer, and the weights of its heads, for one sequence at a time.

Index legend: h head; t token that looks; s token that is looked at; p dimension of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simstudy.transformers.heads import TransformerHeads

_EPSILON = 1e-6
"""Added to mean squares of queries and keys by models that norm them."""
_SAME = 5e-3
"""Difference of weights that half precision makes."""


class Projected(NamedTuple):
    """By what the heads of one layer weigh the tokens of one sequence: (H, T, p) each, positions applied."""

    query: np.ndarray
    key: np.ndarray


def project(heads: TransformerHeads, layer: int, states: np.ndarray, places: np.ndarray | None = None) -> Projected:
    """Queries and keys of all tokens of one sequence, or of several that are laid end to end.

    States (T, d) enter the attention of the layer: after the norm, if one stands there.  Places (T,) are for rotary
    positions; 0, 1, ... by default.
    """
    places = np.arange(len(states)) if places is None else places
    return placed(heads, layer, unplaced(heads, layer, states), places)


def unplaced(heads: TransformerHeads, layer: int, states: np.ndarray) -> Projected:
    """Queries and keys as `project` gives them, before positions are applied."""
    query = states @ heads.query[layer] + heads.query_bias[layer][:, None]
    key = heads.shared_product(states, heads.key[layer]) + heads.key_bias[layer][:, None]
    if heads.query_norm is not None:
        query, key = (_normed(query, heads.query_norm[layer]), _normed(key, heads.key_norm[layer]))
    return Projected(query, key)


def placed(heads: TransformerHeads, layer: int, projected: Projected, places: np.ndarray) -> Projected:
    """Apply positions (T,), if the model has rotary ones, to queries and keys."""
    if heads.rotary_base is None:
        return projected
    return Projected(*(_rotated(each, heads.rotary_base, heads.rotary_factors[layer], places) for each in projected))


def _normed(array: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return array / np.sqrt((array**2).mean(axis=-1, keepdims=True) + _EPSILON) * weight


def _rotated(array: np.ndarray, base: float, factors: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Turn the pairs (j, j + r/2) of the first r dimensions by t base^(-2j/r) factor at place t (Su et al. 2021)."""
    half = len(factors)
    angles = np.outer(places, factors * base ** (-np.arange(half) / half)).astype(array.dtype)
    cosine, sine = np.cos(angles), np.sin(angles)
    first, second, rest = array[..., :half], array[..., half : 2 * half], array[..., 2 * half :]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine, rest], axis=-1)


def capped(logits: np.ndarray, cap: float | None) -> np.ndarray:
    """Logits cap · tanh(logit / cap), as some models have them; as they are without a cap."""
    return logits if cap is None else cap * np.tanh(logits / cap)


def visible(heads: TransformerHeads, layer: int, places: np.ndarray) -> np.ndarray | None:
    """Which tokens (S) each token (T) at these places sees, (T, S), if not all see all."""
    back, window = places[:, None] - places, heads.window[layer]
    seen = None if window is None else np.abs(back) < window
    if not heads.causal:
        return seen
    return back >= 0 if seen is None else seen & (back >= 0)


def attention_weights(
    query: np.ndarray, key: np.ndarray, scale: float, seen: np.ndarray | None = None, cap: float | None = None
) -> np.ndarray:
    """Weights (H, T, S) of every head, from queries (H, T, p) and keys (H, S, p), of which ``seen`` (T, S) are seen."""
    weights = capped(scale * (query @ key.mT), cap)
    if seen is not None:
        np.copyto(weights, -np.inf, where=~seen)
    weights -= weights.max(axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def require_attention(own: np.ndarray, given: np.ndarray, causal: bool, may_see: np.ndarray | None, where: str) -> None:
    """Refuse heads and states that do not give the attention (H, T, T) that the model itself computed, and say why."""
    if given.shape != own.shape:
        raise ValueError(f"attention of {where}: shape {given.shape}; give (head, token, token) = {own.shape}")
    if (gap := float(np.abs(own - given).max())) <= _SAME:
        return
    places = np.arange(own.shape[1])
    back, seen = places[:, None] - places, np.any(given > 0, axis=0)
    if causal and seen[back < 0].any():
        cause = "the model looks at later tokens; read the heads with causal = False"
    elif not causal and not seen[back < 0].any():
        cause = "the model looks at no later token; read the heads with causal = True"
    elif (missed := ~seen & (back >= 0) & (True if may_see is None else may_see)).any():
        cause = f"the model looks back {back[missed].min()} tokens, itself included; read the heads with that window"
    elif may_see is not None and seen[~may_see].any():
        cause = "the model looks further than the window of the heads; give its own"
    else:
        cause = (
            "states, scale or positions are others than the model's; give the states that enter attention, after the "
            "norm if one stands there"
        )
    raise ValueError(f"attention of {where}: weights differ by up to {gap:.2g} from the model's own: {cause}")
