"""Weights a that minimise aᵀE a for positive semidefinite E, for theory and simulation."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def affine(moment: Array) -> Array:
    """Return weights (..., head) of least aᵀE a with Σ a = 1, E (..., head, head); of least Σ a² if E is singular."""
    uniform = np.full(moment.shape[-1], 1.0 / moment.shape[-1])
    differences = np.linalg.svd(uniform[None])[2][1:].T
    values, vectors = np.linalg.eigh(differences.T @ moment @ differences)
    # Directions in which heads differ only by rounding leave the weights unchanged.
    distinct = values > 1e-12 * np.trace(moment, axis1=-2, axis2=-1)[..., None]
    directions = differences @ vectors
    along = np.einsum("...hk,...h->...k", directions, moment @ uniform)
    steps = np.where(distinct, along, 0.0) / np.where(distinct, values, 1.0)
    return np.asarray(uniform - np.einsum("...hk,...k->...h", directions, steps))


def simplex(moment: Array) -> Array:
    """Return weights (head,) of least aᵀE a with a ≥ 0, Σ a = 1; one of several if E is singular.

    As aᵀE a is homogeneous, the minimum of aᵀE a + c(Σ a − 1)² over a ≥ 0 has the same direction for every c > 0.  The
    active-set method of Lawson and Hanson (1974) ends at the exact support; general convex solvers stop at a tolerance.
    """
    scale, n_heads = np.sqrt(np.trace(moment) / len(moment)) or 1.0, len(moment)
    values, vectors = np.linalg.eigh(moment)
    # RᵀR = E, where rounding may have left E with small negative eigenvalues.
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    # Imported here: it takes a quarter of a second, and most commands do not need it.
    from scipy.optimize import nnls

    system, outcome = np.vstack([root, np.full(n_heads, scale)]), np.append(np.zeros(len(root)), scale)
    weights: Array = nnls(system, outcome, maxiter=30 * n_heads)[0]
    return weights / weights.sum()


def front_greater(moment: Array) -> Array:
    """Return weights of least aᵀE a, a_1 ≥ … ≥ a_H ≥ 0, Σ a = 1: mixtures of averages of the first 1, 2, … heads."""
    n_heads = len(moment)
    averages = np.triu(np.ones((n_heads, n_heads))) / np.arange(1, n_heads + 1)
    return averages @ simplex(averages.T @ moment @ averages)


def least_squares(gram: Array, cross: Array) -> Array:
    """Return weights of least aᵀGa − 2aᵀc: a learned output projection; of least Σ a² if G is singular."""
    return np.asarray(np.linalg.lstsq(gram, cross, rcond=1e-10)[0], np.float64)


CLASSES = {"affine": affine, "simplex": simplex, "front_greater": front_greater}  # classes of weights with sum 1
