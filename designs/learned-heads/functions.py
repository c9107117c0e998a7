"""Heads trained to solve new linear tasks in context (arXiv 2503.12734): signs of output weights, and error.

Given the coordinates z_i of tokens along a query of length l, heads predict Σ_i w_i y_i, w = Σ_h o_h softmax(k_h l z).
Over tasks, noise, and what tokens are across the query, the mean squared error is

    L = (σ² + (d − 1)/d) |w|² + (w'z − l)²/d.

Index legend: r replicate; b prompt; h head; i token.
"""

import numpy as np

PROMPTS, TESTED = 8, 256  # new prompts in each step, and prompts on which the error is measured


def prompts(draw, n_heads, steps=200, n_tokens=60, n_features=6):
    """Weights before training, and prompts: tokens along the query, and the length of the query."""
    rngs = draw.generators()
    start = np.stack([0.1 * rng.standard_normal((2, n_heads)) for rng in rngs])
    drawn = np.stack([rng.standard_normal((steps * PROMPTS + TESTED, n_tokens + n_features)) for rng in rngs])
    return {"start": start, "z": drawn[..., :n_tokens], "length": np.linalg.norm(drawn[..., n_tokens:], axis=2)}


def train(start, z, length, outputs, steps=200, rate=0.1, n_features=6, noise_sd=0.5):
    """Signs and error after stochastic gradient descent, whose steps fall linearly; ``outputs`` "any" or "positive"."""
    least = 0.0 if outputs == "positive" else -np.inf
    k, o = start[:, 0], np.abs(start[:, 1]) if outputs == "positive" else start[:, 1]
    for step in range(steps):
        batch = slice(step * PROMPTS, (step + 1) * PROMPTS)
        _, pull, turn = descent(k, o, z[:, batch], length[:, batch], n_features, noise_sd)
        size = rate * (1.0 - step / steps)
        k, o = k - size * turn, np.maximum(o - size * pull, least)
    new = slice(steps * PROMPTS, None)
    total = np.abs(o).sum(axis=1)
    return {
        "both_signs": (o.min(axis=1) < 0.0) & (o.max(axis=1) > 0.0),
        "output_sum": np.abs(o.sum(axis=1)) / np.where(total > 0.0, total, 1.0),
        "matched_signs": (o * k > 0.0).mean(axis=1),
        "in_context_risk": descent(k, o, z[:, new], length[:, new], n_features, noise_sd)[0],
    }


def descent(k, o, z, length, n_features, noise_sd):
    """Mean over prompts of the error L (r,) and its gradients in o and in k (r, h)."""
    logits = k[:, None, :, None] * (length[..., None] * z)[:, :, None]
    heads = np.exp(logits - logits.max(axis=3, keepdims=True))
    heads /= heads.sum(axis=3, keepdims=True)
    w = (o[:, None, None] @ heads)[:, :, 0]
    spread, missed = noise_sd**2 + (n_features - 1.0) / n_features, (w * z).sum(axis=2) - length
    error = spread * (w * w).sum(axis=2) + missed**2 / n_features
    slope = 2.0 * (spread * w + missed[..., None] * z / n_features)
    pull, seen, both = np.moveaxis(heads @ np.stack([slope, z, slope * z], axis=3), 3, 0)
    turn = (both - seen * pull) * o[:, None] * length[..., None]
    return error.mean(axis=1), pull.mean(axis=1), turn.mean(axis=1)
