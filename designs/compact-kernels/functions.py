"""Entmax weights beside those of a compact kernel of adaptive bandwidth, and beside softmax (arXiv 2601.22766)."""

import numpy as np
from scipy.special import softmax

from simstudy import theory


def points(draw, lengths, n_keys=64, n_features=4):
    """A Gaussian query and Gaussian keys (replicate, point, feature), "raw" or, as "unit", on the sphere."""
    rows = draw.normals(n_keys + 1, n_features)
    if lengths == "unit":
        rows = rows / np.linalg.norm(rows, axis=2, keepdims=True)
    return {"query": rows[:, :1], "rows": rows[:, 1:]}


def threshold(logits, power):
    """The τ with Σ (z/r − τ)₊^r = 1 of the order r; Newton steps come from one side, as the sum is convex in τ."""
    tau = logits.max(axis=1, keepdims=True) / power - 1.0
    for _ in range(30):
        gaps = np.maximum(logits / power - tau, 0.0)
        slopes = gaps ** (power - 1) * (gaps > 0.0)
        tau = tau + ((slopes * gaps).sum(axis=1, keepdims=True) - 1.0) / (power * slopes.sum(axis=1, keepdims=True))
    return tau


def compare(query, rows, power, temperature=0.25):
    """Differences of entmax weights of logits q·k/temperature from a kernel (1 − |u|²)₊^r, and from softmax."""
    logits = (query @ rows.mT)[:, 0] / temperature
    tau = threshold(logits, power)
    weights = np.maximum(logits / power - tau, 0.0) ** power
    # On keys of one length, z/r − τ is proportional to 1 − |q − k|²/h² with this squared radius h².
    radius2 = (
        (query**2).sum(axis=2) + (rows**2).sum(axis=2).mean(axis=1, keepdims=True) - 2.0 * power * temperature * tau
    )
    kernel = np.maximum(1.0 - ((rows - query) ** 2).sum(axis=2) / np.maximum(radius2, 1e-300), 0.0) ** power
    total = kernel.sum(axis=1, keepdims=True)
    kernel = np.divide(kernel, total, out=np.zeros_like(kernel), where=total > 0.0)
    return {
        "kernel_gap": np.abs(weights - kernel).max(axis=1),
        "softmax_distance": np.abs(weights - softmax(logits, axis=1)).sum(axis=1) / 2.0,
    }


def tuned_risk_ratio(head_dim, power):
    """The least asymptotic risk of the Gaussian kernel over that of (1 − |u|²)^power, each at its best bandwidth."""
    return theory.tuned_risk_ratio(head_dim, power)
