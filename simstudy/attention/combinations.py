"""Weights of heads as smooth functions of means, from second moments of head errors, without theory.

With e_h = f_h − m, risk(a) = E (Σ a_h f_h − m)², averaged over queries.  If Σ a_h = 1, it is aᵀE a, E_hg = E e_h e_g.
"""

from collections.abc import Callable

import numpy as np

from simstudy.design.settings.cell import Cell
from simstudy.weights import CLASSES, Array, affine, least_squares

Combine = Callable[[Array, Array, Array], Array]
"""Function that returns weights (case, head) from averages over queries: second moments of errors (case, head, head),
bias times target (case, head), and squared targets (case,)."""


def combine_heads(cell: Cell) -> Combine:
    """Return the function that computes the weights of the heads of a cell for each case."""
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
    """Return the function that returns these weights for each case."""
    return lambda second, bias_target, target_square: np.broadcast_to(weights, (len(second), len(weights)))


def fit_weights(within: str, outputs: Array, outcomes: Array) -> Array:
    """Return least-squares weights of outcomes (pair,) on outputs of heads (pair, head), within a class."""
    if within == "unconstrained":
        return np.asarray(np.linalg.lstsq(outputs, outcomes, rcond=None)[0], np.float64)
    errors = outputs - outcomes[:, None]
    return CLASSES[within](errors.T @ errors / len(errors))
