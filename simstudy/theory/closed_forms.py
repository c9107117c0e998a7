"""Noise correlation of two heads as a function of their principal angles, at leading order in n.

Throughout: standard normal keys in R^d, orthonormal projections of dimension p shared by queries and keys, principal
angles in radians along the last axis (p,).  "Noise" is the part of a covariance that homoscedastic noise causes; a
signal adds its own part, which may be negative.
"""

import numpy as np
from numpy.typing import ArrayLike

from simstudy.arguments import positive, real_array, real_number
from simstudy.theory.functions import Array


def origin_correlation(angles: ArrayLike, bandwidth: float) -> Array:
    """Noise correlation at the query x = 0, distance logits.

    Formula :eq:`origin-correlation`, in the form that keeps its digits as b -> 0; of orthogonal heads that is the floor
    :eq:`correlation-floor`, since they share every noise draw.

    Parameters
    ----------
    angles : (..., p) array
        Principal angles in radians.
    bandwidth : float
        b > 0, in units of the standard deviation of the keys.

    Returns
    -------
    (...) array
        In (0, 1]; 1 for angles of 0.
    """
    angles, square = real_array("angles", angles).astype(float), positive("bandwidth", bandwidth) ** 2
    return np.prod(1 + np.sin(angles) ** 2 / (square * (square + 2)), axis=-1) ** -0.5


def noise_ratio(first: ArrayLike, second: ArrayLike, angles: ArrayLike, bandwidth: float) -> Array:
    """R_hg(x) = lim n Cov / sigma^2 of pure-noise heads, distance logits, any query.

    Formula :eq:`noise-ratio`; at x = 0 that of :eq:`origin-variance`.

    Parameters
    ----------
    first, second : (..., p) arrays
        Coordinates of the query on the principal vectors of the two heads.
    angles, bandwidth
        As of :func:`origin_correlation`.

    Returns
    -------
    (...) array
        Of one head with itself n over its effective number of keys.
    """
    alpha, beta = real_array("first", first), real_array("second", second)
    cosine, width = np.cos(real_array("angles", angles).astype(float)), 1 + positive("bandwidth", bandwidth) ** 2
    squares = alpha**2 + beta**2
    exponent = (width * squares - 2 * cosine * alpha * beta) / (width**2 - cosine**2) - squares / width
    return np.prod((1 - (cosine / width) ** 2) ** -0.5 * np.exp(-0.5 * exponent), axis=-1)


def averaged_noise_ratio(angles: ArrayLike, bandwidth: float, query_scale: float = 1.0) -> Array:
    """Average of R_hg(x) over queries x ~ N(0, s^2 I), distance logits, s at most 1.

    Formula :eq:`averaged-noise-ratio`.

    1 for orthogonal heads at every bandwidth.  The average is over covariances, not over correlations.

    Parameters
    ----------
    angles, bandwidth
        As of :func:`origin_correlation`.
    query_scale : float
        s, in units of the standard deviation of the keys.

    Returns
    -------
    (...) array
        n Cov / sigma^2, averaged.
    """
    cosine, width = np.cos(real_array("angles", angles).astype(float)), 1 + positive("bandwidth", bandwidth) ** 2
    scale = real_number("query_scale", query_scale)
    alike = 1 - scale**2 * cosine * (1 + cosine) / (width * (width + cosine))
    apart = 1 + scale**2 * cosine * (1 - cosine) / (width * (width - cosine))
    return np.prod((1 - (cosine / width) ** 2) * alike * apart, axis=-1) ** -0.5


def dot_product_correlation(first: ArrayLike, second: ArrayLike, covariance: ArrayLike) -> Array:
    """Noise correlation under dot-product logits, keys N(0, S).

    Formula :eq:`dot-product-correlation`.

    Any projections, also separate ones for queries.  Valid while k'Sk is far below (ln n) / 2.

    Parameters
    ----------
    first, second : (..., d) arrays
        Pulled-back queries k = W W_q'x / b^2 of the two heads.
    covariance : (d, d) array
        S, of the keys.

    Returns
    -------
    (...) array
        In (0, 1].
    """
    difference = real_array("first", first) - real_array("second", second)
    return np.exp(-0.5 * np.sum((difference @ real_array("covariance", covariance)) * difference, axis=-1))
