"""Queries, keys and weights of the heads of one layer, and what they do on given sequences.

Gram matrices of weights, sinks, overlap of contributions, and dimensions of keys.  Index legend: h, g head; t token
that looks; s token that is looked at; p dimension of a head.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from simstudy.transformers.heads import TransformerHeads

_EPSILON = 1e-6
"""Added to mean squares of queries and keys by models that norm them."""
_SAME = 5e-3
"""Difference of weights that half precision makes."""
_NUMBERS_AT_A_TIME = 8_000_000
GAPS = (10, 20, 40)
"""How many logits below the largest one are counted."""
_QUERIES = 32


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
    key = heads.linear("key", layer, states)
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


class Observed(NamedTuple):
    """Of one layer on one sequence, averaged over queries."""

    gram: np.ndarray  # (H, H) sum_i w_hi w_gi
    correlation: np.ndarray  # (H, H) The same over the square root of the product of its diagonal, at each query
    sink_share: np.ndarray  # (H,) The largest part of a head's weight that one token gets
    end_share: np.ndarray  # (H, 2) The parts that the first and the last token get, over queries that see them
    output_size: np.ndarray  # (H,) Mean square of what a head adds to the residual stream, NaN where not known


def observe(
    heads: TransformerHeads, layer: int, projected: Projected, seen: np.ndarray | None, values: np.ndarray | None = None
) -> Observed:
    """Compute the weights of one layer on one sequence, some queries at a time, and reduce them.

    ``seen`` (T, T) is as `visible` gives it.  Values (H, T, p) tell what heads add.
    """
    n_heads, n_tokens, _ = projected.query.shape
    size = max(1, _NUMBERS_AT_A_TIME // (n_heads * n_tokens))
    gram, correlation = np.zeros((2, n_heads, n_heads))
    received = np.zeros((n_heads, n_tokens))
    sizes = np.full(n_heads, np.nan if values is None else 0.0)
    if values is not None:  # the norm of W_o x follows from the p by p matrix of its products, which is small
        products = heads.output[layer].mT @ heads.output[layer] / heads.output.shape[2]
    for start in range(0, n_tokens, size):
        block = slice(start, start + size)
        of_block = None if seen is None else seen[block]
        weights = attention_weights(projected.query[:, block], projected.key, heads.scale, of_block, heads.cap)
        grams, correlations = grams_of(weights)
        gram += grams.sum(axis=0)
        correlation += correlations.sum(axis=0)
        received += weights.sum(axis=1)
        if values is not None:
            mixed = weights @ values
            sizes += np.sum(mixed @ products * mixed, axis=(1, 2))
    looking = n_tokens if seen is None else seen[:, [0, -1]].sum(axis=0)
    gram, correlation, sizes, most = (each / n_tokens for each in (gram, correlation, sizes, received.max(axis=1)))
    return Observed(gram, correlation, most, received[:, [0, -1]] / looking, sizes)


def grams_of(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums w_hi w_gi (T, H, H) of each query, from weights (H, T, S), and the same as correlations."""
    by_query = weights.transpose(1, 0, 2)
    grams = (by_query @ by_query.mT).astype(np.float64)
    return grams, normalised(grams)


def normalised(grams: np.ndarray) -> np.ndarray:
    """Grams (..., H, H) over the square root of the product of their diagonals."""
    deviations = np.sqrt(np.diagonal(grams, axis1=-2, axis2=-1))
    return grams / (deviations[..., :, None] * deviations[..., None, :])


def contribution_overlap(heads: TransformerHeads, layer: int) -> np.ndarray:
    """Covariance (H, H) of what two heads add to the residual stream if they look at one token of white noise.

    Summed over features: tr(OV_h' OV_g), OV_h = W_o W_v' of head h.
    """
    values, outputs = (np.concatenate(list(part[layer]), axis=1) for part in (heads.value, heads.output))
    # A trace of a product of four is a sum over two products of two, which are small.
    both = (outputs.T @ outputs) * (values.T @ values)
    n_heads, _, p = heads.value[layer].shape
    return both.reshape(n_heads, p, n_heads, p).sum(axis=(1, 3))


def logit_rank(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Effective rank (H,) of the form that gives logits, between whitened tokens: (sum s²)² / sum s⁴, s singular.

    Queries and keys (H, N, p) are of many tokens, keys about the mean of their sequence.  NaN of a head that gives all
    tokens one logit.
    """
    product = (query.mT @ query / query.shape[1]) @ (key.mT @ key / key.shape[1])
    trace = np.trace(product, axis1=1, axis2=2)
    with np.errstate(invalid="ignore"):
        return trace**2 / np.trace(product @ product, axis1=1, axis2=2)


def mean_correlation(heads: TransformerHeads, texts: list[np.ndarray]) -> np.ndarray:
    """Correlations (L, H, H) of weights, averaged over the states (L, T, d) of texts."""
    return np.mean([[_seen(heads, *each) for each in enumerate(states)] for states in texts], axis=0)


def _seen(heads: TransformerHeads, layer: int, states: np.ndarray) -> np.ndarray:
    mask = visible(heads, layer, np.arange(len(states)))
    return observe(heads, layer, project(heads, layer, states), mask).correlation


def correlations_by_query(decoder: Any, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Correlations (L, T, H, H) of weights at each query of each text, as they are in the forward pass."""
    found: list[np.ndarray] = []

    def see(_: int, weights: np.ndarray) -> np.ndarray:
        found.append(grams_of(weights)[1])
        return weights

    decoder.states(texts, see)
    return [np.array(found[s :: len(texts)]) for s in range(len(texts))]


def by_group(correlation: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Mean correlations (..., every two groups of every layer) of correlations (..., L, H, H), as `agreement` says."""
    first, second = np.triu_indices(groups.shape[1], 1)
    pairs = correlation[..., first, second].reshape(*correlation.shape[:-3], -1)
    ends = np.sort([groups[:, first], groups[:, second]], axis=0)
    own = ((np.arange(len(groups))[:, None] * groups.shape[1] + ends[0]) * groups.shape[1] + ends[1]).ravel()
    order = np.argsort(own, kind="stable")
    _, starts, counts = np.unique(own[order], return_index=True, return_counts=True)
    return np.add.reduceat(pairs[..., order], starts, axis=-1) / counts if len(starts) else pairs


class Dimensions(NamedTuple):
    """How many dimensions keys have, of one layer on one sequence: at one temperature, so lower limits."""

    apparent_dimension: np.ndarray  # (H,) -2 d ln n_eff/d ln β = 4 (E_{w²} logit - E_w logit), averaged over queries
    # (H, gap) Mean ln(δ_k/δ_j), j < k, of the gaps δ below the largest logit, averaged over queries: its limit is
    # 2/dimension; NaN where a sequence has fewer tokens
    log_gaps: np.ndarray
    key_length_variation: np.ndarray  # (H,) Deviation over mean of the lengths of keys, about the mean key


def dimensions(projected: Projected, scale: float, seen: np.ndarray | None, cap: float | None = None) -> Dimensions:
    """Estimate them at some queries; no token looks at itself, and each sees at least two others if any does.

    ``seen`` (T, T) is as `visible` gives it.
    """
    key, n_tokens = projected.key, projected.key.shape[1]
    lengths = np.linalg.norm(key - key.mean(axis=1, keepdims=True), axis=-1)
    seen = np.ones((n_tokens, n_tokens), bool) if seen is None else seen
    counts = seen.sum(axis=1)
    able = np.flatnonzero(counts >= min(3, counts.max()))
    places = np.intersect1d(np.linspace(able[0], able[-1], _QUERIES).astype(int), able)
    seen = seen[places] & (places[:, None] != np.arange(n_tokens))
    logits = capped(scale * (projected.query[:, places] @ key.mT), cap)
    logits = np.where(seen, logits, -np.inf).astype(np.float64)
    below = -np.sort(-logits, axis=-1)
    gaps = below[..., :1] - below[..., 1:]
    powers = np.exp(logits - below[..., :1])
    finite = np.where(seen, logits, 0.0)
    once, twice = ((finite * each).sum(axis=-1) / each.sum(axis=-1) for each in (powers, powers**2))
    spreads = np.stack([_spread(gaps, count) for count in GAPS], axis=-1)
    return Dimensions(4.0 * (twice - once).mean(axis=1), spreads, lengths.std(axis=1) / lengths.mean(axis=1))


def _spread(gaps: np.ndarray, count: int) -> np.ndarray:
    """Mean ln(δ_k/δ_j), (H,), of gaps (H, t, s) in rising order, over queries that see enough tokens; ties left out."""
    enough = np.isfinite(gaps[0, :, count - 1]) if gaps.shape[2] >= count else np.zeros(gaps.shape[1], bool)
    first = gaps[:, enough, :count]
    if not first.size:
        return np.full(len(gaps), np.nan)
    logs = np.log(np.where(first > 0.0, first, np.nan))
    return np.asarray(np.nanmean(logs[..., -1:] - logs[..., :-1], axis=(1, 2)))
