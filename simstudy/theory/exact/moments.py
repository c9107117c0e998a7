"""Bias and covariance of head estimates over redraws of the training data, exactly at any n, by integration.

Index legend: h, g head; q query.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import FileKeys, FileRegression, FittedRegression, GaussianKeys, ResidualNoise
from simstudy.theory.exact.equal_keys import NEGLECTED, EqualKeysLaw
from simstudy.theory.exact.integrals import head_covariance, head_mean, head_variance
from simstudy.theory.exact.mellin import MellinLaw
from simstudy.theory.exact.quasi_monte_carlo import N_RANDOMISATIONS, qmc_law
from simstudy.theory.exact.scalar import ScalarLaw
from simstudy.theory.functions import Array, Function, noise_variance, regression_function, targets
from simstudy.theory.tilting import HeadKernels, Heads, head_kernels, heads_of

QuadratureLaw = ScalarLaw | MellinLaw

# Every grid is laid twice, the second time with steps longer by this factor.  Convergence is exponential in 1/step,
# so the change exceeds the error of the finer result by far.
_COARSENING = 1.25
# Relative error of sums of some hundred thousand rounded terms.
_ROUNDING = 1e-12
# Larger numerical errors, relative to standard deviations, leave a query blank: of quadrature, of quasi-Monte Carlo.
ERROR_LIMIT = 1e-4
RANDOM_ERROR_LIMIT = 0.01


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
        Absolute numerical error of the bias: of quadrature a bound, estimated by a second computation on coarser
        grids; of quasi-Monte Carlo a standard error, estimated from `N_RANDOMISATIONS` scramblings.
    covariance_error : (Q, H, H) array
        The same for the covariance.
    self_check : (Q,) array
        Largest distance from 1 of the same integrals for Y = 1, over heads and pairs.  It vouches for the integrals
        over t only: they give 1 for any law of the keys.
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

    Negative moments as integrals of moment-generating functions, 1/S = int_0^inf e^{-tS} dt (Cressie, Davis, Folks and
    Policello 1981, The American Statistician 35, 148); the integrals are :eq:`exact-mean` and
    :eq:`exact-product`.

    Parameters
    ----------
    cell, key_projections, query_projections, queries
        As of :func:`leading_order`.

    Returns
    -------
    ExactPrediction
        Computed for fixed heads.  Gaussian keys: by quadrature, of the order of 0.01 s for a pair of heads at one query
        if its kernels depend on one linear function of the key each (dot-product logits, or p = 1), and of the order of
        1 s if not.  Other keys, and grids that would be too large, as for narrow kernels, few keys and p > 1: by
        quasi-Monte Carlo, some seconds for all heads and queries.  Rows of a user's data, drawn with replacement: by
        means over the rows, some 0.02 s for a pair of heads at one query and 2000 rows.  Blank where that would not do.

    Raises
    ------
    ValueError
        If the regression function names more coordinates than the cell has features.
    """
    data = cell.data
    target = targets(cell, queries)
    reason = _inapplicable(cell)
    if reason:
        return _blank(target, cell.heads.n_heads, reason)
    arguments = (cell, key_projections, query_projections, queries)
    if isinstance(data.key_distribution, FileKeys):
        return _over_rows(cell, heads_of(*arguments), target)
    regression = regression_function(data.regression, data.n_features)
    variance = noise_variance(data.noise, data.noise_sd, data.n_features)
    reasons = []
    if isinstance(data.key_distribution, GaussianKeys):
        kernels = head_kernels(*arguments)
        law, reason = _law(kernels, regression, variance, data.n_keys)
        if not reason:
            fine, coarse = (_compute(law(step), kernels, data.n_keys) for step in (1.0, _COARSENING))
            return _prediction(fine, _difference(fine, coarse), target, ERROR_LIMIT)
        reasons.append(reason)
    heads = heads_of(*arguments)
    randomised, reason = qmc_law(heads, data.key_distribution, regression, variance, data.n_keys)
    if reason:
        return _blank(target, cell.heads.n_heads, "; ".join([*reasons, reason]))
    return _average([_compute(randomised(k), heads, data.n_keys) for k in range(N_RANDOMISATIONS)], target)


def _over_rows(cell: Cell, heads: Heads, target: Array) -> ExactPrediction:
    """Moments for keys that are rows of the user's data, all equally likely."""
    means, variances = _outcomes(cell)
    # About their mean: squares of numbers far from 0 would lose the digits of variances.
    centre = means.mean()

    def law(coarsening: float) -> EqualKeysLaw:
        return EqualKeysLaw(heads, cell.rows.keys, means - centre, variances, cell.data.n_keys, coarsening)

    reason = law(1.0).too_large()
    if reason:
        return _blank(target, len(heads.projections), reason)
    fine, coarse = (_compute(law(step), heads, cell.data.n_keys) for step in (1.0, _COARSENING))
    error = _difference(fine, coarse)
    # Both grids end at the same places.
    spread = np.mean((means - centre) ** 2 + variances)
    error = error._replace(
        mean=error.mean + NEGLECTED * np.sqrt(spread), covariance=error.covariance + NEGLECTED * spread
    )
    return _prediction(fine._replace(mean=fine.mean + centre), error, target, ERROR_LIMIT)


def _outcomes(cell: Cell) -> tuple[Array, Array]:
    """Mean and variance (N,) of Y given each row of the user's data."""
    data, rows = cell.data, cell.rows
    if isinstance(data.regression, FileRegression | FittedRegression):
        means = rows.values
    else:
        means = regression_function(data.regression, data.n_features)(rows.keys)
    if not isinstance(data.noise, ResidualNoise):
        return means, noise_variance(data.noise, data.noise_sd, data.n_features)(rows.keys)
    errors = data.noise_sd * rows.residuals
    if data.noise.paired:
        return means + errors, np.zeros_like(errors)
    return means, np.full_like(errors, np.mean(errors**2))


def _law(
    kernels: HeadKernels, regression: Function, variance: Function, n_keys: int
) -> tuple[Callable[[float], QuadratureLaw], str]:
    """The method for these heads, as a function of the coarseness of its grids; else why there is none."""
    methods: list[type[QuadratureLaw]] = [ScalarLaw] if kernels.logits == "dot_product" else [ScalarLaw, MellinLaw]
    if kernels.logits == "distance" and kernels.projections.shape[2] > 1:
        methods = [MellinLaw]
    reasons = []
    for method in methods:
        law = functools.partial(method, kernels, regression, variance, n_keys)
        reason = law(1.0).too_large()
        if not reason:
            return law, ""
        reasons.append(reason)
    return law, "; ".join(reasons)


def _compute(law: QuadratureLaw | EqualKeysLaw, heads: Heads, n_keys: int) -> _Computed:
    n_heads, n_queries = heads.projected_queries.shape[:2]
    mean, covariance = np.empty((n_queries, n_heads)), np.empty((n_queries, n_heads, n_heads))
    ones = np.ones((n_queries, n_heads, n_heads + 1))
    for q in range(n_queries):
        factors = law.factors(q)
        for h in range(n_heads):
            alone = law.alone(q, h)
            mean[q, h] = head_mean(factors[h], alone, n_keys)
            covariance[q, h, h] = head_variance(factors[h], alone, n_keys, mean[q, h])
            ones[q, h, -1] = head_mean(factors[h], alone.certain(), n_keys)
            ones[q, h, h] = head_variance(factors[h], alone.certain(), n_keys, 0.0)
        for h, g in itertools.combinations(range(n_heads), 2):
            if heads.coincide(q, h, g):
                moment = covariance[q, h, h]
            else:
                pair, each, together = law.together(q, factors, h, g)
                moment = head_covariance(pair, each, together, n_keys, (mean[q, h], mean[q, g]))
                certain = each[0].certain(), each[1].certain()
                ones[q, h, g] = head_covariance(pair, certain, together.certain(), n_keys, (0.0, 0.0))
            covariance[q, h, g] = covariance[q, g, h] = moment
    return _Computed(mean, covariance, np.abs(ones - 1).max(axis=(1, 2)))


def _difference(fine: _Computed, coarse: _Computed) -> _Computed:
    return _Computed(*(np.abs(one - other) for one, other in zip(fine, coarse, strict=True)))


def _average(runs: list[_Computed], target: Array) -> ExactPrediction:
    """Average independent randomisations; errors are standard errors."""
    stacked = _Computed(*(np.array(values) for values in zip(*runs, strict=True)))
    error = _Computed(*(values.std(axis=0, ddof=1) / np.sqrt(len(runs)) for values in stacked))
    average = _Computed(stacked.mean.mean(axis=0), stacked.covariance.mean(axis=0), stacked.self_check.max(axis=0))
    return _prediction(average, error, target, RANDOM_ERROR_LIMIT)


def _prediction(value: _Computed, error: _Computed, target: Array, limit: float) -> ExactPrediction:
    deviation = np.sqrt(np.abs(np.diagonal(value.covariance, axis1=1, axis2=2)))
    products = deviation[:, :, None] * deviation[:, None, :]
    bias_error = error.mean + _ROUNDING * (np.abs(value.mean) + deviation)
    covariance_error = error.covariance + _ROUNDING * products
    # Stated by what is good, so that NaN is not.
    good = (bias_error <= limit * deviation + _ROUNDING * np.abs(value.mean)).all(axis=1)
    good &= (covariance_error <= limit * products).all(axis=(1, 2))
    blank = np.where(good, 0.0, np.nan)
    where = f"{np.sum(~good)} of {len(target)} queries"
    reason = "" if good.all() else f"no convergence at {where}: numerical errors above {limit:g} standard deviations"
    bias = value.mean - target[:, None] + blank[:, None]
    covariance = value.covariance + blank[:, None, None]
    return ExactPrediction(bias, covariance, target, bias_error, covariance_error, value.self_check, reason)


def _inapplicable(cell: Cell) -> str:
    keys = cell.data.key_distribution
    if isinstance(keys, FileKeys) and keys.sampling == "without":
        return "exact moments are derived for independent keys; rows drawn without replacement depend on one another"
    if cell.heads.redrawn:
        return "exact moments are derived for fixed heads, and these are redrawn in every replicate"
    return ""


def _blank(target: Array, n_heads: int, reason: str) -> ExactPrediction:
    vector = np.full((len(target), n_heads), np.nan)
    matrix = np.full((len(target), n_heads, n_heads), np.nan)
    return ExactPrediction(vector, matrix, target, vector, matrix, vector[:, 0], reason)
