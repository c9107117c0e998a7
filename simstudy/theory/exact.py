"""Bias and covariance of head estimates over redraws of the training data, exactly at any n, by quadrature.

Imports NumPy and simstudy.cells, beside its own package.

Index legend: h, g head; q query.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simstudy.cells import Cell
from simstudy.settings import GaussianKeys
from simstudy.theory.exact_integrals import head_covariance, head_mean, head_variance
from simstudy.theory.exact_scalar import ScalarLaw
from simstudy.theory.functions import Array, noise_variance, regression_function
from simstudy.theory.tilting import head_kernels

# Every grid is laid twice, the second time with steps longer by this factor.  Convergence is exponential in 1/step,
# so the change exceeds the error of the finer result by far.
_COARSENING = 1.25
# Relative error of sums of some hundred thousand rounded terms.
_ROUNDING = 1e-12


class ExactPrediction(NamedTuple):
    """Exact moments of one cell; NaN where they were not computed.

    Attributes
    ----------
    bias : (Q, H) array
        E f_h(x_q) - m(x_q).
    covariance : (Q, H, H) array
        Covariance of head estimates at one query over redraws of the training data.
    target : (Q,) array
        m(x_q); never NaN.
    bias_error : (Q, H) array
        Bound of the absolute numerical error of the bias, estimated by a second computation on coarser grids.
    covariance_error : (Q, H, H) array
        The same for the covariance.
    self_check : (Q,) array
        Largest distance from 1 of the same integrals for Y = 1, over heads and pairs.
    reason : str
        Empty if moments were computed, else one sentence that says why not.
    """

    bias: Array
    covariance: Array
    target: Array
    bias_error: Array
    covariance_error: Array
    self_check: Array
    reason: str


class _Computed(NamedTuple):
    """Means (Q, H), covariances (Q, H, H) and self-checks (Q,) at one fineness of the grids."""

    mean: Array
    covariance: Array
    self_check: Array


def exact_moments(cell: Cell, key_projections: Array, query_projections: Array, queries: Array) -> ExactPrediction:
    """Bias and covariance of the head estimates of a cell, without approximation in n.

    Quadrature of the Laplace-transform representation of moments of ratios, 1/S = int_0^inf e^{-tS} dt (Jones 1986,
    Journal of Statistical Computation and Simulation, on moments of ratios); the integrals are in
    :mod:`simstudy.theory.exact_integrals`.

    Parameters
    ----------
    cell : Cell
    key_projections, query_projections : (H, d, p) arrays
        Not looked at when the method cannot apply to the cell.
    queries : (Q, d) array

    Returns
    -------
    ExactPrediction
        Computed for Gaussian keys and fixed heads, under dot-product logits or under distance logits with p = 1,
        unless the grids would be too large.

    Raises
    ------
    ValueError
        If the regression function names more coordinates than the cell has features.
    """
    data = cell.data
    regression = regression_function(data.regression, data.n_features)
    target = regression(queries)
    reason = _inapplicable(cell)
    if reason:
        return _blank(target, cell.heads.n_heads, reason)
    variance = noise_variance(data.noise, data.noise_sd, data.n_features)
    kernels = head_kernels(cell, key_projections, query_projections, queries)
    laws = [ScalarLaw(kernels, regression, variance, data.n_keys, c) for c in (1.0, _COARSENING)]
    reason = laws[0].too_large()
    if reason:
        return _blank(target, cell.heads.n_heads, reason)
    fine, coarse = (_compute(law, data.n_keys, len(queries), cell.heads.n_heads) for law in laws)
    deviation = np.sqrt(np.diagonal(fine.covariance, axis1=1, axis2=2))
    scale = np.abs(fine.mean) + deviation
    covariance_scale = deviation[:, :, None] * deviation[:, None, :]
    return ExactPrediction(
        fine.mean - target[:, None],
        fine.covariance,
        target,
        np.abs(fine.mean - coarse.mean) + _ROUNDING * scale,
        np.abs(fine.covariance - coarse.covariance) + _ROUNDING * covariance_scale,
        fine.self_check,
        "",
    )


def _compute(law: ScalarLaw, n_keys: int, n_queries: int, n_heads: int) -> _Computed:
    mean, covariance = np.empty((n_queries, n_heads)), np.empty((n_queries, n_heads, n_heads))
    ones = np.ones((n_queries, n_heads, n_heads + 1))
    factors = [law.factors(q) for q in range(n_queries)]
    for q in range(n_queries):
        for h in range(n_heads):
            alone = law.alone(q, h)
            mean[q, h], ones[q, h, -1] = head_mean(factors[q][h], alone, n_keys)
            covariance[q, h, h], ones[q, h, h] = head_variance(factors[q][h], alone, n_keys, mean[q, h])
    for h, g in zip(*np.triu_indices(n_heads, 1), strict=True):
        for q in range(n_queries):
            pair = law.together(q, factors[q], h, g)
            moment, ones[q, h, g] = head_covariance(*pair, n_keys, (mean[q, h], mean[q, g]))
            covariance[q, h, g] = covariance[q, g, h] = moment
    return _Computed(mean, covariance, np.abs(ones - 1).max(axis=(1, 2)))


def _inapplicable(cell: Cell) -> str:
    if not isinstance(cell.data.key_distribution, GaussianKeys):
        return f"exact moments are derived for Gaussian keys, and these are {cell.data.key_distribution.label}"
    if cell.heads.redrawn:
        return "exact moments are derived for fixed heads, and these are redrawn in every replicate"
    if cell.estimator.logits == "distance" and cell.heads.head_dim > 1:
        return f"exact moments under distance logits are derived for heads of dimension 1, not {cell.heads.head_dim}"
    return ""


def _blank(target: Array, n_heads: int, reason: str) -> ExactPrediction:
    vector = np.full((len(target), n_heads), np.nan)
    matrix = np.full((len(target), n_heads, n_heads), np.nan)
    return ExactPrediction(vector, matrix, target, vector, matrix, vector[:, 0], reason)
