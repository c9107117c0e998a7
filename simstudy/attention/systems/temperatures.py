"""Heads at a temperature, given their logits: their risk beside that at the best one, pairs, sinks and shared keys."""

import functools
import math

import numpy as np
from scipy import special

from simstudy.attention.members import Array, Rows, quantities
from simstudy.attention.normalisers import softmax
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import temperatures as settings
from simstudy.temperatures import Problem, best_sharpness, exact_risk, log_mean_kernel

# Normal numbers beyond have a probability below 1e-14; steps of the table in one unit.
_FARTHEST, _STEPS = 8, 1024

# Index legend: h head; i key; p dimension of a head.


@quantities.register
def measure_tempered_head(instance: settings.TemperedHeadInstance, cell: Cell, shared: SharedData) -> Rows:
    """Risks of a head whose logits are one coordinate of each key: one normal number is drawn for each."""
    n, d = cell.data.n_keys, cell.heads.head_dim
    problem = Problem(instance.keys, d, instance.signal, instance.shares, instance.query)
    places = shared.once(("places", instance.keys, n, d), lambda: _places(instance.keys, n, d, shared))
    best, tuned = best_sharpness(problem, n), best_sharpness(problem, instance.tuned_at)
    least = shared.once(("least risks", problem, n), lambda: _risks(problem, places, best))
    risks = _risks(problem, places, tuned / cell.bandwidth**2)
    excess = 100.0 * (risks - least) / exact_risk(problem, best, n)
    return zip(risks, excess, strict=True)


def _places(keys: str, n_keys: int, dimension: int, shared: SharedData) -> Array:
    """Coordinates of keys along the query: (replicate, key)."""
    normals = shared.normals(n_keys, 1)[:, 0]
    return np.stack([cosines(each, dimension) for each in normals]) if keys == "unit" else normals


def _risks(problem: Problem, places: Array, sharpness: float) -> Array:
    """Risk of a head given its logits: (replicate,)."""
    return np.array([conditional_risk(softmax(sharpness * each), target_moments(problem, each)) for each in places])


def cosines(normals: Array, dimension: int) -> Array:
    """Cosines (i,) of uniform directions with a given one, of the ranks of normal numbers, to 1e-6."""
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


@quantities.register
def measure_head_pair(instance: settings.HeadPairInstance, cell: Cell, shared: SharedData) -> Rows:
    """Risk and noise of a head and its partner, from the coordinates of keys along both queries."""
    n, d = cell.data.n_keys, cell.heads.head_dim
    problem = Problem("unit", d, instance.signal, instance.shares)
    best = best_sharpness(problem, n)
    for drawn in shared.normals(n, 2):
        along = cosines(drawn[0], d)
        moments, other = target_moments(problem, along), along
        if instance.weight and instance.partner == "orthogonal":
            other = np.sqrt(1.0 - along**2) * cosines(drawn[1], d - 1)
            across = 1.0 - along**2 - other**2
            moments = [(instance.signal, 1.0, along, across), (instance.signal, 0.0, other, np.zeros_like(other))]
        weights = _head(along, instance.first * best, d, instance.sink)
        if instance.weight:
            partner = _head(other, instance.second * best, d, instance.sink)
            weights = (weights - instance.weight * partner) / (1.0 - instance.weight)
        weights = instance.gate * weights
        yield conditional_risk(weights, moments), n * float(weights @ weights)


def _head(places: Array, sharpness: float, dimension: int, sink: float) -> Array:
    """Softmax weights (i,); a key of value 0 takes its part of the mass."""
    weights = softmax(sharpness * places)
    if not sink:
        return weights
    mass = np.exp(sharpness * (places - 1.0)).mean() / math.exp(log_mean_kernel(dimension, sharpness))
    return np.asarray(weights * mass / (mass + sink))


@quantities.register
def measure_grouped_heads(instance: settings.GroupedHeadsInstance, cell: Cell, shared: SharedData) -> Rows:
    """Noise of the average of heads; within a group their logits are correlated like their queries."""
    n, p, n_heads = cell.data.n_keys, cell.heads.head_dim, instance.heads
    size = n_heads // instance.groups
    for drawn in shared.normals(max(n, p), 2 * n_heads):
        logits = drawn[:n_heads, :n].reshape(instance.groups, size, n)
        queries = drawn[n_heads:, :p].reshape(instance.groups, size, p)
        queries = queries / np.linalg.norm(queries, axis=-1, keepdims=True)
        # More heads than dimensions make the matrix singular: roots by its eigenvectors.
        values, vectors = np.linalg.eigh(queries @ queries.mT)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
        mean = softmax(root @ logits).mean(axis=(0, 1))
        yield (n * float(mean @ mean),)
