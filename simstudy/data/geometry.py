"""Principal angles between the subspaces of heads, and diversity indices.

All functions accept leading batch axes.  Index legend: h and g head, j principal direction, d feature, p dimension of
a head.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GEOMETRIC_INDICES = ("chordal", "participation", "entropy", "logdet", "volume", "vendi", "min_angle")
"""Diversity indices that follow from the projections alone (``logdet`` also from the bandwidth)."""

# Most numbers in bases of pairs: 4 MB, which with intermediate results fit into the cache of a processor.
_NUMBERS_AT_A_TIME = 500_000
NEAR_ONE = 1 - 1e-4  # cos² of an angle above which the arc cosine loses more than two digits


def orthonormal_bases(projections: Array) -> Array:
    """Return orthonormal bases of the column spaces of projections (..., H, d, p) with d ≥ p, by QR."""
    return np.linalg.qr(np.asarray(projections, np.float64))[0]


def principal_angles(bases: Array) -> Array:
    """Return the principal angles (..., H, H, p), ascending, in radians, of subspaces with bases (..., H, d, p).

    Cosines of large angles are the singular values of U_hᵀU_g for orthonormal bases, sines of small angles those of
    (I − U_hU_hᵀ)U_g, as the arc cosine loses half of the digits near 1 (Björck and Golub 1973).
    """
    first, second = np.triu_indices(bases.shape[-3], 1)
    angles = np.zeros((*bases.shape[:-2], bases.shape[-3], bases.shape[-1]))
    # Some pairs at a time, as the bases of all may exceed the memory.
    n_pairs = max(1, _NUMBERS_AT_A_TIME // max(1, bases[..., :1, :, :].size))
    for start in range(0, len(first), n_pairs):
        h, g = first[start : start + n_pairs], second[start : start + n_pairs]
        # By `take`: the memory order after indexing depends on the leading axes, and so would the bits.
        left, right = np.take(bases, h, axis=-3), np.take(bases, g, axis=-3)
        overlap = np.swapaxes(left, -1, -2) @ right
        cosines = np.clip(np.linalg.svd(overlap, compute_uv=False), 0.0, 1.0)
        # Sines take most of the time, and only pairs with a small angle need them.
        small = (cosines**2 > NEAR_ONE).any(axis=-1)
        sines = np.zeros_like(cosines)
        rest = right[small] - left[small] @ overlap[small]
        sines[small] = np.clip(np.linalg.svd(rest, compute_uv=False), 0.0, 1.0)
        # Reversed after the arc sine: for short reversed arrays, NumPy uses other instructions with other last bits, so
        # that a single replicate would differ from the same replicate among others.
        found = np.where(cosines**2 > NEAR_ONE, np.arcsin(sines)[..., ::-1], np.arccos(cosines))
        angles[..., h, g, :] = angles[..., g, h, :] = found
    return angles


def diversity_indices(projections: Array, bandwidth: float = np.nan) -> Array:
    """Return the geometric diversity indices (..., index) of heads (..., H, d, p), in the order of `GEOMETRIC_INDICES`.

    With t_j the principal angles of a pair, c2 the mean over pairs of |U_hᵀU_g|²_F/p = mean cos² t_j, S = Σ_h Π_h, Γ_hg
    = tr(Π_hΠ_g)/p and κ = 1/(1 + b²):

    ``chordal`` 1 − c2; ``participation`` H/(1 + (H − 1)c2); ``entropy`` exp(entropy of eig S/tr S)/p; ``logdet`` −½ Σ_j
    log[(1 − κ²)/(1 − κ² cos² t_j)] averaged over pairs, which is −log ρ of Gaussian distance heads at x = 0 and NaN
    without a bandwidth; ``volume`` Π_j sin t_j averaged over pairs; ``vendi`` exp(entropy of eig Γ/H) (Friedman and
    Dieng 2023); ``min_angle`` sine of the smallest angle, averaged over pairs.  Indices of pairs are NaN for a single
    head.
    """
    bases = orthonormal_bases(projections)
    n_heads, n_features, head_dim = bases.shape[-3:]
    angles_of_heads = principal_angles(bases)
    angles = angles_of_heads[..., *np.triu_indices(n_heads, 1), :]
    cosines2, sines = np.cos(angles) ** 2, np.sin(angles)
    # A single head has no pairs.
    c2 = _mean_over_pairs(cosines2.mean(axis=-1)) if n_heads > 1 else np.full(angles.shape[:-2], np.nan)
    # Eigenvalues of S are the squared singular values of all bases side by side.
    stacked = np.moveaxis(bases, -3, -2).reshape(*bases.shape[:-3], n_features, n_heads * head_dim)
    turned = np.swapaxes(stacked, -1, -2)
    square = stacked @ turned if n_features < n_heads * head_dim else turned @ stacked
    # ½ log[1 + sin² t_j κ²/(1 − κ²)] with κ²/(1 − κ²) = 1/(b²(b² + 2)), by logarithms: no overflow.
    with np.errstate(divide="ignore", invalid="ignore"):
        # A common direction has log 0 = −∞ and adds 0; without a bandwidth, all are NaN.
        log_ratio = 2.0 * (np.log(sines) - math.log(bandwidth) - math.log(math.hypot(bandwidth, math.sqrt(2.0))))
        determinants = 0.5 * np.logaddexp(0.0, log_ratio).sum(axis=-1)
    indices = (
        1.0 - c2,
        n_heads / (1.0 + (n_heads - 1) * c2) if n_heads > 1 else np.ones_like(c2),
        _exp_entropy(square / (n_heads * head_dim)) / head_dim,
        _mean_over_pairs(determinants),
        _mean_over_pairs(sines.prod(axis=-1)),
        _exp_entropy((np.cos(angles_of_heads) ** 2).mean(axis=-1) / n_heads),
        _mean_over_pairs(sines.min(axis=-1)),
    )
    return np.stack(indices, axis=-1)


def _mean_over_pairs(values: Array) -> Array:
    return values.mean(axis=-1) if values.shape[-1] else np.full(values.shape[:-1], np.nan)


def _exp_entropy(matrix: Array) -> Array:
    """Return exp of the Shannon entropy of the eigenvalues of a matrix of trace 1; those of 0 or below add 0."""
    spectrum = np.linalg.eigvalsh(matrix)
    positive = np.where(spectrum > 0.0, spectrum, 1.0)
    return np.exp(-(positive * np.log(positive)).sum(axis=-1))
