"""Patterns of attention of low rank (Bhojanapalli and others, 2020): the best head of few dimensions."""

import numpy as np
from scipy.special import softmax


def patterns(draw, n_features, n_tokens=16):
    """Normal tokens (replicate, token, feature), and normal logits of every token (replicate, query, key)."""
    return {"tokens": draw.normals(n_tokens, n_features), "logits": draw.normals(n_tokens, n_tokens)}


def best_head(tokens, logits, head_dim):
    """Errors of the head whose logits are nearest to the pattern; no weight depends on the mean of a query's logits."""
    centred = logits - logits.mean(axis=2, keepdims=True)
    differences = tokens - tokens.mean(axis=1, keepdims=True)
    inverse, other = (np.linalg.pinv(rows, rcond=1e-10) for rows in (tokens, differences))
    # Of all logits that tokens allow, the nearest of rank head_dim (Eckart and Young 1936).
    u, sizes, vh = np.linalg.svd(tokens @ inverse @ centred @ differences @ other)
    nearest = (u * sizes[:, None])[..., :head_dim] @ vh[:, :head_dim]
    scores = tokens @ (inverse @ nearest @ other.mT) @ tokens.mT
    missed = scores - scores.mean(axis=2, keepdims=True) - centred
    weights = softmax(scores, axis=2) - softmax(logits, axis=2)
    return {
        "pattern_error": (missed**2).sum(axis=(1, 2)) / (centred**2).sum(axis=(1, 2)),
        "pattern_distance": np.abs(weights).sum(axis=2).mean(axis=1) / 2.0,
    }


def wide_heads(n_features, head_dim, n_tokens=16):
    """Expected error of heads as wide as the tokens let them be.

    Of n(n − 1) normal numbers, the logits of n queries minus their means, tokens of d features show min(n, d) by
    min(n − 1, d) of whatever directions they span: the share of their squares has a beta distribution.
    """
    inside = min(n_tokens - 1, n_features)
    shown = min(n_tokens, n_features) * inside / (n_tokens * (n_tokens - 1))
    return {"pattern_error": 1.0 - shown} if head_dim >= inside else {}
