"""Weights from logits: pure functions along the last axis, that of the keys.

Index legend of `tilted`: q query, h head, k and l dimensions of a head, i key.
"""

import numpy as np

from simstudy.design.settings import choices
from simstudy.design.settings.cell import Array

_ITERATIONS = 200  # most iterations of Newton's method, which takes about ten
_ROUNDING = 4 * np.finfo(np.float64).eps


def normalise(normaliser: choices.Normaliser, logits: Array) -> Array:
    """Return the weights of a normaliser for logits (..., key); NaN if no key has weight."""
    match normaliser:
        case choices.SoftmaxNormaliser() | choices.LocalLinearNormaliser():
            return softmax(logits)
        case choices.EntmaxNormaliser() | choices.SparsemaxNormaliser():
            return entmax(logits, normaliser.power)
        case choices.TopKNormaliser():
            place = max(logits.shape[-1] - normaliser.k, 0)
            # Keys that tie with the k-th largest are included.
            least = np.partition(logits, place, axis=-1)[..., place, None]
            return softmax(np.where(logits < least, -np.inf, logits))
        case choices.ReluNormaliser():
            excess = logits - normaliser.threshold
            return _share(np.maximum(excess, 0.0, out=excess))
    raise TypeError(f"no normaliser {normaliser!r}")


def softmax(logits: Array) -> Array:
    """Return w ∝ exp(z)."""
    weights = logits - logits.max(axis=-1, keepdims=True)
    return _share(np.exp(weights, out=weights))


def tilted(weights: Array, keys: Array, queries: Array, ridge: float) -> Array:
    """Return w_i {1 − c'(V + ridge I)⁻¹ (k_i − k̄)}, (q, h, i): weights of the local linear estimate at k_q.

    It is the intercept of weighted least squares with a ridge penalty on the slope.  Weighted keys (h, k, i) have the
    mean k̄ = k_q + c and the covariance V.  In directions without variance of keys, the slope is 0.
    """
    mean = np.einsum("qhi,hki->qhk", weights, keys)
    around = keys - mean[..., None]
    spread = (weights[:, :, None] * around) @ around.mT + ridge * np.eye(keys.shape[1])
    slope = np.linalg.pinv(spread, hermitian=True) @ (mean - queries)[..., None]
    return np.asarray(weights * (1.0 - (slope * around).sum(axis=2)))


def entmax(logits: Array, power: int) -> Array:
    """Return w = (z/r − τ)_+^r, Σ w = 1, for logits z, r = power, by Newton's method on a convex norm from the left."""
    # The largest logit is subtracted first, so that large logits lose no digits.
    shifted = (logits - logits.max(axis=-1, keepdims=True)) / power
    rows = shifted.reshape(-1, logits.shape[-1])
    found = np.full((len(rows), 1), -1.0)
    active = np.flatnonzero(np.isfinite(rows).all(axis=1))
    rows = rows[active]
    for _ in range(_ITERATIONS):
        if not active.size:
            break
        gaps = np.maximum(rows - found[active], 0.0)
        slopes = gaps ** (power - 1) * (gaps > 0)
        norm = (gaps * slopes).sum(axis=1) ** (1.0 / power)
        found[active, 0] += np.maximum(norm - 1.0, 0.0) / (slopes.sum(axis=1) * norm ** (1 - power))
        # Each row stops separately, so that its bits do not depend on the others.
        further = norm - 1.0 > _ROUNDING
        if not further.all():
            active, rows = active[further], rows[further]
    return _share(np.maximum(shifted - found.reshape(*logits.shape[:-1], 1), 0.0) ** power)


def _share(weights: Array) -> Array:
    with np.errstate(invalid="ignore"):
        weights /= weights.sum(axis=-1, keepdims=True)
    return weights
