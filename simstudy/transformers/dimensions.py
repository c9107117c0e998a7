"""How many dimensions the keys of a head have, from its logits and key lengths: at one temperature, so lower limits.

Index legend: h head; t token that looks; s token that is looked at; p dimension of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simstudy.transformers.attention import Projected, capped

GAPS = (10, 20, 40)
"""How many logits below the largest one are counted."""
_QUERIES = 32


class Dimensions(NamedTuple):
    """Of one layer on one sequence.

    Attributes
    ----------
    apparent : (H,) array
        -2 d ln n_eff/d ln β = 4 (E_{w²} logit - E_w logit), averaged over queries.
    log_gaps : (H, gap) array
        Mean ln(δ_k/δ_j), j < k, of the gaps δ below the largest logit, averaged over queries; its limit is 2/dimension.
        NaN where a sequence has fewer tokens.
    length_variation : (H,) array
        Deviation over mean of the lengths of keys, about the mean key: 0 on a sphere, about 1/√(2p) of Gaussian keys.
    """

    apparent: np.ndarray
    log_gaps: np.ndarray
    length_variation: np.ndarray


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
