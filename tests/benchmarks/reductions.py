"""What ways of variance reduction give beyond integrating the noise out.

- Antithetic keys: every second replicate has the keys of the one before, with the other sign; in plain NumPy.
- Moments of keys: regression on the means of x_j, x_j^2 and x_j x_k over the keys of a replicate, of known expectation;
  in plain NumPy.
- Expansion: the control of this package, by the Monte Carlo errors that it states.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import measure
import numpy as np
from digits import DIFFERENCE, TARGETS, Target, cells, own_study
from measure import Row
from workloads import Size

from simstudy.data.heads import key_projections, query_points
from simstudy.design.settings.cell import Cell

MEASURES = ("ensemble_variance", "mse", DIFFERENCE)


class Replicates(NamedTuple):
    """Ensemble errors given the keys, and their squares plus the variance due to noise: (R, Q)."""

    errors: np.ndarray
    products: np.ndarray


def reduction_rows(size: Size, rounds: int) -> Iterator[Row]:
    """Variances of the measures without over those with each way, for the same number of replicates."""
    for target in TARGETS:
        made = cells(size, target)
        found = [_variances(size, target, made, np.random.default_rng(k)) for k in range(rounds)]
        stated = [
            [_stated(size, target._replace(control=way), k) for k in range(rounds)] for way in ("none", "expansion")
        ]
        for name in MEASURES:
            plain = [one["plain"][name] for one in found]
            ways = {way: (plain, [one[way][name] for one in found]) for way in ("antithetic keys", "moments of keys")}
            ways["expansion"] = tuple([one[name] for one in way] for way in stated)
            for way, pair in ways.items():
                yield Row("variance", f"{target.name}, {name}", way, measure.ratio(*pair), "times less variance")


def _stated(size: Size, target: Target, number: int) -> dict[str, float]:
    """By measure, the squared Monte Carlo error of the second geometry, or of the difference, that a run states."""
    found = own_study(size, target, number)
    return {name: float(found.error[name][-1] ** 2) for name in MEASURES}


def _variances(size: Size, target: Target, made: list[Cell], rng: np.random.Generator) -> dict[str, dict[str, float]]:
    """By way and measure, the variance of the average over this many replicates, times their number."""
    keys = rng.standard_normal((size.replicates, size.features, size.keys))
    values, opposite = (influence([evaluate(cell, target, x) for cell in made]) for x in (keys, -keys))
    return {
        "plain": _each(values, np.var),
        "antithetic keys": {name: 2 * np.var((values[name] + opposite[name]) / 2) for name in MEASURES},
        "moments of keys": _each(values, lambda z: _unexplained(z, key_moments(keys))),
    }


def evaluate(cell: Cell, target: Target, keys: np.ndarray) -> Replicates:
    """Errors of the ensemble with noise integrated out, for keys (R, d, n)."""
    truth, parts = _truth(cell, target), []
    for piece in np.array_split(keys, max(1, len(keys) // 50)):
        kernels, values = _kernels(cell, piece), target.values(piece)[:, None, None]
        total = kernels.sum(axis=3)
        means = (kernels * values).sum(axis=3) / total
        weights = (kernels / total[..., None]).mean(axis=1)
        noise = target.noise_sd**2 * (weights**2).sum(axis=2)
        errors = means.mean(axis=1) - truth
        parts.append((errors, errors**2 + noise))
    return Replicates(*(np.concatenate(part) for part in zip(*parts, strict=True)))


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
