"""What ways of variance reduction would give beyond integrating the noise out, in plain NumPy.

- Antithetic keys: every second replicate has the keys of the one before, with the other sign.
- Moments of keys: regression on the means of x_j, x_j^2 and x_j x_k over the keys of a replicate, of known expectation.
- Linear parts: the conditional mean c_h = sum_i K_i m(X_i) / S is near mu_h + L_h with L_h = S (c_h - mu_h) / (n E K),
  an average over keys, mu_h = E[K m] / E K.  Errors are taken less L, and their products less (mu + L - m(x))^2, whose
  expectations are known at every n from expectations over one key; these come from many keys, not from theory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import measure
import numpy as np
from digits import DIFFERENCE, TARGETS, Target, cells
from measure import Row
from scipy.special import ndtri
from scipy.stats import qmc
from workloads import Size

from simstudy.cells import Cell
from simstudy.heads import key_projections, query_points

MEASURES = ("ensemble_variance", "mse", DIFFERENCE)


class Replicates(NamedTuple):
    """Ensemble errors given the keys, their squares plus the variance due to noise, and their linear parts: (R, Q)."""

    errors: np.ndarray
    products: np.ndarray
    linear: np.ndarray


class Known(NamedTuple):
    """E K and mu (H, Q); mu - m(x) and n Var L of the ensemble (Q,)."""

    mass: np.ndarray
    mean: np.ndarray
    bias: np.ndarray
    spread: np.ndarray


def reduction_rows(size: Size, rounds: int) -> Iterator[Row]:
    """Variances of the measures without over those with each way, for the same number of replicates."""
    for target in TARGETS:
        made = cells(size, target)
        known = [expectations(cell, target) for cell in made]
        found = [_variances(size, target, made, known, np.random.default_rng(k)) for k in range(rounds)]
        for name in MEASURES:
            plain = [one["plain"][name] for one in found]
            for way in ("antithetic keys", "moments of keys", "linear parts"):
                factor = measure.ratio(plain, [one[way][name] for one in found])
                yield Row("variance", f"{target.name}, {name}", way, factor, "times less variance")


def _variances(
    size: Size, target: Target, made: list[Cell], known: list[Known], rng: np.random.Generator
) -> dict[str, dict[str, float]]:
    """By way and measure, the variance of the average over this many replicates, times their number."""
    keys = rng.standard_normal((size.replicates, size.features, size.keys))
    plain = [evaluate(cell, target, keys, one) for cell, one in zip(made, known, strict=True)]
    mirrored = [evaluate(cell, target, -keys, one) for cell, one in zip(made, known, strict=True)]
    corrected = [without_linear(one, law, size.keys) for one, law in zip(plain, known, strict=True)]
    values, opposite, remainders = influence(plain), influence(mirrored), influence(corrected)
    return {
        "plain": _each(values, np.var),
        "antithetic keys": {name: 2 * np.var((values[name] + opposite[name]) / 2) for name in MEASURES},
        "moments of keys": _each(values, lambda z: _unexplained(z, key_moments(keys))),
        "linear parts": _each(remainders, np.var),
    }


def evaluate(cell: Cell, target: Target, keys: np.ndarray, known: Known) -> Replicates:
    """Errors of the ensemble with noise integrated out, for keys (R, d, n)."""
    truth, parts = _truth(cell, target), []
    for piece in np.array_split(keys, max(1, len(keys) // 50)):
        kernels, values = _kernels(cell, piece), target.values(piece)[:, None, None]
        total = kernels.sum(axis=3)
        means = (kernels * values).sum(axis=3) / total
        weights = (kernels / total[..., None]).mean(axis=1)
        noise = target.noise_sd**2 * (weights**2).sum(axis=2)
        linear = (total / (keys.shape[2] * known.mass) * (means - known.mean)).mean(axis=1)
        errors = means.mean(axis=1) - truth
        parts.append((errors, errors**2 + noise, linear))
    return Replicates(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def expectations(cell: Cell, target: Target, log2_keys: int = 17) -> Known:
    """Expectations over one key, by a scrambled Sobol sequence."""
    sobol = qmc.Sobol(cell.data.n_features, rng=np.random.default_rng(1))
    uniforms = sobol.random_base2(log2_keys) + 2.0**-31
    pieces = [np.ascontiguousarray(ndtri(piece).T[None]) for piece in np.array_split(uniforms, 2**log2_keys // 4096)]
    mass = sum(_kernels(cell, piece)[0].sum(axis=2) for piece in pieces) / len(uniforms)
    mean = sum((_kernels(cell, piece)[0] * target.values(piece)[0]).sum(axis=2) for piece in pieces)
    mean = mean / (len(uniforms) * mass)
    spread = np.zeros(cell.n_queries)
    for piece in pieces:
        errors = _kernels(cell, piece)[0] / mass[..., None] * (target.values(piece)[0] - mean[..., None])
        spread += (errors.mean(axis=0) ** 2).sum(axis=1) / len(uniforms)
    return Known(mass, mean, mean.mean(axis=0) - _truth(cell, target), spread)


def without_linear(found: Replicates, known: Known, n_keys: int) -> Replicates:
    """The same expectations with less variance."""
    square = (known.bias + found.linear) ** 2 - known.bias**2 - known.spread / n_keys
    return Replicates(found.errors - found.linear, found.products - square, found.linear)


def influence(geometries: list[Replicates]) -> dict[str, np.ndarray]:
    """Contributions of the replicates to each measure: of the second geometry, and to the difference."""
    first, second = geometries
    variance = second.products - 2 * second.errors.mean(axis=0) * second.errors
    mse = second.products.mean(axis=1)
    return {"ensemble_variance": variance.mean(axis=1), "mse": mse, DIFFERENCE: mse - first.products.mean(axis=1)}


def key_moments(keys: np.ndarray) -> np.ndarray:
    """Means over keys less their expectations: of x_j, and of x_j x_k - (j = k)."""
    rows, columns = np.triu_indices(keys.shape[1])
    second = (keys @ keys.mT)[:, rows, columns] / keys.shape[2] - (rows == columns)
    return np.concatenate([keys.mean(axis=2), second], axis=1)


def _unexplained(values: np.ndarray, controls: np.ndarray) -> float:
    design = np.column_stack([np.ones(len(values)), controls])
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return float(np.sum((values - fitted) ** 2) / (len(values) - design.shape[1]))


def _kernels(cell: Cell, keys: np.ndarray) -> np.ndarray:
    """K of every head and query at every key: (R, H, Q, n)."""
    projections = key_projections(cell)
    projected = projections.mT @ keys[:, None]
    points = query_points(cell) @ projections
    augmented = np.concatenate([projected, -0.5 * (projected**2).sum(axis=2, keepdims=True)], axis=2)
    scaled = np.concatenate([points, np.ones((*points.shape[:2], 1))], axis=2) / cell.bandwidth**2
    offset = 0.5 * (points**2).sum(axis=2, keepdims=True) / cell.bandwidth**2
    return np.exp(scaled @ augmented - offset)


def _truth(cell: Cell, target: Target) -> np.ndarray:
    return target.values(query_points(cell).T[None].copy())[0]


def _each(values: dict[str, np.ndarray], statistic: Callable[[np.ndarray], float]) -> dict[str, float]:
    return {name: float(statistic(value)) for name, value in values.items()}
