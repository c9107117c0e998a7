"""Weights of heads that follow from the second moments of head errors, as smooth functions of means.

Never imports the theory.

With e_h = f_h − m, risk(a) = E (Σ a_h f_h − m)², averaged over queries.  If Σ a_h = 1 it is aᵀE a, E_hg = E e_h e_g.
"""

from collections.abc import Callable

import numpy as np

from simstudy.design.settings.cell import Cell
from simstudy.weights import CLASSES, Array, affine, least_squares

Combine = Callable[[Array, Array, Array], Array]
"""From averages over queries to weights (case, head): of second moments of errors (case, head, head), of bias times
target (case, head) and of squared targets (case,)."""


def combine_heads(cell: Cell) -> Combine:
    """Return the function that gives the weights of the heads of a cell, case by case."""
    combination = cell.estimator.combination
    if combination.kind in ("fitted", "product"):
        return fixed(np.ones(1))
    if combination.kind != "optimal":
        return fixed(np.array(cell.weights))
    within = getattr(combination, "within", "")

    def optimal(second: Array, bias_target: Array, target_square: Array) -> Array:
        if within == "unconstrained":
            # E f m and E f fᵀ from moments of f − m.
            cross = bias_target + target_square[:, None]
            gram = second + bias_target[:, :, None] + cross[:, None, :]
            return np.stack([least_squares(*case) for case in zip(gram, cross, strict=True)])
        if within == "affine":
            return affine(second)
        return np.stack([CLASSES[within](moment) for moment in second])

    return optimal


def fixed(weights: Array) -> Combine:
    """Return the function that gives these weights in every case."""
    return lambda second, bias_target, target_square: np.broadcast_to(weights, (len(second), len(weights)))


def fit_weights(within: str, outputs: Array, outcomes: Array) -> Array:
    """Weights of least squares of outcomes (pair,) on the outputs of heads (pair, head), within a class."""
    if within == "unconstrained":
        return np.asarray(np.linalg.lstsq(outputs, outcomes, rcond=None)[0], np.float64)
    errors = outputs - outcomes[:, None]
    return CLASSES[within](errors.T @ errors / len(errors))
