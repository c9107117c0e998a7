"""Key subspaces of the heads of each layer: their angles and diversity, beside those of random subspaces.

Heads that share a key count once.  Index legend: h, g head; d feature; p dimension of a head.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from simstudy.data.geometry import (
    NEAR_ONE,
    angles_between,
    diversity_indices,
    exp_entropy,
    indices_of,
    orthonormal_bases,
    spectral_entropy,
)
from simstudy.theory import origin_correlation

_HAAR_DRAWS = 8
_LEAST_DIMENSION = 8
"""Of the smaller heads at which the spectrum of random subspaces is drawn."""
_NODES = 4096
_LARGE = 1024
"""More directions than these are computed with in single precision, in half of the time; six digits are kept."""


def key_groups(keys: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """Return for each head (L, H) the first of its layer that has the same key."""
    groups = np.empty(keys.shape[:2], int)
    for own, layer, bias in zip(groups, keys, biases, strict=True):
        first: dict[bytes, int] = {}
        same = (key.tobytes() + more.tobytes() for key, more in zip(layer, bias, strict=True))
        own[:] = [first.setdefault(each, h) for h, each in enumerate(same)]
    return groups


def geometry(keys: np.ndarray, groups: np.ndarray, each: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray]:
    """Correlations (L, H, H) by angles, and diversity (L, index), of keys (L, H, d, p), the same in each group.

    Correlations are the closed form at x = 0 of distance heads, at the temperature of attention.  ``each`` is `map`, or
    what does the same in several threads.
    """
    bandwidth = keys.shape[3] ** 0.25
    n_layers = 1 if keys.strides[0] == 0 else len(keys)
    found = each(functools.partial(_of_layer, bandwidth), keys[:n_layers], groups[:n_layers])
    correlations, indices = (
        np.broadcast_to(values, (len(keys), *values[0].shape)) for values in zip(*found, strict=True)
    )
    return correlations, indices


def _of_layer(bandwidth: float, keys: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distinct, place = np.unique(group, return_inverse=True)
    angles, entropy = _angles_and_entropy(orthonormal_bases(keys[distinct]))
    return origin_correlation(angles, bandwidth)[place][:, place], indices_of(angles, entropy, bandwidth)


def _angles_and_entropy(bases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Principal angles (H, H, p) and spectral entropy, both from one product of all bases (H, d, p) with all."""
    n_heads, n_features, p = bases.shape
    stacked: np.ndarray = bases.swapaxes(0, 1).reshape(n_features, -1)
    stacked = stacked.astype(np.float32) if n_heads * p > _LARGE else stacked
    gram = stacked.T @ stacked
    first, second = np.triu_indices(n_heads, 1)
    overlaps = gram.reshape(n_heads, p, n_heads, p).swapaxes(1, 2)[first, second]
    cosines = np.clip(np.linalg.svd(overlaps, compute_uv=False), 0.0, 1.0)
    angles = np.zeros((n_heads, n_heads, p))
    angles[first, second] = angles[second, first] = np.arccos(cosines)
    for pair in np.transpose([first, second])[(cosines**2 > NEAR_ONE).any(axis=1)]:
        angles[np.ix_(pair, pair)] = angles_between(bases[pair])
    square = gram if len(gram) <= n_features else stacked @ stacked.T
    return angles, exp_entropy(scipy.linalg.eigvalsh(square) / len(gram)) / p


def haar_indices(n_heads: int, n_features: int, p: int, bandwidth: float, rng: np.random.Generator) -> np.ndarray:
    """Draw diversity indices (draw, index) with the mean and the deviation of those of Haar-random subspaces.

    Small ones are drawn whole.  Of large ones each pair is drawn by itself, as the angles of any two are independent.
    The spectrum of the sum of their projections is drawn at 1/k of all dimensions: its distance from the limit of many
    dimensions is k times as large.
    """
    fractions = range(1, p // _LEAST_DIMENSION + 1)
    k = max((k for k in fractions if n_features % k == p % k == 0), default=1)
    if k == 1:
        return diversity_indices(rng.standard_normal((_HAAR_DRAWS, n_heads, n_features, p)), bandwidth)
    first, second = np.triu_indices(n_heads, 1)
    angles = np.zeros((_HAAR_DRAWS, n_heads, n_heads, p))
    angles[:, first, second] = _haar_angles((_HAAR_DRAWS, len(first)), n_features, p, rng)
    angles[:, second, first] = angles[:, first, second]
    small = rng.standard_normal((_HAAR_DRAWS, n_heads, n_features // k, p // k))
    limit = _limit_of_entropy(n_heads, p / n_features)
    drawn = spectral_entropy(orthonormal_bases(small)) / (p // k)
    return indices_of(angles, limit + (drawn - limit) / k, bandwidth)


def _haar_angles(shape: tuple[int, int], n_features: int, p: int, rng: np.random.Generator) -> np.ndarray:
    """Angles (*shape, p) of pairs of subspaces: a Jacobi ensemble, as Edelman and Sutton (2008) draw it."""
    angles = np.zeros((*shape, p))
    if (n := min(p, n_features - p)) == 0:  # all angles but n are 0
        return angles
    rank = np.arange(n, 0, -1) / 2
    more = n_features / 2 - n + rank
    first, second = rng.beta(rank, more, (*shape, n)), rng.beta(rank[1:], more[1:] + 0.5, (*shape, n - 1))
    # Squares of the bidiagonal matrix.  Its product with its transpose is tridiagonal, of eigenvalues cos².
    on = np.concatenate([first[..., :1], first[..., 1:] * (1 - second)], axis=-1)
    above = (1 - first[..., :-1]) * second
    beside = np.sqrt(above * on[..., 1:])
    on[..., :-1] += above
    for place in np.ndindex(shape):
        # What `eigvalsh_tridiagonal` calls, too, after checks that take twice as long.
        cosines2, _ = scipy.linalg.lapack.dsterf(on[place], beside[place])
        angles[place][p - n :] = np.arccos(np.sqrt(np.clip(cosines2[::-1], 0.0, 1.0)))
    return angles


def _limit_of_entropy(n_heads: int, share: float) -> float:
    """exp entropy of the sum of free projections of this trace, over the dimension of each.

    The density is H ((b - x)(x - a))^(1/2) / (2 pi x (H - x)), with an atom at H where subspaces must meet (Voiculescu,
    Dykema and Nica 1992).  Its first correction, of order 1/d, is 0 within the error of 200 draws.
    """
    ends = (math.sqrt(share * (n_heads - 1)) + np.array([-1, 1]) * math.sqrt(1 - share)) ** 2
    half, middle = np.ptp(ends) / 2, ends.mean()
    turns = np.pi * (np.arange(_NODES) + 0.5) / _NODES
    x = np.maximum(middle + half * np.cos(turns), np.finfo(float).tiny)
    density = n_heads * (half * np.sin(turns)) ** 2 / (2 * np.pi * x * (n_heads - x))
    atom = max(0.0, 1 - n_heads * (1 - share)) * n_heads * math.log(n_heads)
    return n_heads * math.exp(-(np.pi * np.mean(density * x * np.log(x)) + atom) / (n_heads * share))
