"""Lasso and ridge regression, each with the penalty that a validation sample chooses, for penalties.toml."""

import numpy as np
from sklearn.linear_model import lasso_path, ridge_regression

BETA = {1: np.array([3, 1.5, 0, 0, 2, 0, 0, 0]), 2: np.full(8, 0.85)}
SIGMA = 0.5 ** np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
PENALTIES = 10.0 ** np.linspace(1, -3, 30)


def linear_model(draw, example):
    """20 rows to fit and 20 to choose the penalty, of 8 correlated features; noise of standard deviation 3."""
    x = draw.normals(40, 8) @ np.linalg.cholesky(SIGMA).T
    return {"x": x, "y": x @ BETA[example] + 3 * draw.normals(40)}


def lasso(x, y):
    """Coefficients of the lasso."""
    return chosen(lasso_path(x[:20], y[:20], alphas=PENALTIES)[1], x[20:], y[20:])


def ridge(x, y):
    """Coefficients of ridge regression."""
    fits = [ridge_regression(x[:20], y[:20], 20 * penalty) for penalty in PENALTIES]
    return chosen(np.transpose(fits), x[20:], y[20:])


def chosen(fits, x, y):
    """The fit (coefficient, penalty) with the smallest error."""
    return {"beta": fits[:, ((y[:, None] - x @ fits) ** 2).sum(axis=0).argmin()]}


def model_error(beta, example):
    """Expected squared error of predictions beyond that of the noise."""
    return (beta - BETA[example]) @ SIGMA @ (beta - BETA[example])
