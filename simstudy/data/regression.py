"""The regression functions m(x) of the data-generating process, evaluated on keys.

This is the simulator's own evaluation; theory derives its own.  Sums over features run one feature at a time, so
that the value at a key has the same bits in whatever array the key stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch

import numpy as np

from simstudy.data.heads import query_points
from simstudy.design.settings import (
    Additive,
    Bumps,
    FileRegression,
    FittedRegression,
    Interaction,
    Linear,
    OwnFunction,
    Quadratic,
    Regression,
    Ridge,
    Sum,
    Zero,
)
from simstudy.design.settings.cell import Cell

_WAVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"sin": np.sin, "cos": np.cos}


def at_queries(cell: Cell) -> np.ndarray:
    """Values m(x_q) at the query points of a cell: (Q,)."""
    points = query_points(cell)
    if isinstance(cell.data.regression, FileRegression | FittedRegression):
        return cell.rows.targets[: len(points)]
    return evaluate(cell.data.regression, np.ascontiguousarray(points.T[None]))[0]


@singledispatch
def evaluate(regression: Regression, x: np.ndarray) -> np.ndarray:
    """Values m(x) of a regression function.

    Parameters
    ----------
    regression : settings.Regression
        Zero, Linear, Quadratic, Ridge, Additive, Interaction, Bumps, OwnFunction or Sum: one known at every point.
    x : ndarray, shape (..., d, n)
        Points, feature-major.

    Returns
    -------
    ndarray, shape (..., n), of the type of ``x``

    Raises
    ------
    TypeError
        If ``regression`` is none of these records.
    UserError
        If a function of the user's own breaks its contract, or may not run.
    """
    raise TypeError(f"no regression function {regression!r}")


@evaluate.register
def _(regression: Zero, x: np.ndarray) -> np.ndarray:
    return np.zeros_like(x[..., 0, :])


@evaluate.register
def _(regression: Linear, x: np.ndarray) -> np.ndarray:
    return _combined(regression.coefficients, x)


@evaluate.register
def _(regression: Quadratic, x: np.ndarray) -> np.ndarray:
    c = regression.coefficients
    return _combined(c * x.shape[-2] if len(c) == 1 else c, x, power=2)


@evaluate.register
def _(regression: Ridge, x: np.ndarray) -> np.ndarray:
    direction = np.array(regression.direction) / np.linalg.norm(regression.direction)
    argument = regression.frequency * _combined(direction.tolist(), x)
    return regression.amplitude * _WAVES[regression.wave](argument)


@evaluate.register
def _(regression: Additive, x: np.ndarray) -> np.ndarray:
    wave = _WAVES[regression.wave]
    n_active = min(regression.n_active or x.shape[-2], x.shape[-2])
    value = np.zeros_like(x[..., 0, :])
    for j in range(n_active):
        value += additive_amplitude(regression, j) * wave(regression.frequency * x[..., j, :])
    return value


def additive_amplitude(regression: Additive, j: int) -> float:
    """Return the amplitude of an additive function along feature j, counted from 0."""
    if regression.decay == "exponential":
        return regression.amplitude * float(np.exp(-regression.rate * j))
    if regression.decay == "power":
        return regression.amplitude * (j + 1.0) ** -regression.rate
    return regression.amplitude


@evaluate.register
def _(regression: Interaction, x: np.ndarray) -> np.ndarray:
    first, second = regression.coordinates
    return regression.amplitude * x[..., first - 1, :] * x[..., second - 1, :]


@evaluate.register
def _(regression: Bumps, x: np.ndarray) -> np.ndarray:
    value = np.zeros_like(x[..., 0, :])
    for centre, amplitude in zip(regression.centres, regression.amplitudes, strict=True):
        square = np.zeros_like(value)
        for j in range(x.shape[-2]):
            gap = x[..., j, :] - (centre[j] if j < len(centre) else 0.0)
            square += gap * gap
        value += amplitude * np.exp(square * (-0.5 / regression.width**2))
    return value


@evaluate.register
def _(regression: OwnFunction, x: np.ndarray) -> np.ndarray:
    features = np.moveaxis(x, -2, 0)
    return regression.call(features.shape[1:], features).astype(x.dtype)


@evaluate.register
def _(regression: Sum, x: np.ndarray) -> np.ndarray:
    value = np.zeros_like(x[..., 0, :])
    for term in regression.terms:
        value += evaluate(term, x)
    return value


def _combined(coefficients: Sequence[float], x: np.ndarray, power: int = 1) -> np.ndarray:
    """Σ_j coefficients_j x_j^power over the features of x."""
    value = np.zeros_like(x[..., 0, :])
    for j, coefficient in enumerate(coefficients):
        if coefficient != 0.0:
            value += coefficient * x[..., j, :] ** power
    return value
