"""Errors of averages of orthogonal and of aligned heads, for isotropic random targets and for linear ones.

Keys are standard normal, logits distances.  Queries and keys share orthonormal projections to p dimensions.  Errors
are means over queries x ~ N(0, s^2 I); B = 1 + b^2.  Arguments that are not real numbers raise ValueError.
"""

import numpy as np
from numpy.typing import ArrayLike

from simstudy.arguments import positive, real_array, real_number
from simstudy.theory.closed_forms import averaged_noise_ratio
from simstudy.theory.functions import Array


def isotropic_bias(
    angles: ArrayLike, bandwidth: float, frequency_sd: ArrayLike, n_heads: int, n_features: int, query_scale: float = 1
) -> Array:
    """Squared bias of an average of heads, with many keys, for a target that is an isotropic random field.

    Formula :eq:`isotropic-bias`.  The field has variance 1 and the covariance exp(-t^2 |x - y|^2 / 2).  By Schoenberg's
    theorem every isotropic covariance that exists in all dimensions is a mixture of these over t: average over t.

    Parameters
    ----------
    angles : (..., p) array
        Principal angles between any two heads, in radians.
    bandwidth : float
        b > 0, otherwise ValueError; in units of the standard deviation of the keys, as are all lengths.
    frequency_sd : (...) array
        t: standard deviation of the frequencies of the field.
    n_heads, n_features : int
        H, and d, which is at least 2 p minus the number of angles that are 0.
    query_scale : float
        s, in units of the standard deviation of the keys.

    Returns
    -------
    (...) array
        In units of the variance of the target; nonincreasing in every angle.
    """
    angles, square = real_array("angles", angles), real_array("frequency_sd", frequency_sd) ** 2
    width, scale = 1 + positive("bandwidth", bandwidth) ** 2, real_number("query_scale", query_scale) ** 2
    p = angles.shape[-1]

    def product(sines: Array) -> Array:
        total = 1 + square[..., None] * (2 + scale / width**2 * sines)
        planes = total**2 - 2 * square[..., None] / width * total + (square[..., None] / width) ** 2 * sines
        return np.prod(planes, axis=-1) ** -0.5 * (1 + 2 * square) ** (p - n_features / 2)

    projected = 1 + square * (1 - 1 / width + scale * (1 - 1 / width) ** 2)
    cross = projected ** (-p / 2) * (1 + square * (1 + scale)) ** ((p - n_features) / 2)
    diagonal, off_diagonal = product(np.zeros(angles.shape)), product(np.sin(angles) ** 2)
    return 1 - 2 * cross + off_diagonal + (diagonal - off_diagonal) / n_heads


def alignment_threshold(
    n_heads: int, head_dim: int, bandwidth: float, n_keys: float = np.inf, noise_sd: float = 0, query_scale: float = 1
) -> float:
    """Share of a linear target in one subspace up to which orthogonal heads have a smaller error than aligned heads.

    Formula :eq:`alignment-threshold`, plus the terms of order 1/n that noise and a finite n add.  The target is g'x on
    d = H p features.  All aligned heads project to one subspace of p dimensions, which holds that share of |g|^2.  The
    orthogonal heads project to H such subspaces, one each.  Both errors are linear in the share.

    Parameters
    ----------
    n_heads, head_dim, bandwidth
        H, p, and b > 0, otherwise ValueError; b in units of the standard deviation of the keys.
    n_keys : float
        n; infinite by default, where the noise does not matter.
    noise_sd : float
        Standard deviation of the noise, in units of |g|.
    query_scale : float
        s in (0, 1], in units of the standard deviation of the keys.

    Returns
    -------
    float
        Above 1 if orthogonal heads always have the smaller error, below 0 if aligned heads do.
    """
    width, scale = 1 + positive("bandwidth", bandwidth) ** 2, real_number("query_scale", query_scale) ** 2
    noise, reduced = real_number("noise_sd", noise_sd) ** 2, 1 - 1 / width
    ratio = float(averaged_noise_ratio(np.zeros(head_dim), bandwidth, query_scale))  # E R(x)
    # Weighted by R(x), a coordinate of x within the subspace has this variance; its key has the mean `moved` x.
    moved = reduced / (width + 1)
    variance = scale / (1 - 2 * scale / (width * (width + 1)))

    def one_head(share: float) -> float:
        return ratio * (noise + 1 - 2 * share / (width + 1) + share * variance * moved**2)

    def aligned(share: float) -> float:
        bias = scale * (1 - share * (1 - reduced**2)) + 2 * share * reduced * moved * ratio * variance / n_keys
        return bias + one_head(share) / n_keys

    remaining = 1 - 1 / (n_heads * width)
    bias = scale * remaining**2 + 2 * remaining * moved * ratio * variance / (n_heads * n_keys)
    covariance = noise + 1 - 2 / (n_heads * width)
    orthogonal = bias + (one_head(1 / n_heads) / n_heads + (1 - 1 / n_heads) * covariance) / n_keys
    return (aligned(0.0) - orthogonal) / (aligned(0.0) - aligned(1.0))
