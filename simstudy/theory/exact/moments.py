"""Bias and covariance of head estimates across sets of training data, exactly at any n, by integration.

Index legend: h, g head; q query.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import FileKeys, FileRegression, FittedRegression, GaussianKeys, ResidualNoise
from simstudy.theory.exact.equal_keys import N_RANDOMISATIONS, NEGLECTED, EqualKeysLaw, qmc_law
from simstudy.theory.exact.integrals import Law, head_covariance, head_mean, head_variance
from simstudy.theory.exact.mellin import MellinLaw
from simstudy.theory.exact.scalar import ScalarLaw
from simstudy.theory.functions import Array, noise_variance, regression_function, targets
from simstudy.theory.tilting import Heads, heads_of, key_covariance

# Every integral is computed on two grids, the second with steps longer by this factor.  Convergence is exponential in
# 1/step, so that the difference by far exceeds the error of the finer result.
_COARSENING = 1.25
# Relative error of sums of about 100 000 rounded terms.
_ROUNDING = 1e-12
# A query is blank if numerical errors relative to standard deviations are larger: of quadrature, of quasi-Monte Carlo.
ERROR_LIMIT = 1e-4
RANDOM_ERROR_LIMIT = 0.01


class ExactPrediction(NamedTuple):
    """Exact moments of one cell; NaN where they were not computed.

    Attributes
    ----------
    bias : (Q, H) array
        E f_h(x_q) - m(x_q).
    covariance : (Q, H, H) array
        Covariance of head estimates at one query across sets of training data.
    target : (Q,) array
        m(x_q); never NaN.
    bias_error : (Q, H) array
        Absolute numerical error of the bias: for quadrature a bound, estimated by a second computation on coarser
        grids; for quasi-Monte Carlo a standard error, estimated from `N_RANDOMISATIONS` scramblings.
    covariance_error : (Q, H, H) array
        The same for the covariance.
    self_check : (Q,) array
        Largest distance from 1 of the same integrals for Y = 1, over heads and pairs.  It checks the integrals over t
        only, which are 1 for any distribution of keys.
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


_Computed = tuple[Array, Array, Array]
"""Means (Q, H), covariances (Q, H, H) and self-checks (Q,), on one grid."""


def exact_moments(cell: Cell, key_projections: Array, query_projections: Array, queries: Array) -> ExactPrediction:
    """Bias and covariance of the head estimates of a cell, without approximation in n.

    Formulas :eq:`exact-mean` and :eq:`exact-product`: negative moments are integrals of moment-generating functions,
    1/S = int_0^inf e^{-tS} dt (Cressie, Davis, Folks and Policello 1981, The American Statistician 35, 148).

    Parameters
    ----------
    cell, key_projections, query_projections, queries
        As of :func:`leading_order`.

    Returns
    -------
    ExactPrediction
        For fixed heads.  Gaussian keys: by quadrature, in about 0.01 s for a pair of heads at one query if each kernel
        depends on one linear function of the key (dot-product logits, or p = 1), otherwise in about 1 s.  Other keys,
        and grids that would be too large, as for narrow kernels, few keys and p > 1: by quasi-Monte Carlo, in some
        seconds for all heads and queries.  Rows of a user's data, drawn with replacement: by means over the rows, in
        about 0.02 s for a pair of heads at one query and 2000 rows.  Blank where these take too long or are inaccurate.

    Raises
    ------
    ValueError
        If the regression function names more coordinates than the cell has features.
    """
    data, target = cell.data, targets(cell, queries)
    if reason := _inapplicable(cell):
        return _blank(target, cell.heads.n_heads, reason)
    heads = heads_of(cell, key_projections, query_projections, queries)
    if isinstance(data.key_distribution, FileKeys):
        return _over_rows(cell, heads, target)
    functions = (
        regression_function(data.regression, data.n_features),
        noise_variance(data.noise, data.noise_sd, data.n_features),
    )
    reasons = []
    if isinstance(data.key_distribution, GaussianKeys):
        covariance = key_covariance(data.key_distribution, data.n_features)
        # The first method that is not too large is used.
        one_number = heads.logits == "dot_product" or heads.projections.shape[2] == 1
        for method in (ScalarLaw,) * one_number + (MellinLaw,) * (heads.logits == "distance"):
            law = functools.partial(method, heads, covariance, *functions, data.n_keys)
            if not (reason := law(1.0).too_large()):
                return _prediction(*_refined(law, heads, data.n_keys), target, ERROR_LIMIT)
            reasons.append(reason)
    randomised, reason = qmc_law(heads, data.key_distribution, *functions, data.n_keys)
    if reason:
        return _blank(target, cell.heads.n_heads, "; ".join([*reasons, reason]))
    runs = [_compute(randomised(k), heads, data.n_keys) for k in range(N_RANDOMISATIONS)]
    mean, second, check = (np.array(values) for values in zip(*runs, strict=True))
    # Randomisations are independent, so that errors are standard errors.
    errors = [values.std(axis=0, ddof=1) / np.sqrt(len(runs)) for values in (mean, second, check)]
    average = mean.mean(axis=0), second.mean(axis=0), check.max(axis=0)
    return _prediction(average, errors, target, RANDOM_ERROR_LIMIT)


def _refined(law: Callable[[float], Law], heads: Heads, n_keys: int) -> tuple[_Computed, list[Array]]:
    """Moments on the finer grid, and their absolute differences from those on the coarser grid."""
    fine, coarse = (_compute(law(step), heads, n_keys) for step in (1.0, _COARSENING))
    return fine, [np.abs(one - other) for one, other in zip(fine, coarse, strict=True)]


def _over_rows(cell: Cell, heads: Heads, target: Array) -> ExactPrediction:
    """Moments for keys that are rows of the user's data, all equally likely."""
    data, rows = cell.data, cell.rows
    if isinstance(data.regression, FileRegression | FittedRegression):
        means = rows.values
    else:
        means = regression_function(data.regression, data.n_features)(rows.keys)
    if isinstance(data.noise, ResidualNoise):
        drawn = data.noise_sd * rows.residuals
        means = means + drawn if data.noise.paired else means
        variances = np.full_like(drawn, 0.0 if data.noise.paired else np.mean(drawn**2))
    else:
        variances = noise_variance(data.noise, data.noise_sd, data.n_features)(rows.keys)
    # Centred: squares of numbers far from 0 would lose the digits of variances.
    centre = means.mean()
    law = functools.partial(EqualKeysLaw, heads, rows.keys, means - centre, variances, data.n_keys)
    if reason := law(1.0).too_large():
        return _blank(target, len(heads.projections), reason)
    (mean, covariance, check), (mean_error, covariance_error, _) = _refined(law, heads, data.n_keys)
    # Both grids end at the same places, so that their difference does not show what is neglected beyond.
    spread = np.mean((means - centre) ** 2 + variances)
    errors = [mean_error + NEGLECTED * np.sqrt(spread), covariance_error + NEGLECTED * spread]
    return _prediction((mean + centre, covariance, check), errors, target, ERROR_LIMIT)


def _compute(law: Law, heads: Heads, n_keys: int) -> _Computed:
    n_heads, n_queries = heads.projected_queries.shape[:2]
    mean, covariance = np.empty((n_queries, n_heads)), np.empty((n_queries, n_heads, n_heads))
    ones = np.ones((n_queries, n_heads, n_heads + 1))
    for q in range(n_queries):
        factors = law.factors(q)
        for h in range(n_heads):
            marginal = law.moments(q, h)
            mean[q, h] = head_mean(factors[h], marginal, n_keys)
            covariance[q, h, h] = head_variance(factors[h], marginal, n_keys, mean[q, h])
            ones[q, h, -1] = head_mean(factors[h], marginal.certain(), n_keys)
            ones[q, h, h] = head_variance(factors[h], marginal.certain(), n_keys, 0.0)
        for h, g in itertools.combinations(range(n_heads), 2):
            if heads.coincide(q, h, g):
                moment = covariance[q, h, h]
            else:
                pair, marginals, joint = law.pair(q, factors, h, g)
                moment = head_covariance(pair, marginals, joint, n_keys, (mean[q, h], mean[q, g]))
                certain = marginals[0].certain(), marginals[1].certain()
                ones[q, h, g] = head_covariance(pair, certain, joint.certain(), n_keys, (0.0, 0.0))
            covariance[q, h, g] = covariance[q, g, h] = moment
    return mean, covariance, np.abs(ones - 1).max(axis=(1, 2))


def _prediction(value: _Computed, errors: list[Array], target: Array, limit: float) -> ExactPrediction:
    mean, covariance, self_check = value
    deviation = np.sqrt(np.abs(np.diagonal(covariance, axis1=1, axis2=2)))
    products = deviation[:, :, None] * deviation[:, None, :]
    bias_error = errors[0] + _ROUNDING * (np.abs(mean) + deviation)
    covariance_error = errors[1] + _ROUNDING * products
    # Compared so that NaN is not good.
    good = (bias_error <= limit * deviation + _ROUNDING * np.abs(mean)).all(axis=1)
    good &= (covariance_error <= limit * products).all(axis=(1, 2))
    blank = np.where(good, 0.0, np.nan)
    where = f"{np.sum(~good)} of {len(target)} queries"
    reason = "" if good.all() else f"no convergence at {where}: numerical errors above {limit:g} standard deviations"
    bias, covariance = mean - target[:, None] + blank[:, None], covariance + blank[:, None, None]
    return ExactPrediction(bias, covariance, target, bias_error, covariance_error, self_check, reason)


def _inapplicable(cell: Cell) -> str:
    keys = cell.data.key_distribution
    dependent = {"without": "rows drawn without replacement", "autoregressive": "keys in time"}
    if which := dependent.get(getattr(keys, "sampling", keys.kind)):
        return f"exact moments are derived for independent keys; {which} depend on one another"
    if cell.heads.redrawn:
        return "exact moments are derived for fixed heads; these are redrawn in every replicate"
    return ""


def _blank(target: Array, n_heads: int, reason: str) -> ExactPrediction:
    blank = np.full((len(target), n_heads, n_heads), np.nan)
    return ExactPrediction(blank[:, 0], blank, target, blank[:, 0], blank, blank[:, 0, 0], reason)
