"""What theory says of the weights of the heads of one layer, from tokens of other sequences than those it speaks of.

Of a query, the logits of every head over a pool of tokens are what a new token would give: their covariance, which is
k̂_h' Σ k̂_g for the pulled-back queries k̂ and the covariance Σ of states, decides all but `redrawn`.

Index legend: h, g head; s sequence; m token of the pool; p dimension of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simstudy.theory import logit_moments

MAX_POOL = 4096
"""Tokens of the pool that logits are computed over; more change nothing that matters."""
_REDRAWS = 64


class Pool(NamedTuple):
    """Keys (H, M, p) of tokens of many sequences, each about the mean of its own: no softmax sees that."""

    keys: np.ndarray
    freedom: float
    """Share of the tokens that the means of sequences leave free."""


def pool_of(keys: list[np.ndarray]) -> Pool:
    """Pool the keys (H, T, p) of some sequences."""
    centred = np.concatenate([each - each.mean(axis=1, keepdims=True) for each in keys], axis=1)
    n_tokens = centred.shape[1]
    kept = np.linspace(0, n_tokens - 1, min(n_tokens, MAX_POOL)).astype(int)
    return Pool(centred[:, kept], 1 - len(keys) / n_tokens)


class Predicted(NamedTuple):
    """Grams E sum_i w_hi w_gi (H, H) of one query, by source, and the covariance of its logits.

    NaN where a source does not apply; ``reason`` of ``exact``.
    """

    leading: np.ndarray
    exact: np.ndarray
    redrawn: np.ndarray
    covariance: np.ndarray
    reason: str


def predict(
    query: np.ndarray, pool: Pool, n_keys: int, scale: float, rng: np.random.Generator, *, error: bool
) -> Predicted:
    """Predict the Gram matrix of the weights of heads at one query that sees n tokens.

    Parameters
    ----------
    query : (H, p) array
    pool : Pool
    n_keys : int
    scale : float
        Of the logits.
    rng
        For tokens redrawn from the pool.
    error
        Whether to see that exact moments have converged.
    """
    logits = scale * (pool.keys @ query[:, :, None].astype(pool.keys.dtype))[:, :, 0].astype(np.float64)
    covariance = logits @ logits.T / (logits.shape[1] * pool.freedom)
    exact = logit_moments(covariance, n_keys, error=error)
    # The effective number of keys is n exp(-variance): of beyond half of ln n too few are left for a law of many.
    valid = np.diag(covariance) <= 0.5 * np.log(n_keys)
    leading = np.where(
        np.outer(valid, valid), np.exp(np.where(np.outer(valid, valid), covariance, 0.0)) / n_keys, np.nan
    )
    drawn = logits[:, rng.integers(logits.shape[1], size=(_REDRAWS, n_keys))]
    powers = np.exp(drawn - drawn.max(axis=2, keepdims=True))
    weights = (powers / powers.sum(axis=2, keepdims=True)).reshape(len(query), -1)
    return Predicted(leading, exact.gram, weights @ weights.T / _REDRAWS, covariance, exact.reason)
