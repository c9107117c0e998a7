"""Attention mechanisms: transformation of keys, values and queries → logits → normaliser → combination of heads.

Logits are those of projected keys after a transformation.  Softmax and compact kernels of distances have compiled
kernels; other normalisers have arrays of weights.  With a mask, a query attends to visible keys as if there were no
others.  A head without keys in its window has the estimate NaN: its replicate is counted in ``failure_rate`` and
excluded from all other measures.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simstudy.attention.normalisers import Array, normalise, tilted
from simstudy.attention.transformations import Inputs, multiply_heads, transform
from simstudy.design.settings.cell import Estimator, Visible
from simstudy.design.settings.choices import CompactNormaliser, LocalLinearNormaliser, Normaliser
from simstudy.kernels import compact_moments, nw_moments
from simstudy.kernels.devices import on_cuda
from simstudy.kernels.tiles import set_closeness

# Index legend: r replicate, q query, h and g head, k dimension of a head, i key.

BLOCK_BYTES = 1 << 20  # most bytes of weights, unless one query has more: for the second-level cache


class Estimates(NamedTuple):
    """Means (replicate, query, head), NaN without weights; their covariance given the keys; ln Σ K, if requested."""

    means: Array
    gram: Array | None
    log_mass: Array | None = None


def evaluate(
    estimator: Estimator, bandwidth: float, inputs: Inputs, with_mass: bool = False, visible: Visible | None = None
) -> Estimates:
    """Return the estimates of heads; log_mass only for softmax heads, if ``with_mass``."""
    direct = estimator.normaliser.kind == "softmax" and estimator.transformation.kind == "none" and not on_cuda()
    if visible is not None and not direct:
        return _masked(functools.partial(evaluate, estimator, bandwidth), _on_host(inputs), visible)
    if estimator.transformation.kind != "none":
        inputs = transform(estimator.transformation, _on_host(inputs))
    if estimator.combination.kind == "product":
        inputs = multiply_heads(_on_host(inputs), getattr(estimator.combination, "logits", ""))
    normaliser, logits = estimator.normaliser, estimator.logits
    if normaliser.kind == "softmax":
        return Estimates(*nw_moments(*inputs, bandwidth, logits, with_mass, visible))
    if isinstance(normaliser, CompactNormaliser):
        return Estimates(*compact_moments(*_on_host(inputs), normaliser.window * bandwidth, normaliser.power))
    return Estimates(*_moments(_on_host(inputs), bandwidth, logits, normaliser))


def _masked(compute: Callable[[Inputs], Estimates], inputs: Inputs, visible: Visible) -> Estimates:
    """Return estimates of masked attention, computed together for queries that see the same keys."""
    parts = []
    patterns, pattern_of = np.unique(visible, axis=0, return_inverse=True)
    for number, seen in enumerate(patterns):
        variances = None if inputs.variances is None else inputs.variances[..., seen]
        queries = inputs.queries[..., pattern_of == number, :, :]
        parts.append(compute(Inputs(inputs.keys[..., seen], inputs.values[..., seen], variances, queries)))
    place = np.argsort(np.argsort(pattern_of, kind="stable"))
    means = np.concatenate([part.means for part in parts], axis=1)[:, place]
    grams = [part.gram for part in parts if part.gram is not None]
    return Estimates(means, np.concatenate(grams, axis=1)[:, place] if grams else None)


def _on_host(inputs: Inputs) -> Inputs:
    """Return inputs as arrays on the host."""
    variances = None if inputs.variances is None else np.asarray(inputs.variances)
    return Inputs(np.asarray(inputs.keys), np.asarray(inputs.values), variances, inputs.queries)


def _moments(inputs: Inputs, bandwidth: float, logits: str, normaliser: Normaliser) -> tuple[Array, Array | None]:
    """Return Σ_i w_hi Y_i (r, q, h) and Σ_i w_hi w_gi Var_i (r, q, h, g) for any normaliser."""
    n_replicates, n_heads, _, n_keys = inputs.keys.shape
    means = np.empty((n_replicates, inputs.queries.shape[-3], n_heads))
    gram = None if inputs.variances is None else np.empty((*means.shape, n_heads))
    step = max(1, BLOCK_BYTES // (8 * n_heads * n_keys))
    # One replicate at a time, so that its bits do not depend on the others.
    for r in range(n_replicates):
        keys = np.ascontiguousarray(inputs.keys[r], np.float64)
        points = (inputs.queries[r] if inputs.queries.ndim == 4 else inputs.queries).astype(np.float64, "C")
        for first in range(0, means.shape[1], step):
            part = slice(first, first + step)
            scores = np.empty((len(points[part]), n_heads, n_keys))
            set_closeness(keys, points[part], logits == "distance", scores)
            scores /= bandwidth**2 * (2.0 if logits == "distance" else 1.0)
            weights = normalise(normaliser, scores)
            if isinstance(normaliser, LocalLinearNormaliser):
                weights = tilted(weights, keys, points[part], normaliser.ridge * bandwidth**2)
            means[r, part] = weights @ inputs.values[r].astype(np.float64)
            if gram is not None and inputs.variances is not None:
                gram[r, part] = (weights * inputs.variances[r]) @ weights.mT
    return means, gram
