"""Which split of a budget D = H p into heads and dimensions has the least mean squared error, at leading order in n.

Index legend: a arrangement; h head; q query; j feature; k head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import scipy

from simstudy.design.settings import Bandwidth, Data, Estimator, Heads
from simstudy.design.settings.cell import Cell
from simstudy.theory.closed_forms import averaged_noise_ratio
from simstudy.theory.functions import Array
from simstudy.theory.leading import Prediction, leading_order
from simstudy.theory.measures import predicted_measures
from simstudy.theory.weighting import error_moments, optimal_weights, unconstrained_weights

# Enough that the mean of 8 arrangements is known to some percent; its standard error is part of every result.
N_ARRANGEMENTS = 8


class Policy(NamedTuple):
    """How an allocation is turned into an estimator.

    Attributes
    ----------
    bandwidth : settings.Bandwidth
        Fixed, that of attention, or the rate that is re-tuned for each p.
    combination : {"uniform", "sum", "optimal", "unconstrained"}
        Average; sum; best weights of sum 1; best weights without constraint.
    arrangement : {"orthogonal", "haar"}
        Head h on coordinates h p + 1 .. (h + 1) p, which needs D <= d; or the mean over independent uniformly
        distributed subspaces, for any D.
    logits : {"distance", "dot_product"}
    """

    bandwidth: Bandwidth
    combination: Literal["uniform", "sum", "optimal", "unconstrained"] = "uniform"
    arrangement: Literal["orthogonal", "haar"] = "orthogonal"
    logits: Literal["distance", "dot_product"] = "distance"


class Allocation(NamedTuple):
    """Predicted error of H heads of dimension p; NaN where leading order does not hold.

    Attributes
    ----------
    n_heads, head_dim : int
    bandwidth : float
    mse, squared_bias, ensemble_variance : float
        Of the combined heads, averaged over queries and arrangements.
    arrangement_error : float
        Standard error of `mse` from the choice of arrangements; 0 for orthogonal heads.
    reason : str
        Empty, or one sentence that says why there is no prediction or what it leaves out.
    """

    n_heads: int
    head_dim: int
    bandwidth: float
    mse: float
    squared_bias: float
    ensemble_variance: float
    arrangement_error: float
    reason: str


def quasi_random_queries(n_queries: int, n_features: int, scale: float = 1.0) -> Array:
    """Fixed queries (Q, d) that fill N(0, scale^2 I) evenly: a scrambled Sobol sequence, best for Q a power of 2.

    Parameters
    ----------
    n_queries, n_features : int
        Q and d, at least 1.
    scale : float
        s, in units of the standard deviation of the keys.

    Returns
    -------
    (Q, d) array
        The same at every call.
    """
    sequence = scipy.stats.qmc.Sobol(n_features, rng=np.random.default_rng(0))
    return scale * scipy.special.ndtri(sequence.random(n_queries))


def predicted_allocations(data: Data, total_dim: int, queries: Array, policy: Policy) -> list[Allocation]:
    """Predicted error of every (H, p) with H p = D and p <= d, smallest p first.

    Leading order in n, with signal, for Gaussian keys; an allocation is blank if the formula fails at any query.  The
    cost grows as H^2 times the square of the number of terms of the regression function: some seconds at D = 16.

    Parameters
    ----------
    data : settings.Data
        Training data: number and distribution of keys, regression function, noise.
    total_dim : int
        D.
    queries : (Q, d) array
        Query points.
    policy : Policy
        How heads are combined and arranged, and their bandwidth.

    Returns
    -------
    list of Allocation
        One for each divisor p of D that is at most d.

    Raises
    ------
    ValueError
        If orthogonal heads are asked for with D > d.
    """
    if policy.arrangement == "orthogonal" and total_dim > data.n_features:
        raise ValueError(
            f"orthogonal heads of total dimension {total_dim} do not fit into {data.n_features} features; "
            'arrangement = "haar" allows any total dimension'
        )
    dimensions = [p for p in range(1, min(total_dim, data.n_features) + 1) if total_dim % p == 0]
    return [_allocation(data, total_dim // p, p, queries, policy) for p in dimensions]


def optimal_allocation(allocations: Sequence[Allocation]) -> Allocation:
    """Return the allocation with the least predicted error; its reason names those that have no prediction.

    Parameters
    ----------
    allocations : sequence of Allocation
        As `predicted_allocations` gives them.

    Returns
    -------
    Allocation
        One of those given, with what it leaves out.

    Raises
    ------
    ValueError
        If no allocation has a prediction.
    """
    known = [allocation for allocation in allocations if np.isfinite(allocation.mse)]
    if not known:
        raise ValueError(f"no allocation has a prediction: {allocations[0].reason}")
    best = min(known, key=lambda allocation: allocation.mse)
    unknown = [str(allocation.head_dim) for allocation in allocations if not np.isfinite(allocation.mse)]
    return best._replace(reason=f"no prediction for head_dim {', '.join(unknown)}" if unknown else "")


def limiting_slope(bandwidth: float, query_scale: float = 1.0, bias_rate: float = 0.0) -> float:
    """Slope in ln n of the head dimension at which squared bias and variance balance, at one bandwidth: 1/(g + ln L).

    Formula :eq:`limiting-slope`.

    L is what one more dimension multiplies the variance of a head by, averaged over queries x ~ N(0, s^2 I).  The
    slope is that far above p ln L = 1, of heads that are averaged and whose squared bias falls like exp(-g p).

    Parameters
    ----------
    bandwidth : float
        b > 0, in units of the standard deviation of the keys.
    query_scale : float
        s in (0, 1]: standard deviation of queries, in units of that of the keys.
    bias_rate : float
        g >= 0: rate at which the squared bias falls with the dimension.

    Returns
    -------
    float
        Dimensions for each unit of ln n.
    """
    inflation = averaged_noise_ratio(np.zeros(1), bandwidth, query_scale)
    return float(1 / (bias_rate + np.log(inflation)))


def _allocation(data: Data, n_heads: int, head_dim: int, queries: Array, policy: Policy) -> Allocation:
    heads = Heads(n_heads=n_heads, head_dim=head_dim, arrangement=policy.arrangement)
    cell = Cell(data=data, heads=heads, estimator=Estimator(logits=policy.logits, bandwidth=policy.bandwidth))
    rows, reasons = [], []
    for projections in _projections(heads, data.n_features):
        prediction = leading_order(cell, projections, projections, queries)
        reasons.append(prediction.reason)
        weights = np.ones(n_heads) if prediction.reason else _weights(policy.combination, prediction)
        measures = predicted_measures(prediction, weights)
        rows.append([measures[name] for name in ("mse", "squared_bias", "ensemble_variance")])
    mse, squared_bias, variance = (float(value) for value in np.mean(rows, axis=0))
    error, reason = _standard_error(np.array(rows)[:, 0]), next(filter(None, reasons), "")
    return Allocation(n_heads, head_dim, cell.bandwidth, mse, squared_bias, variance, error, reason)


def _weights(combination: str, prediction: Prediction) -> Array:
    n_heads = prediction.bias.shape[1]
    if combination == "uniform":
        return np.full(n_heads, 1 / n_heads)
    if combination == "sum":
        return np.ones(n_heads)
    moments = error_moments(prediction)
    if combination == "optimal":
        return optimal_weights(moments.errors).weights
    return unconstrained_weights(moments).weights


def _projections(heads: Heads, n_features: int) -> Array:
    """Heads (A, H, d, p) of one arrangement, or of several uniformly distributed ones.

    Successive columns of one matrix form the heads: at equal D, allocations cut the same Gaussian matrix differently,
    so that their differences are less noisy than each of them.
    """
    total_dim = heads.n_heads * heads.head_dim
    if heads.arrangement == "orthogonal":
        columns = np.eye(n_features)[None, :, :total_dim]
    else:
        columns = np.random.default_rng(0).normal(size=(N_ARRANGEMENTS, n_features, total_dim))
    matrices = columns.reshape(-1, n_features, heads.n_heads, heads.head_dim).swapaxes(1, 2)
    return np.linalg.qr(matrices)[0]


def _standard_error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
