"""Attention as one method among others, for attention.toml."""

import numpy as np

from simstudy import nw_ensemble

AXES = np.eye(4)[:2, :, None]  # heads of dimension 1: the first sees x₁, the second x₂


def regression(draw, n, frequency):
    """Pairs with y = sin(frequency x₁) + noise of standard deviation 0.5, and 16 points at which to estimate."""
    x, points = draw.normals(n, 4), draw.normals(16, 4)
    y = np.sin(frequency * x[..., 0]) + 0.5 * draw.normals(n)
    return {"x": x, "y": y, "points": points, "truth": np.sin(frequency * points[..., 0])}


def attention(x, y, points):
    """The average of both heads."""
    return {"estimate": nw_ensemble(x, y, points, AXES, 0.3).estimate.values}


def least_squares(x, y, points):
    """A linear function."""
    return {"estimate": points @ np.linalg.lstsq(x, y, rcond=None)[0]}


def squared_error(estimate, truth):
    """Averaged over the points."""
    return np.mean((estimate - truth) ** 2)
