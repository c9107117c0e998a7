"""Directions on which keys enter a cell; if they are fewer than the features, only coordinates along them are drawn.

A dot product with a query is a number a_h·x of a key x for each head.  If queries are fewer than dimensions of a head,
the query is absorbed into the slope a_h.  The target and the variance of the noise depend on the first features.  For
keys x = s R z, z ~ N(0, I), s a number for each key, these are s T'y: R'V = B T, V the directions, B orthonormal, and
y = B'z ~ N(0, I).  Cells with other temperatures or scales of queries have the same y, as B does not depend on lengths.
"""

import functools
from typing import NamedTuple

import numpy as np

from simstudy.data import heads, regression
from simstudy.design.settings.cell import Array, Cell, Data
from simstudy.design.settings.choices import AutoregressiveKeys, GaussianKeys, Keys, ResidualNoise, Student


class Span(NamedTuple):
    """Slopes of logits with absorbed queries, for keys or for coordinates of keys in the basis B of directions."""

    slopes: Array  # ([draw,] head, feature or coordinate, query)
    features: Array  # ([draw,] 1, coordinate, feature): first features, for the target and the noise
    directions: Array  # ([draw,] feature, coordinate) R'V with the basis B; no coordinates if whole keys are drawn


def n_coordinates(cell: Cell) -> int | None:
    """Return the number of coordinates of keys to draw, 0 for whole keys; None if queries are not absorbed."""
    estimator, d, n_heads, p = cell.estimator, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim
    chosen = estimator.logits, estimator.key_scale, estimator.reference, estimator.learner.kind
    whole = estimator.plain and chosen == ("dot_product", "raw", "none", "nadaraya_watson") and not cell.heads.redrawn
    few = cell.functions is None and cell.n_queries < p
    if not (few and whole) or estimator.combination.kind in ("product", "fitted"):
        return None
    known = directions_of(cell.data)
    if not (known and isinstance(cell.data.key_distribution, GaussianKeys | Student | AutoregressiveKeys)):
        return 0
    n = n_heads * cell.n_queries + known[0].shape[1]
    return n if n < min(d, n_heads * p) else 0


@functools.lru_cache(maxsize=32)
def span_of(cell: Cell) -> Span | None:
    """Return slopes and directions of a cell with absorbed queries; None if `n_coordinates` is None."""
    keys, d, n_slopes = cell.data.key_distribution, cell.data.n_features, cell.heads.n_heads * cell.n_queries
    if (n := n_coordinates(cell)) is None:
        return None
    images = heads.query_points(cell)[..., None, :, :] @ heads.query_projections(cell)
    slopes = heads.key_projections(cell) @ images.swapaxes(-1, -2)
    if not n:
        return Span(slopes, np.empty((1, 0, 0)), np.empty((d, 0)))
    first = np.broadcast_to(np.eye(d, n - n_slopes), (*slopes.shape[:-3], d, n - n_slopes))
    directions = np.concatenate([*np.moveaxis(slopes, -3, 0), first], axis=-1)
    directions = directions if (root := root_of(keys, d)) is None else root.T @ directions
    factor = np.asarray(np.linalg.qr(directions, mode="r"))  # R alone, as populations need it in each batch
    factor[np.abs(factor) < 1e-14 * np.linalg.norm(factor, axis=-2, keepdims=True)] = 0.0  # as `project` skips zeros
    factor *= np.where(np.diagonal(factor, axis1=-2, axis2=-1) < 0.0, -1.0, 1.0)[..., None]
    slopes = factor[..., :n_slopes].reshape(*first.shape[:-2], n, cell.heads.n_heads, -1).swapaxes(-2, -3)
    return Span(slopes, factor[..., None, :, n_slopes:], directions)


@functools.lru_cache(maxsize=32)
def directions_of(data: Data) -> tuple[Array, ...]:
    """Return directions (1, feature, a) of m and of the noise variance, and factors (a, 5); empty if not known.

    Factors are 0 for m or 1 for the variance, and those of y = direction·x, y², cos y and sin y.
    """
    noise, d = data.noise, data.n_features
    try:
        m = regression.as_waves(data.regression, d)
    except TypeError:
        return ()
    if isinstance(noise, ResidualNoise):
        return ()
    (j, k), unit, strength = np.nonzero(m.curvature), np.eye(d), getattr(noise, "strength", 0.0)
    constant, quarters = data.noise_sd**2 / (1.0 + strength), m.curvature[j, k] / 4.0
    # 4 x y = (x + y)² - (x - y)²
    directions = np.vstack([np.zeros(d), unit[0], m.gradient, unit[j] + unit[k], unit[j] - unit[k], m.waves])
    factors = np.zeros((len(directions), 5))
    factors[[0, 0, 1, 1, 2], [0, 3, 0, 2, 1]] = 1.0, constant, 1.0, constant * strength, 1.0
    factors[3 : 3 + 2 * len(j), 2] = *quarters, *-quarters
    factors[3 + 2 * len(j) :, 3:] = (m.amplitudes * [np.cos(m.phases), -np.sin(m.phases)]).T
    used = directions.any(axis=1) & factors[:, 1:].any(axis=1) | (factors[:, 3] != 0.0)
    used[0] = True  # as arrays on a GPU cannot be empty
    return directions[used, : np.flatnonzero(directions.any(axis=0)).max(initial=0) + 1].T[None], factors[used]


def root_of(keys: Keys, d: int) -> Array | None:
    """Return the lower triangular R of Gaussian keys R z, z ~ N(0, I); None if R = I, and for other keys."""
    if not isinstance(keys, GaussianKeys) or keys.structure == "identity":
        return None
    gaps = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    powers = gaps if keys.structure == "autoregressive" else np.sign(gaps)
    return np.asarray(np.linalg.cholesky(keys.correlation**powers))
