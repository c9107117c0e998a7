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


class Fit(NamedTuple):
    """Least squares of a law at z: projector (z, z) on it, and its number of coefficients."""

    law: str
    projector: Array
    n_coefficients: int

    def squares(self, x: Array) -> Array:
        """Return the sum of squared residuals of optima x (..., z)."""
        fitted = np.exp(np.log(x) @ self.projector) if self.law == "power" else x @ self.projector
        return np.asarray(((fitted - x) ** 2).sum(axis=-1))


def fit(law: str, z: Array) -> Fit:
    """Return the fit of a law at levels z."""
    columns = [np.ones_like(z)] + ([] if law == "constant" else [LAWS[law](z)])
    basis = np.stack(columns, axis=1)
    return Fit(law, basis @ np.linalg.pinv(basis), len(columns))


def akaike(law: str, z: Array, x: Array) -> float:
    """Return Akaike's criterion of a law fitted by least squares to optima x (z,) at z."""
    fitted = fit(law, z)
    # The floor is far below any uncertainty of an optimum; it keeps a perfect fit finite.
    return float(len(z) * np.log(fitted.squares(x) / len(z) + 1e-12) + 2 * fitted.n_coefficients)


def advantage(law: str, other: str, margin: float, z: Array) -> Callable[[Array], Array]:
    """Return the statistic of optima (..., z) that is positive where AIC(other) − AIC(law) > −margin."""
    own, against = fit(law, z), fit(other, z)
    allowed = np.exp((-margin - 2.0 * (against.n_coefficients - own.n_coefficients)) / len(z))

    def statistic(x: Array) -> Array:
        return np.asarray(against.squares(x) - allowed * own.squares(x))

    return statistic


class Expansion(NamedTuple):
    """A statistic to second order: estimate less its bias, gradient (z,), standard error of the quadratic part."""

    estimate: float
    gradient: Array
    quadratic_error: float


def expand(statistic: Callable[[Array], Array], places: Array, covariance: Array) -> Expansion:
    """Return a smooth statistic of places (z,) with errors of a covariance to second order, by differences."""
    eye, both = np.eye(len(places)) * STEP, np.array([1.0, -1.0])
    gradient = np.einsum("s,sz->z", both, statistic(places + both[:, None, None] * eye)) / (2 * STEP)
    # (sign, sign, i, j): both steps in turn.
    steps = both[:, None, None, None, None] * eye[:, None] + both[:, None, None, None] * eye
    second = np.einsum("s,t,stij->ij", both, both, statistic(places + steps)) / (4 * STEP**2)
    spread = second @ covariance
    quadratic_error = np.sqrt(max(0.5 * np.trace(spread @ spread), 0.0))
    return Expansion(float(statistic(places) - 0.5 * np.trace(spread)), gradient, float(quadratic_error))
