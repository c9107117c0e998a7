"""Bias and variance of a head as its bandwidth goes to 0: the classical local-constant expansion, per head.

Imports NumPy, SciPy, simstudy.settings and simstudy.cells, beside its own package.

A head regresses Y on Z = W'X alone.  So m becomes m_h(z) = E[m | Z = z], the density becomes that of Z, and the noise
variance becomes E[v | Z = z] + Var(m | Z = z): what the head does not see of the target is noise to it
(Härdle, Müller, Sperlich and Werwatz 2004, Nonparametric and semiparametric models, section 4.5).
Index legend: q query; h head; t exponential term; j feature; k head dimension.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from simstudy.cells import Cell
from simstudy.settings import GaussianKeys
from simstudy.theory.functions import Array, Exponentials, Function, noise_variance, regression_function
from simstudy.theory.gaussian import expectation, product_expectation
from simstudy.theory.tilting import key_covariance


class KernelConstants(NamedTuple):
    """mu2 = integral of u_1^2 K(u) and R = integral of K(u)^2, for a kernel K that integrates to 1 on R^p."""

    second_moment: float
    roughness: float


class LocalConstant(NamedTuple):
    """Local-constant expansion of every head; arrays (Q, H), NaN where it does not apply.

    Attributes
    ----------
    projection_bias : (Q, H) array
        m_h(W'x) - m(x): does not vanish with the bandwidth.
    smoothing_bias : (Q, H) array
        b^2 mu2 [Laplacian m_h / 2 + grad m_h . grad f / f].
    variance : (Q, H) array
        R(K) sigma_h^2 / (n b^p f), sigma_h^2 = E[v | Z = z] + Var(m | Z = z).
    reason : str
        Empty, or one sentence that says why there is none.
    """

    projection_bias: Array
    smoothing_bias: Array
    variance: Array
    reason: str


def gaussian_constants(head_dim: int) -> KernelConstants:
    """Constants of the standard normal density on R^p: mu2 = 1, R = (4 pi)^(-p/2)."""
    return KernelConstants(1.0, float((4 * np.pi) ** (-head_dim / 2)))


def compact_constants(head_dim: int, power: int) -> KernelConstants:
    """Constants of c (1 - |u|^2)_+^r on R^p: mu2 = 1/(p + 2r + 2), R = c^2 pi^(p/2) (2r)! / Gamma(p/2 + 2r + 1).

    With c = Gamma(p/2 + r + 1) / (pi^(p/2) r!).  r = 1 is Epanechnikov's kernel (normalised ReLU, sparsemax), 2 the
    biweight, 3 the triweight (arXiv 2601.22766).
    """
    half = head_dim / 2
    log_norm = gammaln(half + power + 1) - half * np.log(np.pi) - gammaln(power + 1)
    log_roughness = 2 * log_norm + half * np.log(np.pi) + gammaln(2 * power + 1) - gammaln(half + 2 * power + 1)
    return KernelConstants(1 / (head_dim + 2 * power + 2), float(np.exp(log_roughness)))


def local_constant(
    cell: Cell,
    key_projections: Array,
    query_projections: Array,
    queries: Array,
    kernel: KernelConstants | None = None,
) -> LocalConstant:
    """Local-constant expansion of the head estimates of a cell, to first order in b^2 and in 1 / (n b^p).

    Valid as b -> 0 and n b^p f -> infinity, for distance logits: a softmax of dot products does not localise unless
    keys are normalised.  The relative errors are O(b^2).  Optimised over b, the squared error falls as
    n^(-4/(4 + p)).

    Parameters
    ----------
    cell : Cell
    key_projections, query_projections : (H, d, p) arrays
        Of full column rank.
    queries : (Q, d) array
    kernel : KernelConstants, optional
        Of the kernel K((z - Z) / b); Gaussian by default, which is softmax attention.

    Raises
    ------
    ValueError
        If the regression function names more coordinates than the cell has features.
    """
    data = cell.data
    regression = regression_function(data.regression, data.n_features)
    reason = _inapplicable(cell)
    if reason:
        unknown = np.full((len(queries), cell.heads.n_heads), np.nan)
        return LocalConstant(unknown, unknown, unknown, reason)
    variance = noise_variance(data.noise, data.noise_sd, data.n_features)
    constants = kernel or gaussian_constants(cell.heads.head_dim)
    covariance = key_covariance(data.key_distribution, data.n_features)
    expansions = []
    for w, u in zip(key_projections, query_projections, strict=True):
        law = _projected_law(covariance, w, queries @ u)
        bias = cell.bandwidth**2 * constants.second_moment * _smoothing(regression, law)
        scaled = constants.roughness / (data.n_keys * cell.bandwidth**cell.heads.head_dim * law.density)
        conditional_mean = expectation(regression, law.means, law.covariance)
        expansions.append((conditional_mean, bias, scaled * _unexplained(regression, variance, conditional_mean, law)))
    mean, smoothing, variances = np.moveaxis(np.array(expansions), 0, -1)
    return LocalConstant(mean - regression(queries)[:, None], smoothing, variances, "")


class _ProjectedLaw(NamedTuple):
    """Law of Z = W'X at points z (Q, p): density (Q,), score grad f / f (Q, p); and X | Z = z ~ N(means, covariance).

    means (Q, d) = z @ gain.T, gain (d, p).
    """

    density: Array
    score: Array
    gain: Array
    means: Array
    covariance: Array


def _projected_law(covariance: Array, projection: Array, points: Array) -> _ProjectedLaw:
    spread = covariance @ projection
    evidence = projection.T @ spread
    precision = np.linalg.inv(evidence)
    score = -points @ precision
    log_det = np.linalg.slogdet(2 * np.pi * evidence)[1]
    density = np.exp(0.5 * (np.sum(score * points, axis=1) - log_det))
    gain = spread @ precision
    return _ProjectedLaw(density, score, gain, points @ gain.T, covariance - gain @ spread.T)


def _unexplained(regression: Function, variance: Function, conditional_mean: Array, law: _ProjectedLaw) -> Array:
    """sigma_h^2 = E[v | Z = z] + Var(m | Z = z), (Q,)."""
    square = product_expectation(regression, regression, law.means, law.covariance)
    # Rounding may leave a variance of 0 slightly negative.
    return expectation(variance, law.means, law.covariance) + np.maximum(square - conditional_mean**2, 0)


def _smoothing(regression: Function, law: _ProjectedLaw) -> Array:
    """Laplacian m_h / 2 + grad m_h . grad f / f at the points of the law, (Q,)."""
    gradient = (regression.gradient + 2 * law.means @ regression.curvature) @ law.gain
    laplacian = np.full(len(gradient), 2 * np.sum((regression.curvature @ law.gain) * law.gain))
    for part in regression.exponentials:
        slope, bend = _exponential_derivatives(part, law)
        gradient, laplacian = gradient + slope, laplacian + bend
    return 0.5 * laplacian + np.sum(gradient * law.score, axis=1)


def _exponential_derivatives(part: Exponentials, law: _ProjectedLaw) -> tuple[Array, Array]:
    """Gradient (Q, p) and Laplacian (Q,) in z of E[exponentials(X) | Z = z].

    With V = Cov(X | Z), M = (I + beta V)^-1 and mu = gain z, each term is the exponential of
    l'M mu + l'VM l / 2 - beta mu'M mu / 2 - log det(I + beta V) / 2, a quadratic in z with gradient
    gain'M (l - beta mu) and Hessian -beta gain'M gain.
    """
    widened = np.eye(len(law.covariance)) + part.precision * law.covariance
    shrinkage = np.linalg.inv(widened)
    pulled = law.means @ shrinkage
    by_term = part.offset + 0.5 * np.sum((part.linear @ law.covariance @ shrinkage) * part.linear, axis=1)
    by_point = -0.5 * (part.precision * np.sum(pulled * law.means, axis=1) + np.linalg.slogdet(widened)[1])
    terms = part.amplitude * np.exp(by_point[:, None] + by_term + pulled @ part.linear.T)
    slopes = (part.linear @ shrinkage - part.precision * pulled[:, None, :]) @ law.gain
    bend = -part.precision * np.sum((shrinkage @ law.gain) * law.gain)
    gradient = np.einsum("qt,qtk->qk", terms, slopes).real
    return gradient, np.sum(terms * (np.sum(slopes**2, axis=2) + bend), axis=1).real


def _inapplicable(cell: Cell) -> str:
    if not isinstance(cell.data.key_distribution, GaussianKeys):
        return f"the expansion is evaluated for Gaussian keys, and these are {cell.data.key_distribution.label}"
    if cell.heads.redrawn:
        return "the expansion is evaluated for fixed heads, and these are redrawn in every replicate"
    if cell.estimator.logits != "distance":
        return "a softmax of dot products with keys of unequal norm does not localise as the bandwidth goes to 0"
    return ""
