"""Regression functions m(x) of the data-generating process, evaluated at keys.

Theory has an implementation of its own.  Sums over features are computed feature by feature, so that the bits of the
value at a key do not depend on the array that contains it.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simstudy.data.heads import query_points
from simstudy.design.settings import choices
from simstudy.design.settings.cell import Array, Cell
from simstudy.design.settings.functions import OwnFunction
from simstudy.kernels.elementary import wave


def at_queries(cell: Cell) -> np.ndarray:
    """Return the values m(x_q) at the query points of a cell, ([draw,] Q)."""
    points = query_points(cell)
    if isinstance(cell.data.regression, choices.FileRegression | choices.FittedRegression):
        return cell.rows.targets[: len(points)]
    return evaluate(cell.data.regression, np.ascontiguousarray(points.swapaxes(-1, -2)))


def at_rows(cell: Cell) -> np.ndarray:
    """Return E[Y | X] at the rows of the user's data from which keys are drawn, (N,)."""
    noise, rows = cell.data.noise, cell.rows
    if not isinstance(cell.data.regression, choices.FileRegression | choices.FittedRegression):
        return evaluate(cell.data.regression, np.ascontiguousarray(rows.keys.T))
    if isinstance(noise, choices.ResidualNoise) and noise.paired:
        return rows.values + cell.data.noise_sd * rows.residuals
    return rows.values


def evaluate(regression: choices.Regression, x: np.ndarray) -> np.ndarray:
    """Return values m(x), (..., n), of the type of x (..., d, n); TypeError if m is known only at rows."""
    value = np.zeros_like(x[..., 0, :])
    match regression:
        case choices.Zero():
            return value
        case choices.Linear():
            return _combined(regression.coefficients, x)
        case choices.Quadratic():
            c = regression.coefficients
            return _combined(c * x.shape[-2] if len(c) == 1 else c, x, power=2)
        case choices.Ridge():
            unit = (np.array(regression.direction) / math.hypot(*regression.direction)).tolist()
            return regression.amplitude * wave(regression.wave, regression.frequency * _combined(unit, x))
        case choices.Additive():
            for j in range(min(regression.n_active or x.shape[-2], x.shape[-2])):
                value += _additive_amplitude(regression, j) * wave(regression.wave, regression.frequency * x[..., j, :])
            return value
        case choices.Interaction():
            first, second = regression.coordinates
            return regression.amplitude * x[..., first - 1, :] * x[..., second - 1, :]
        case OwnFunction():
            features = np.moveaxis(x, -2, 0)
            return regression.call(features.shape[1:], features).astype(x.dtype)
        case choices.Sum():
            return functools.reduce(np.add, map(functools.partial(evaluate, x=x), regression.terms), value)
    raise TypeError(f"no regression function {regression!r}")


def _additive_amplitude(regression: choices.Additive, j: int) -> float:
    """Return the amplitude along feature j, counted from 0."""
    decay = {"exponential": float(np.exp(-regression.rate * j)), "power": (j + 1.0) ** -regression.rate}
    return regression.amplitude * decay.get(regression.decay, 1.0)


def _combined(coefficients: Sequence[float], x: np.ndarray, power: int = 1) -> np.ndarray:
    """Return Σ_j coefficients_j x_j^power over the features of x."""
    active = [(coefficient, x[..., j, :]) for j, coefficient in enumerate(coefficients) if coefficient != 0.0]
    terms = [coefficient * (feature if power == 1 else feature**power) for coefficient, feature in active]
    return functools.reduce(np.add, terms) if terms else np.zeros_like(x[..., 0, :])


class Waves(NamedTuple):
    """The function x -> gradient·x + x' curvature x + Σ_a amplitude_a cos(wave_a·x + phase_a)."""

    gradient: Array  # (j,)
    curvature: Array  # (j, j), symmetric
    amplitudes: Array  # (a,)
    waves: Array  # (a, j)
    phases: Array  # (a,)


def as_waves(regression: choices.Regression, d: int) -> Waves:
    """Return a regression function as polynomial and waves; TypeError if it is not such a sum."""
    m = Waves(np.zeros(d), np.zeros((d, d)), np.zeros(0), np.zeros((0, d)), np.zeros(0))
    match regression:
        case choices.Zero():
            return m
        case choices.Linear():
            return m._replace(gradient=_padded(regression.coefficients, d))
        case choices.Quadratic():
            coefficients = regression.coefficients * (d if len(regression.coefficients) == 1 else 1)
            return m._replace(curvature=np.diag(_padded(coefficients, d)))
        case choices.Interaction():
            first, second = regression.coordinates
            m.curvature[[first - 1, second - 1], [second - 1, first - 1]] = 0.5 * regression.amplitude
            return m
        case choices.Ridge():
            along = _padded(regression.direction, d)
            amplitudes, waves = [regression.amplitude], (regression.frequency / np.linalg.norm(along) * along)[None]
        case choices.Additive():
            waves = regression.frequency * np.eye(d)[: regression.n_active or d]
            amplitudes = [_additive_amplitude(regression, j) for j in range(len(waves))]
        case choices.Sum():
            gradients, curvatures, *parts = zip(*(as_waves(term, d) for term in regression.terms), strict=True)
            return Waves(np.sum(gradients, axis=0), np.sum(curvatures, axis=0), *map(np.concatenate, parts))
        case _:
            raise TypeError(f"neither polynomial nor waves: {regression!r}")
    phases = np.full(len(waves), {"cos": 0.0, "sin": -0.5 * math.pi}[regression.wave])
    return m._replace(amplitudes=np.array(amplitudes), waves=waves, phases=phases)


def _padded(numbers: Sequence[float], d: int) -> Array:
    return np.pad(np.array(numbers), (0, d - len(numbers)))
