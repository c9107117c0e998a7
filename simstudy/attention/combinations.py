"""Weights of heads that follow from the second moments of head errors, as smooth functions of means.

Never imports the theory.

With e_h = f_h − m, risk(a) = E (Σ a_h f_h − m)², averaged over queries.  If Σ a_h = 1 it is aᵀE a, E_hg = E e_h e_g.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings.cell import Cell
from simstudy.weights import affine, front_greater, least_squares, simplex

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
