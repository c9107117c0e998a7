"""Laws by which an optimum grows, and how much better one describes optima than another: Akaike's criterion."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LAWS: dict[str, Callable[[Array], Array]] = {
    "log": np.log,
    "sqrt_log": lambda x: np.sqrt(np.log(x)),
    "log_over_log_log": lambda x: np.log(x) / np.log(np.log(x)),
    "power": np.log,
    "constant": np.zeros_like,
}
"""Functions g of the laws x* = a + c·g; the power law is ln x* = a + c·ln.

A constant is hard to tell from laws that contain it; claim a slope of 0 for that.
"""
STEP = 1e-3
"""Of the differences that stand for derivatives, in units of x*."""


def squares(law: str, z: Array, x: Array) -> tuple[Array, int]:
    """Return the sum of squared residuals of a law fitted to optima x (..., z), and its number of coefficients."""
    columns = [np.ones_like(z)] + ([] if law == "constant" else [LAWS[law](z)])
    basis = np.stack(columns, axis=1)
    hat = basis @ np.linalg.pinv(basis)
    fitted = np.exp(np.log(x) @ hat) if law == "power" else x @ hat
    return ((fitted - x) ** 2).sum(axis=-1), len(columns)


def akaike(law: str, z: Array, x: Array) -> float:
    """Return Akaike's criterion of a law fitted by least squares to optima x (z,) at z."""
    rss, n_coefficients = squares(law, z, x)
    # The floor is far below any uncertainty of an optimum; it keeps a perfect fit finite.
    return float(len(z) * np.log(rss / len(z) + 1e-12) + 2 * n_coefficients)


def advantage(law: str, other: str, margin: float, z: Array) -> Callable[[Array], Array]:
    """Return the statistic of optima (..., z) that is positive where AIC(other) − AIC(law) > −margin.

    n ln(RSS_other/RSS_law) + 2(p_other − p_law) > −margin, solved for the sums of squares: smooth where a law fits
    perfectly, and without a logarithm to blow up.
    """

    def statistic(x: Array) -> Array:
        (rss, p), (rss_other, p_other) = squares(law, z, x), squares(other, z, x)
        return np.asarray(rss_other - np.exp((-margin - 2.0 * (p_other - p)) / len(z)) * rss)

    return statistic


class Expansion(NamedTuple):
    """A statistic to second order: estimate less its bias, gradient (z,), standard error of the quadratic part."""

    estimate: float
    gradient: Array
    quadratic_error: float


def expand(statistic: Callable[[Array], Array], places: Array, covariance: Array) -> Expansion:
    """Return a smooth statistic of places (z,) with errors of a covariance (z, z) to second order, by differences.

    Parameters
    ----------
    statistic
        From (..., z) places to (...).
    places, covariance
        Estimates, and their Monte Carlo covariance.
    """
    eye, both = np.eye(len(places)) * STEP, np.array([1.0, -1.0])
    gradient = np.einsum("s,sz->z", both, statistic(places + both[:, None, None] * eye)) / (2 * STEP)
    # (sign, sign, i, j): both steps in turn.
    steps = both[:, None, None, None, None] * eye[:, None] + both[:, None, None, None] * eye
    second = np.einsum("s,t,stij->ij", both, both, statistic(places + steps)) / (4 * STEP**2)
    spread = second @ covariance
    quadratic_error = np.sqrt(max(0.5 * np.trace(spread @ spread), 0.0))
    return Expansion(float(statistic(places) - 0.5 * np.trace(spread)), gradient, float(quadratic_error))
