"""Noise correlation of two heads as a function of their principal angles, at leading order in n.

Keys are standard normal in R^d.  Queries and keys share orthonormal projections of dimension p.  Principal angles, in
radians, lie along the last axis (p,).  "Noise" is the part of a covariance that homoscedastic noise causes; a signal
adds another part, which may be negative.  Arguments that are not real numbers raise ValueError.
"""

import numpy as np
from numpy.typing import ArrayLike

from simstudy.arguments import positive, real_array, real_number
from simstudy.theory.functions import Array


def origin_correlation(angles: ArrayLike, bandwidth: float) -> Array:
    """Noise correlation at the query x = 0, distance logits.

    Formula :eq:`origin-correlation`, in the form that loses no digits as b -> 0.  For orthogonal heads it is the floor
    :eq:`correlation-floor`, which is above 0 because all heads see the same noise.

    Parameters
    ----------
    angles : (..., p) array
        Principal angles in radians.
    bandwidth : float
        b > 0, otherwise ValueError; in units of the standard deviation of the keys.

    Returns
    -------
    (...) array
        In (0, 1]; 1 for angles of 0.
    """
    angles, square = real_array("angles", angles).astype(float), positive("bandwidth", bandwidth) ** 2
    return np.prod(1 + np.sin(angles) ** 2 / (square * (square + 2)), axis=-1) ** -0.5


def noise_ratio(first: ArrayLike, second: ArrayLike, angles: ArrayLike, bandwidth: float) -> Array:
    """R_hg(x) = lim n Cov(f_h, f_g) / sigma^2 without a signal (m = 0), distance logits, any query.

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
        R_hg(x); for a head with itself, n divided by its effective number of keys.
    """
    alpha, beta = real_array("first", first), real_array("second", second)
    cosine, width = np.cos(real_array("angles", angles).astype(float)), 1 + positive("bandwidth", bandwidth) ** 2
    squares = alpha**2 + beta**2
    exponent = (width * squares - 2 * cosine * alpha * beta) / (width**2 - cosine**2) - squares / width
    return np.prod((1 - (cosine / width) ** 2) ** -0.5 * np.exp(-0.5 * exponent), axis=-1)


def averaged_noise_ratio(angles: ArrayLike, bandwidth: float, query_scale: float = 1.0) -> Array:
    """Average of R_hg(x) over queries x ~ N(0, s^2 I), distance logits, s at most 1.

    Formula :eq:`averaged-noise-ratio`.  It is 1 for orthogonal heads at every bandwidth.

    Covariances are averaged, not correlations.

    Parameters
    ----------
    angles, bandwidth
        As of :func:`origin_correlation`.
    query_scale : float
        s, in units of the standard deviation of the keys.

    Returns
    -------
    (...) array
        n Cov(f_h, f_g) / sigma^2, averaged over queries.
    """
    cosine, width = np.cos(real_array("angles", angles).astype(float)), 1 + positive("bandwidth", bandwidth) ** 2
    scale = real_number("query_scale", query_scale)
    sums = 1 - scale**2 * cosine * (1 + cosine) / (width * (width + cosine))
    differences = 1 + scale**2 * cosine * (1 - cosine) / (width * (width - cosine))
    return np.prod((1 - (cosine / width) ** 2) * sums * differences, axis=-1) ** -0.5


def dot_product_correlation(first: ArrayLike, second: ArrayLike, covariance: ArrayLike) -> Array:
    """Noise correlation under dot-product logits, keys N(0, S).

    Formula :eq:`dot-product-correlation`.

    Projections are arbitrary, and may differ for queries and keys.  Valid while k'Sk is far below (ln n) / 2.

    Parameters
    ----------
    first, second : (..., d) arrays
        Vectors k = W W_q'x / b^2 of the two heads, whose logits are k'X.
    covariance : (d, d) array
        S, the covariance of the keys.

    Returns
    -------
    (...) array
        In (0, 1].
    """
    difference = real_array("first", first) - real_array("second", second)
    return np.exp(-0.5 * np.sum((difference @ real_array("covariance", covariance)) * difference, axis=-1))
