"""Weights of heads that look at no data, and the number of equally weighted heads that weights amount to."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simstudy.arguments import real_array
from simstudy.theory.functions import Array


def uniform_weights(n_heads: int) -> Array:
    """Weights 1/H of the average.

    Parameters
    ----------
    n_heads : int
        H, at least 1.

    Returns
    -------
    (H,) array
        Of sum 1.
    """
    return np.full(n_heads, 1 / n_heads)


def sum_weights(n_heads: int) -> Array:
    """Weights 1 of the sum of heads.

    Parameters
    ----------
    n_heads : int
        H, at least 1.

    Returns
    -------
    (H,) array
        Ones.
    """
    return np.ones(n_heads)


def geometric_weights(n_heads: int, ratio: float) -> Array:
    """Weights proportional to ratio^h that sum to 1; effective learners -> (1 + ratio)/(1 - ratio) as H grows.

    Parameters
    ----------
    n_heads : int
        H, at least 1.
    ratio : float
        Of consecutive weights, in (0, 1).

    Returns
    -------
    (H,) array
        Of sum 1, decreasing.
    """
    powers = ratio ** np.arange(n_heads, dtype=float)
    return powers / powers.sum()


def fibonacci_weights(n_heads: int) -> Array:
    """Weights F_H, ..., F_2, F_1 over their sum F_(H+2) - 1, the largest first (arXiv 2512.22286).

    Sum a^2 -> phi^-3 = 0.236, so that the number of effective learners saturates at phi^3 = 4.236.

    Parameters
    ----------
    n_heads : int
        H, at least 1.

    Returns
    -------
    (H,) array
        Of sum 1, not increasing.
    """
    numbers = [1, 1]
    while len(numbers) < n_heads:
        numbers.append(numbers[-1] + numbers[-2])
    # Integers of any length: floats overflow beyond 1476 heads.
    total = sum(numbers[:n_heads])
    return np.array([number / total for number in reversed(numbers[:n_heads])])


def effective_learners(weights: ArrayLike) -> float:
    """(sum a)^2 / sum a^2 (Kish 1965): 1 / sum a^2 for weights that sum to 1, and H for equal ones.

    Formula :eq:`effective-learners`.

    Parameters
    ----------
    weights : (H,) array
        a_h, of any sum.

    Returns
    -------
    float
        From 1 to H where no weight is negative.
    """
    a = real_array("weights", weights).astype(float)
    return float(a.sum() ** 2 / np.sum(a**2))
