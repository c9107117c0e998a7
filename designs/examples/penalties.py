"""Lasso and ridge regression, each with the penalty that a validation sample chooses, for penalties.toml."""

import numpy as np
from sklearn.linear_model import lasso_path

BETA = {1: np.array([3, 1.5, 0, 0, 2, 0, 0, 0]), 2: np.full(8, 0.85)}
SIGMA = 0.5 ** np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
PENALTIES = 10.0 ** np.linspace(1, -3, 30)


def linear_model(draw, example):
    """20 rows to fit and 20 to choose the penalty, of 8 correlated features; noise of standard deviation 3."""
    x = draw.normals(40, 8) @ np.linalg.cholesky(SIGMA).T
    return {"x": x, "y": x @ BETA[example] + 3 * draw.normals(40)}


def lasso(x, y):
    """Coefficients of the lasso."""
    return _chosen(lasso_path(x[:20], y[:20], alphas=PENALTIES)[1], x, y)


def ridge(x, y):
    """Coefficients of ridge regression."""
    u, s, v = np.linalg.svd(x[:20], full_matrices=False)
    shrunk = s[:, None] / (s[:, None] ** 2 + 20 * PENALTIES) * (u.T @ y[:20])[:, None]
    return _chosen(v.T @ shrunk, x, y)


def model_error(beta, example):
    """Expected squared error of predictions beyond that of the noise."""
    return (beta - BETA[example]) @ SIGMA @ (beta - BETA[example])


def _chosen(paths, x, y):
    return {"beta": paths[:, ((y[20:, None] - x[20:] @ paths) ** 2).sum(axis=0).argmin()]}
