"""Risk of one head at a temperature, given its logits, beside that at the best temperature on the same keys."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from simstudy.attention.instances import measure
from simstudy.attention.normalisers import softmax
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.temperatures import TemperedHeadInstance
from simstudy.temperatures import Problem, best_sharpness, exact_head

Array = NDArray[np.float64]

# Normal numbers beyond have a probability below 1e-14; steps of the table in one unit.
_FARTHEST, _STEPS = 8, 1024

# Index legend: i key.


@measure.register
def measure_tempered_head(instance: TemperedHeadInstance, cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Risks of a head whose logits are one coordinate of each key: one normal number is drawn for each.

    Theory says where the best temperatures lie, and how large the unit of the excess is; both risks are measured.
    """
    n, d = cell.data.n_keys, cell.heads.head_dim
    problem = Problem(instance.keys, d, instance.signal, instance.shares, instance.query)
    places = shared.once(("places", instance.keys, n, d), lambda: _places(instance.keys, n, d, shared))
    best, tuned = best_sharpness(problem, n), best_sharpness(problem, instance.tuned_at)
    least = shared.once(("least risks", problem, n), lambda: _risks(problem, places, best))
    risks = _risks(problem, places, tuned / cell.bandwidth**2)
    excess = 100.0 * (risks - least) / exact_head(problem, best, n).risk
    return dict(zip(instance.quantities, (risks, excess), strict=True))


def _places(keys: str, n_keys: int, dimension: int, shared: SharedData) -> Array:
    """Coordinates of keys along the query: (replicate, key)."""
    normals = shared.normals(n_keys, 1)[:, 0]
    return np.stack([cosines(each, dimension) for each in normals]) if keys == "unit" else normals


def _risks(problem: Problem, places: Array, sharpness: float) -> Array:
    """Risk of a head given its logits: (replicate,)."""
    return np.array([conditional_risk(softmax(sharpness * each), target_moments(problem, each)) for each in places])


def cosines(normals: Array, dimension: int) -> Array:
    """Cosines (i,) of uniform directions with a given one, of the ranks that standard normal numbers have.

    From a table, with an error below 1e-6; ordinary interpolation would take most of the time of a replicate.
    """
    table = _quantiles(dimension)
    place = (np.clip(normals, -_FARTHEST, _FARTHEST) + _FARTHEST) * _STEPS
    number = np.minimum(place.astype(np.int64), len(table) - 2)
    low = table[number]
    return np.asarray(low + (place - number) * (table[number + 1] - low), np.float64)


@functools.lru_cache(maxsize=64)
def _quantiles(dimension: int) -> Array:
    """Cosines of normal numbers from -_FARTHEST to _FARTHEST; (1 + cosine)/2 is beta distributed."""
    lower = np.arange(-_FARTHEST * _STEPS, 0) / _STEPS
    half = (dimension - 1.0) / 2.0
    cosine = 2.0 * special.betaincinv(half, half, special.ndtr(lower)) - 1.0
    return np.concatenate([cosine, [0.0], -cosine[::-1]])


Moments = list[tuple[float, float, Array, Array]]
"""Of each independent part of the target: its scale, its value at the query, its means and variances at keys (i,)."""


def target_moments(problem: Problem, places: Array) -> Moments:
    """Moments of the parts of a random target at keys, given where they lie along the query."""
    d, signal = problem.dimension, problem.signal
    if problem.keys == "gaussian":
        return [(signal / d, problem.query * math.sqrt(d), places, np.full_like(places, d - 1.0))]
    parts, before, here = [], np.ones_like(places), places
    for degree, share in enumerate(problem.shares, start=1):
        if share:
            parts.append((signal * share, 1.0, here, 1.0 - here**2))
        # Of normalised Gegenbauer polynomials.
        before, here = here, ((2 * degree + d - 2) * places * here - degree * before) / (degree + d - 2)
    return parts


def conditional_risk(weights: Array, moments: Moments) -> float:
    """Mean squared error of Σ w Y given the weights, which sum to 1 and may be negative: noise, and each part."""
    squares = weights * weights
    risk = float(squares.sum())
    for scale, target, mean, variance in moments:
        risk += scale * float((weights @ mean - target) ** 2 + squares @ variance)
    return risk
