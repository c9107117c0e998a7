"""Intervals of a proportion, for intervals.toml."""

import numpy as np

Z = 1.959963984540054


def sample(draw, n, p):
    """Successes in n trials of probability p; the first trials of a larger sample are those of a smaller one."""
    return {"x": (draw.uniforms(n) < p).sum(axis=1), "truth": p}


def wald(x, n):
    """p ± z √(p(1 − p)/n)."""
    return _around(x / n, n)


def agresti_coull(x, n):
    """The Wald interval of the midpoint of Wilson's, with z² more trials."""
    return _around((x + Z**2 / 2) / (n + Z**2), n + Z**2)


def wilson(x, n):
    """Values that a score test does not reject."""
    p, scale = x / n, n + Z**2
    half = Z / scale * np.sqrt(n * p * (1 - p) + Z**2 / 4)
    return {"lower": (x + Z**2 / 2) / scale - half, "upper": (x + Z**2 / 2) / scale + half}


def _around(p, n):
    half = Z * np.sqrt(p * (1 - p) / n)
    return {"lower": p - half, "upper": p + half}
