"""Directions of keys that a cell looks at: where they are fewer than the features, they alone are drawn.

Dot products with a query are one number a_h·x of a key x for each head: the query is absorbed, where queries are fewer
than dimensions of a head.  The target and the variance of the noise see some first features.  Of keys x = s R z, z ~
N(0, I) and s a number for each key, these are s T'y with R'V = B T, V the directions and B orthonormal: y = B'z ~
N(0, I).  As B does not depend on lengths, cells of other temperature or scale of queries see the same y.
"""

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.data import heads, regression, training
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import AutoregressiveKeys, GaussianKeys, Keys, StudentKeys

Array = NDArray[np.float64]


class Span(NamedTuple):
    """Slopes of logits where queries are absorbed, of keys; or of coordinates of keys, in the basis B of directions."""

    slopes: Array  # (head, feature or coordinate, query)
    features: Array  # (1, coordinate, feature): the first ones, which the target and the noise see
    basis: Array  # (feature, coordinate): no coordinate where keys are drawn whole


@functools.lru_cache(maxsize=1024)
def n_coordinates(cell: Cell) -> int | None:
    """Return how many coordinates of keys are drawn for absorbed queries, 0 of whole keys; None where none are."""
    estimator, d, n_heads, p = cell.estimator, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim
    chosen = estimator.logits, estimator.key_scale, estimator.reference, estimator.learner.kind
    whole = estimator.plain and chosen == ("dot_product", "raw", "none", "nadaraya_watson") and not cell.heads.redrawn
    few = cell.functions is None and cell.n_queries < p
    if not (few and whole) or estimator.combination.kind in ("product", "fitted"):
        return None
    seen = [part.any(axis=0) for m in waves_of(cell) for part in (m.gradient[None], m.curvature, m.waves)]
    elliptical = isinstance(cell.data.key_distribution, GaussianKeys | StudentKeys | AutoregressiveKeys)
    if not seen or not elliptical:
        return 0
    n = n_heads * cell.n_queries + 1 + int(np.flatnonzero(np.any(seen, axis=0)).max(initial=0))
    return n if n < min(d, n_heads * p) else 0


@functools.lru_cache(maxsize=32)
def span_of(cell: Cell) -> Span | None:
    """Return what a cell sees of keys; None where `n_coordinates` is."""
    keys, d, n_slopes = cell.data.key_distribution, cell.data.n_features, cell.heads.n_heads * cell.n_queries
    if (n := n_coordinates(cell)) is None:
        return None
    images = heads.query_points(cell) @ heads.query_projections(cell)
    slopes = heads.key_projections(cell) @ images.swapaxes(1, 2)
    if not n:
        return Span(slopes, np.empty((1, 0, 0)), np.empty((d, 0)))
    directions = np.concatenate([*slopes, np.eye(d, n - n_slopes)], axis=1)
    basis, factor = np.linalg.qr(directions if (root := root_of(keys, d)) is None else root.T @ directions)
    signs = np.where(np.diagonal(factor) < 0.0, -1.0, 1.0)
    slopes, features = np.split(signs[:, None] * factor, [n_slopes], axis=1)
    return Span(slopes.reshape(n, cell.heads.n_heads, -1).swapaxes(0, 1), features[None], basis * signs)


def waves_of(cell: Cell) -> tuple[regression.Waves, ...]:
    """Return m and the variance of the noise as polynomials and waves: both or none."""
    try:
        return regression.as_waves(cell.data.regression, cell.data.n_features), training.variance_waves(cell)
    except TypeError:
        return ()


def root_of(keys: Keys, d: int) -> Array | None:
    """Return the lower triangular R of Gaussian keys R z, z ~ N(0, I); None of any other keys, and for I."""
    if not isinstance(keys, GaussianKeys) or keys.structure == "identity":
        return None
    gaps = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return np.asarray(
        np.linalg.cholesky(keys.correlation ** (gaps if keys.structure == "autoregressive" else np.sign(gaps)))
    )
