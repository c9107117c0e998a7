"""Intervals of a proportion, for intervals.toml."""

import numpy as np

Z = 1.959963984540054


def sample(draw, n, p):
    """Successes in n trials of probability p; fewer trials are the first ones of more."""
    return {"x": (draw.uniforms(n) < p).sum(axis=1), "truth": p}


def wald(x, n):
    """p ± z √(p(1 − p)/n)."""
    half = Z * np.sqrt(x / n * (1 - x / n) / n)
    return {"lower": x / n - half, "upper": x / n + half}


def agresti_coull(x, n):
    """The standard interval with z²/2 more successes and failures."""
    return wald(x + Z**2 / 2, n + Z**2)


def wilson(x, n):
    """Values that a score test does not reject."""
    half = Z * np.sqrt(x * (1 - x / n) + Z**2 / 4)
    return {"lower": (x + Z**2 / 2 - half) / (n + Z**2), "upper": (x + Z**2 / 2 + half) / (n + Z**2)}
