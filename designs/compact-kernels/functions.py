"""Entmax and normalised ReLU attention beside compact kernels, and entmax beside softmax (arXiv 2601.22766)."""

import numpy as np
from scipy.special import gamma, softmax


def points(draw, lengths, n_keys=64, n_features=4):
    """A Gaussian query, Gaussian keys (replicate, point, feature), "raw" or, as "unit", on the sphere, and values."""
    rows = draw.normals(n_keys + 1, n_features)
    if lengths == "unit":
        rows = rows / np.linalg.norm(rows, axis=2, keepdims=True)
    return {"query": rows[:, :1], "rows": rows[:, 1:], "values": draw.normals(n_keys)}


def threshold(logits, power):
    """The τ with Σ (z/r − τ)₊^r = 1 of the order r; Newton steps come from one side, as the sum is convex in τ."""
    tau = logits.max(axis=1, keepdims=True) / power - 1.0
    for _ in range(30):
        gaps = np.maximum(logits / power - tau, 0.0)
        slopes = gaps ** (power - 1) * (gaps > 0.0)
        tau = tau + ((slopes * gaps).sum(axis=1, keepdims=True) - 1.0) / (power * slopes.sum(axis=1, keepdims=True))
    return tau


def normalised(weights):
    """Weights of sum 1; those of an empty window stay 0."""
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0.0)


def compare(query, rows, values, power, temperature=0.25, cut=1.0):
    """Differences of entmax from a kernel (1 − |u|²)₊^r and from softmax, and of normalised ReLU from Epanechnikov's.

    The logits are z = q·k/temperature.  The radius of the kernel is another for each query, or for ReLU one.
    """
    logits = (query @ rows.mT)[:, 0] / temperature
    tau = threshold(logits, power)
    # On keys of one length, z − c is proportional to 1 − |q − k|²/h² with the squared radius h² = |q|² + |k|² − 2 c g.
    lengths = (query**2).sum(axis=2) + (rows**2).sum(axis=2).mean(axis=1, keepdims=True)
    distances = ((rows - query) ** 2).sum(axis=2)

    def kernel(c, r):
        return normalised(np.maximum(1.0 - distances / np.maximum(lengths - 2.0 * temperature * c, 1e-300), 0.0) ** r)

    entmax = np.maximum(logits / power - tau, 0.0) ** power
    gap, relu_gap = entmax - kernel(power * tau, power), normalised(np.maximum(logits - cut, 0.0)) - kernel(cut, 1)
    return {
        "kernel_gap": np.abs(gap).max(axis=1),
        "estimate_gap": np.abs((gap * values).sum(axis=1)),
        "relu_gap": np.abs((relu_gap * values).sum(axis=1)),
        "softmax_distance": np.abs(entmax - softmax(logits, axis=1)).sum(axis=1) / 2.0,
    }


def tuned_risk_ratio(head_dim, power):
    """The least asymptotic risk of the Gaussian kernel over that of (1 − |u|²)^power, each at its best bandwidth.

    It is proportional to (μ₂^p R²)^(2/(p + 4)), μ₂ the second moment and R the roughness of the kernel of integral 1.
    """
    half = head_dim / 2
    norm = gamma(half + power + 1) / (np.pi**half * gamma(power + 1))
    roughness = norm**2 * np.pi**half * gamma(2 * power + 1) / gamma(half + 2 * power + 1)
    gaussian = (4 * np.pi) ** -half
    return ((head_dim + 2 * power + 2) ** head_dim * (gaussian / roughness) ** 2) ** (2 / (head_dim + 4))
