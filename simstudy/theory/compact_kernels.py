"""Bias, covariance and rate of empty windows of heads with compact kernels of fixed bandwidth.

Keys are standard normal and projections orthonormal, so that the squared distance D of a projected key from a
projected query c is noncentral χ²: p degrees of freedom, noncentrality |c|².  Index legend: h, g head; q query.
"""

import numpy as np
import scipy

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import CompactNormaliser, GaussianKeys, HeteroscedasticNoise, Quadratic, Zero
from simstudy.theory.functions import Array, next_term, targets
from simstudy.theory.leading import MIN_EFFECTIVE_SIZE, NEXT_TERM_LIMIT, Prediction

_SAME = 1e-12
# Gauss-Legendre quadrature; a normal vector is longer than its mean length plus _EXTENT with probability below 1e-30.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_EXTENT = 12.0


Kernel = tuple[float, int]
"""Radius and power of (1 − D/radius²)_+^power."""


def _kernel_of(cell: Cell) -> Kernel | None:
    """Compact kernel of fixed bandwidth of the heads of a cell; None if they have another kernel."""
    estimator = cell.estimator
    changed = estimator.transformation.kind != "none" or estimator.combination.kind == "product"
    if changed or estimator.key_scale != "raw" or estimator.logits != "distance":
        return None
    if isinstance(estimator.normaliser, CompactNormaliser):
        return estimator.normaliser.window * cell.bandwidth, estimator.normaliser.power
    if (threshold := getattr(estimator.normaliser, "threshold", 0.0)) < 0:
        return float(np.sqrt(-2.0 * threshold)) * cell.bandwidth, 1
    return None


def empty_window_rate(cell: Cell, query_projections: Array, queries: Array) -> tuple[float, str]:
    """Exact probability (1 − p_h)^n that a replicate has no estimate; NaN and a reason where it is not known.

    Formula :eq:`empty-window`.

    p_h is the probability that a key falls into the window.  All heads and queries must have the same window.

    Parameters
    ----------
    cell, query_projections, queries
        As of :func:`leading_order`; projections are orthonormal.

    Returns
    -------
    rate : float
        A probability, or NaN.
    reason : str
        Why the rate is NaN; empty if it is known.
    """
    kernel = _kernel_of(cell)
    images = np.einsum("qd,hdp->qhp", queries, query_projections).reshape(-1, cell.heads.head_dim)
    if kernel is None:
        return np.nan, "without softmax, exact theory gives only the rate of empty windows of compact kernels"
    aligned = cell.heads.n_heads == 1 or cell.heads.arrangement == "aligned"
    if reason := _keys_reason(cell):
        return np.nan, reason
    if not aligned or np.ptp(images, axis=0).max() > _SAME:
        return np.nan, "the rate of empty windows is known for one window: one query, aligned heads"
    outside = scipy.stats.ncx2(cell.heads.head_dim, images[0] @ images[0]).sf(kernel[0] ** 2)
    return float(outside**cell.data.n_keys), ""


def compact_leading_order(cell: Cell, key_projections: Array, query_projections: Array, queries: Array) -> Prediction:
    """Bias and covariance of heads with compact kernels of fixed bandwidth, at leading order in n.

    As for softmax (:func:`leading_order`), with K the kernel: E f_h = E[Km]/E K − E[K²(m − μ)]/(n(E K)²) and
    Cov(f_h, f_g) = E[K_hK_g(σ² + (m − μ)²)]/(n(E K)²).  Derived for m = 0 at any query and for m = c|x|² at x = 0, and
    for heads that are aligned or orthogonal.

    Parameters
    ----------
    cell, key_projections, query_projections, queries
        As of :func:`leading_order`.

    Returns
    -------
    Prediction
        Valid if at every query and for every head the effective sample size is at least `MIN_EFFECTIVE_SIZE` and the
        next term within `NEXT_TERM_LIMIT` of the variance, as for softmax; otherwise blank, with a reason.
    """
    target, kernel = targets(cell, queries), _kernel_of(cell)
    blank = Prediction.blank(target, cell.heads.n_heads, _leading_reason(cell, kernel, key_projections, queries))
    if kernel is None or blank.reason:
        return blank
    images = np.einsum("qd,hdp->qhp", queries, query_projections)
    found = (_at_query(cell, kernel, image, key_projections) for image in images)
    bias, covariance, sizes, neglected = (np.array(each) for each in zip(*found, strict=True))
    if np.isnan(covariance).any():
        reason = "compact kernels: windows of heads with the same subspace overlap in part"
    elif sizes.min() < MIN_EFFECTIVE_SIZE:
        reason = f"effective sample size {sizes.min():.3g} below {MIN_EFFECTIVE_SIZE:g}"
    elif (worst := np.abs(neglected).max()) > NEXT_TERM_LIMIT:
        reason = f"compact kernels: the next term is {worst:.1%} of the variance (at most {NEXT_TERM_LIMIT:.0%})"
    else:
        return Prediction(bias, covariance, target, neglected, "")
    return blank._replace(next_term=neglected, reason=reason)


def _at_query(cell: Cell, kernel: Kernel, images: Array, projections: Array) -> tuple[Array, Array, Array, Array]:
    """Bias (H,), covariance (H, H), effective sample sizes and next terms (H,) at one query with images (H, p)."""
    n, sigma2, d, p = cell.data.n_keys, cell.data.noise_sd**2, cell.data.n_features, cell.heads.head_dim
    regression = cell.data.regression
    c = regression.coefficients[0] if isinstance(regression, Quadratic) else 0.0
    n_heads = len(images)
    powers = [np.array([_moments(kernel, p, image @ image, times) for image in images]) for times in (1, 2, 3)]
    mass = powers[0][:, 0]
    ratio = powers[1][:, 0] / mass**2
    # Means of D and D² under the kernel, its square and its cube.
    (first, second), (first2, _), _ = moments = [table[:, 1:].T / table[:, 0] for table in powers]
    bias = c * (first + d - p) - c * ratio * (first2 - first) / n
    _, error, error3 = (sigma2 + c**2 * (two - 2 * one * first + first**2 + 2 * (d - p)) for one, two in moments)
    covariance = np.diag(ratio * error / n)
    third = powers[2][:, 0] / mass**3 * error3
    neglected = next_term(ratio, ratio * error, third, c * ratio * (first2 - first)) / n
    for h, g in zip(*np.triu_indices(n_heads, 1), strict=True):
        orthogonal = 2 * (second[h] - first[h] ** 2) + 2 * (d - 2 * p) + (first[h] - p) ** 2
        same = np.abs(projections[h] - projections[g]).max() < _SAME
        meet = np.abs(images[h] - images[g]).max() < _SAME
        value = (sigma2 + c**2 * orthogonal) / n if not same else covariance[h, h] if meet else np.nan
        if same and not meet and np.linalg.norm(images[h] - images[g]) >= 2 * kernel[0]:
            value = 0.0  # disjoint windows
        covariance[h, g] = covariance[g, h] = value
    return bias, covariance, n / ratio, neglected


def _moments(kernel: Kernel, head_dim: int, noncentrality: float, times: int) -> Array:
    """E[Kᵐ Dʲ] for j = 0, 1, 2, where m is ``times``."""
    radius, power = kernel
    # Integrated over t = √D: for p = 1 the density of D is infinite at 0.  Mass beyond the last end is negligible.
    last = min(radius, np.sqrt(noncentrality) + np.sqrt(head_dim) + _EXTENT)
    breaks = radius / np.sqrt(1.0 + times * power) * np.array([1.0, 3.0])
    ends = np.array([0.0, *breaks[breaks < last], last])
    halves = np.diff(ends)[:, None] / 2.0
    t, steps = (ends[:-1, None] + halves * (1.0 + _NODES)).ravel(), (halves * _WEIGHTS).ravel()
    density = 2.0 * t * scipy.stats.ncx2(head_dim, noncentrality).pdf(t * t)
    kernels = np.maximum(1.0 - (t / radius) ** 2, 0.0) ** (times * power)
    return np.asarray((steps * density * kernels * t ** (2.0 * np.arange(3)[:, None])).sum(axis=1))


def _keys_reason(cell: Cell) -> str:
    keys = cell.data.key_distribution
    if not isinstance(keys, GaussianKeys) or keys.structure != "identity":
        return f"compact kernels are integrated over standard normal keys; these are {keys.label}"
    if cell.heads.redrawn or cell.heads.arrangement in ("file", "own") or cell.estimator.head_bandwidths is not None:
        return "compact kernels are integrated for given orthonormal projections"
    return ""


def _leading_reason(cell: Cell, kernel: Kernel | None, projections: Array, queries: Array) -> str:
    """Why the expansion does not apply; empty if it does."""
    if kernel is None:
        return "without softmax, leading order is derived only for compact kernels of fixed bandwidth"
    regression = cell.data.regression
    radial = isinstance(regression, Quadratic) and len(regression.coefficients) == 1 and not queries.any()
    if isinstance(cell.data.noise, HeteroscedasticNoise) or not (isinstance(regression, Zero) or radial):
        return "compact kernels: derived for constant noise and m = 0, or m = c|x|² at x = 0"
    overlaps = [projections[h].T @ projections[g] for h, g in zip(*np.triu_indices(len(projections), 1), strict=True)]
    identity = np.eye(cell.heads.head_dim)
    if any(min(np.abs(overlap).max(), np.abs(overlap - identity).max()) > _SAME for overlap in overlaps):
        return "compact kernels: derived for heads that are aligned or orthogonal"
    return _keys_reason(cell)
