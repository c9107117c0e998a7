"""Weights of heads that follow from the second moments of head errors, as smooth functions of means.

Never imports the theory.

With e_h = f_h − m, risk(a) = E (Σ a_h f_h − m)², averaged over queries.  If Σ a_h = 1 it is aᵀE a, E_hg = E e_h e_g.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]
Combine = Callable[[Array, Array, Array], Array]
"""From mean errors (case, query, head), their second moments (case, query, head, head) and targets (query,) to
weights (case, head)."""


def combine_heads(cell: Cell) -> Combine:
    """Return the function that gives the weights of the heads of a cell, case by case.

    Weights fitted within each replicate, and products of kernels, leave a single estimate, whose weight is 1.
    """
    combination = cell.estimator.combination
    if combination.rule in ("fitted", "product"):
        return fixed(np.ones(1))
    if combination.rule != "optimal":
        return fixed(np.array(cell.weights))
    within = combination.within

    def optimal(bias: Array, second: Array, target: Array) -> Array:
        if within == "unconstrained":
            gram, cross = _output_moments(bias, second, target)
            return np.stack([least_squares(*case) for case in zip(gram, cross, strict=True)])
        return np.stack([_CLASSES[within](moment) for moment in second.mean(axis=1)])

    return optimal


def fixed(weights: Array) -> Combine:
    """Return the function that gives these weights in every case."""
    return lambda bias, second, target: np.broadcast_to(weights, (len(bias), len(weights)))


def affine(moment: Array) -> Array:
    """Weights of least aᵀE a on Σ a = 1: E⁻¹1/1ᵀE⁻¹1; of a singular E, those that heads alike share equally."""
    uniform = np.full(len(moment), 1.0 / len(moment))
    differences = np.linalg.svd(uniform[None])[2][1:].T
    # Directions in which heads do not differ, but for rounding, leave the weights as they are.
    values, vectors = np.linalg.eigh(differences.T @ moment @ differences)
    told_apart = values > 1e-12 * np.trace(moment)
    directions = differences @ vectors[:, told_apart]
    weights: Array = uniform - directions @ ((directions.T @ moment @ uniform) / values[told_apart])
    return weights


def simplex(moment: Array) -> Array:
    """Weights of least aᵀE a on a ≥ 0, Σ a = 1.

    As aᵀE a is homogeneous, the minimum of aᵀE a + c(Σ a − 1)² over a ≥ 0 has the same direction for every c > 0.
    """
    root, scale = _root(moment), np.sqrt(np.trace(moment) / len(moment)) or 1.0
    # Imported here: it takes a quarter of a second, which most commands need not wait for.
    from scipy.optimize import nnls

    weights: Array = nnls(np.vstack([root, np.full(len(moment), scale)]), np.append(np.zeros(len(root)), scale))[0]
    return weights / weights.sum()


def front_greater(moment: Array) -> Array:
    """Weights of least aᵀE a on a_1 ≥ a_2 ≥ … ≥ 0, Σ a = 1: mixtures of the averages of the first 1, 2, … heads."""
    n_heads = len(moment)
    averages = np.triu(np.ones((n_heads, n_heads))) / np.arange(1, n_heads + 1)
    return averages @ simplex(averages.T @ moment @ averages)


def least_squares(gram: Array, cross: Array) -> Array:
    """Weights of least aᵀGa − 2aᵀc: a learned output projection; the shortest where G is singular."""
    return np.asarray(np.linalg.lstsq(gram, cross, rcond=1e-10)[0], np.float64)


def fit_weights(within: str, outputs: Array, outcomes: Array) -> Array:
    """Weights of least squares of outcomes (pair,) on the outputs of heads (pair, head), within a class."""
    if within == "unconstrained":
        return np.asarray(np.linalg.lstsq(outputs, outcomes, rcond=None)[0], np.float64)
    errors = outputs - outcomes[:, None]
    return _CLASSES[within](errors.T @ errors / len(errors))


_CLASSES = {"affine": affine, "simplex": simplex, "front_greater": front_greater}


def _output_moments(bias: Array, second: Array, target: Array) -> tuple[Array, Array]:
    """E f fᵀ and E f m, averaged over queries, from moments of f − m."""
    m = target[:, None]
    gram = second + m[..., None] * (bias[..., :, None] + bias[..., None, :]) + m[..., None] ** 2
    return gram.mean(axis=1), ((bias + m) * m).mean(axis=1)


def _root(moment: Array) -> Array:
    """R with RᵀR = E, where rounding may have left E with small negative eigenvalues."""
    values, vectors = np.linalg.eigh(moment)
    return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
