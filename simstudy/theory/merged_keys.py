"""Bias of heads that see the means of consecutive keys, and of their values, for many keys.

A key of a chunk, given the mean of the chunk, is Gaussian around a multiple of that mean; a head that weighs chunks by
their means averages the regression function over that law.  Index legend: h head; q query; i key of a chunk.
"""

from __future__ import annotations

import numpy as np

from simstudy.design.settings import AutoregressiveKeys, GaussianKeys, MergeTransformation
from simstudy.design.settings.cell import Cell
from simstudy.theory.functions import Array, Function, regression_function, targets
from simstudy.theory.gaussian import expectation
from simstudy.theory.leading import Prediction

_SAME = 1e-12
_NO_VARIANCE = "merged keys: the bias for many keys is derived, and no variance"


def merged_leading_order(cell: Cell, key_projections: Array, query_projections: Array, queries: Array) -> Prediction:
    """Bias of heads over merged keys at any bandwidth as n grows: E[K m̄]/E K − m(x), m̄ the mean of m over a chunk.

    With keys of autocorrelation ρ_ij within a chunk of s, v = mean_ij ρ_ij the variance of its mean X̄ and
    β_i = mean_j ρ_ij / v, key i given X̄ is N(β_i X̄, (1 − β_i² v) I).

    Parameters
    ----------
    cell : Cell
    key_projections, query_projections : (H, d, p) arrays
        Orthonormal.
    queries : (Q, d) array
    """
    target = targets(cell, queries)
    n_heads = len(key_projections)
    unknown = np.full((len(queries), n_heads), np.nan)
    bias, reason, merge = unknown, _reason(cell, key_projections), cell.estimator.transformation
    if isinstance(merge, MergeTransformation) and not reason:
        regression = regression_function(cell.data.regression, cell.data.n_features)
        images = np.einsum("qd,hdp->hqp", queries, query_projections)
        heads = zip(key_projections, images, strict=True)
        smoothed = [_smoothed(cell, merge, regression, projection, image) for projection, image in heads]
        bias, reason = np.stack(smoothed, axis=1) - target[:, None], _NO_VARIANCE
    return Prediction(bias, np.full((*unknown.shape, n_heads), np.nan), target, unknown, reason)


def _smoothed(cell: Cell, merge: MergeTransformation, regression: Function, projection: Array, images: Array) -> Array:
    """E[K m̄]/E K at each query (q,), of one head with projection (d, p) and images (q, p) of the queries."""
    keys = cell.data.key_distribution
    coefficient = keys.coefficient if isinstance(keys, AutoregressiveKeys) else 0.0
    place = np.arange(merge.stride)
    correlation = np.float64(coefficient) ** np.abs(place[:, None] - place)
    variance, b2 = correlation.mean(), cell.bandwidth**2
    slopes = correlation.mean(axis=1) / variance
    # Under the kernel the image of a chunk's mean is N(centre, spread).
    centre, spread = variance / (variance + b2) * images, variance * b2 / (variance + b2)
    visible = projection @ projection.T
    laws = [
        (slope * centre @ projection.T, np.eye(len(projection)) + slope**2 * (spread - variance) * visible)
        for slope in slopes
    ]
    return np.mean([expectation(regression, *law) for law in laws], axis=0)


def _reason(cell: Cell, projections: Array) -> str:
    """Why the formula does not apply; empty if it does."""
    estimator, keys = cell.estimator, cell.data.key_distribution
    if not isinstance(estimator.transformation, MergeTransformation):
        return "keys are not merged"
    white = isinstance(keys, GaussianKeys) and keys.structure == "identity"
    if not (white or isinstance(keys, AutoregressiveKeys)):
        return f"merged keys: derived for standard normal or autoregressive keys, and these are {keys.label}"
    if (
        estimator.logits != "distance"
        or estimator.normaliser.kind != "softmax"
        or estimator.combination.rule == "product"
    ):
        return "merged keys: derived for softmax of distances"
    gram = projections.swapaxes(1, 2) @ projections
    if cell.heads.redrawn or np.abs(gram - np.eye(cell.heads.head_dim)).max() > _SAME:
        return "merged keys: derived for given orthonormal projections"
    return ""
