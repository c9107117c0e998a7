"""How the best head dimension grows with n, and the best number of heads with the budget D = H p: asymptotic laws.

Imports NumPy and SciPy, beside its own package.

A law needs a model of the squared error as a smooth function of p.  Here that is a squared bias B(p) which falls in p
plus the noise variance of H = D/p orthogonal heads, averaged uniformly.  With n given by its logarithm the laws reach
sample sizes at which they are sharp.  All optima are roots of a derivative, not clipped to 1 <= p <= D.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import brentq

from simstudy.theory.closed_forms import averaged_noise_ratio


class SquaredBias(Protocol):
    """A squared bias B(p) of the ensemble that falls in the head dimension p, at a budget D."""

    def log_fall(self, head_dim: float, total_dim: float) -> float:
        """ln(-dB/dp)."""

    def steepness(self, head_dim: float, total_dim: float) -> float:
        """-d ln(-dB/dp) / dp."""


class ExponentialBias(NamedTuple):
    """B(p) = A exp(-g p): what every head misses alike, so that averaging does not change it.

    Heads that see disjoint blocks of independent coordinates are not such heads.  By the ANOVA decomposition of m
    (Efron and Stein 1981) the average of H of them has B >= (1 - 1/H)^2 Var m, at least Var(m)/4 for any two heads:
    see :class:`SharedBias` for what they do.
    """

    amplitude: float
    rate: float

    def log_fall(self, head_dim: float, total_dim: float) -> float:
        """ln(A g) - g p."""
        return math.log(self.amplitude * self.rate) - self.rate * head_dim

    def steepness(self, head_dim: float, total_dim: float) -> float:
        """g."""
        return self.rate


class PowerBias(NamedTuple):
    """B(p) = A p^(-s)."""

    amplitude: float
    exponent: float

    def log_fall(self, head_dim: float, total_dim: float) -> float:
        """ln(A s) - (s + 1) ln p."""
        return math.log(self.amplitude * self.exponent) - (self.exponent + 1) * math.log(head_dim)

    def steepness(self, head_dim: float, total_dim: float) -> float:
        """(s + 1) / p."""
        return (self.exponent + 1) / head_dim


class SharedBias(NamedTuple):
    """B(p) = A (1 - rho p/D)^2: the average of heads that each see p of D equal additive parts of a target.

    A head estimates its own parts, shrunk by the kernel to rho of their size, and the average divides them by
    H = D/p.  This, not an exponential, is what the uniform average of orthogonal heads does to an additive target.
    """

    amplitude: float
    retained: float = 1.0

    def log_fall(self, head_dim: float, total_dim: float) -> float:
        """ln(2 A rho (1 - rho p/D) / D)."""
        missing = max(1 - self.retained * head_dim / total_dim, 1e-300)
        return math.log(2 * self.amplitude * self.retained / total_dim) + math.log(missing)

    def steepness(self, head_dim: float, total_dim: float) -> float:
        """rho / (D - rho p)."""
        return self.retained / (total_dim - self.retained * head_dim)


def variance_inflation(bandwidth: float) -> float:
    """L = (1 + b^2)^(3/2) / (b^2 (3 + b^2)^(1/2)): what one more dimension multiplies the noise variance of a head by.

    The average over queries x ~ N(0, I) of n Var / sigma^2 is L^p, for distance logits and standard normal keys.
    """
    return float(averaged_noise_ratio(np.zeros(1), bandwidth))


def fixed_bandwidth_optimum(
    log_n_keys: float, total_dim: float, noise_variance: float, inflation: float, bias: SquaredBias
) -> float:
    """Head dimension that minimises B(p) + (sigma^2/n) [(p/D) L^p + 1 - p/D], the bandwidth being the same for all p.

    The variance is that of D/p heads with n Var = sigma^2 L^p whose covariances are sigma^2/n: orthogonal heads share
    their noise.  For B = A exp(-g p) the root is p = [ln(n D g A / sigma^2) - ln(1 + p ln L - L^-p)] / (g + ln L):
    logarithmic in n.  Dropping L^-p is harmless only if p ln L is well above 1.

    Parameters
    ----------
    log_n_keys : float
        ln n.
    total_dim : float
        D.
    noise_variance : float
        sigma^2; with a signal, what a head does not see of it is part of this.
    inflation : float
        L > 1, see :func:`variance_inflation`.
    bias : SquaredBias

    Returns
    -------
    float
        p > 0, which may be below 1 or above D.  Valid at leading order in n, that is while L^p is far below n.
    """
    level = log_n_keys + math.log(total_dim) - math.log(noise_variance)

    def gap(head_dim: float) -> float:
        growth = _log_growth(head_dim, math.log(inflation))
        return bias.log_fall(head_dim, total_dim) + level - growth

    return _root(gap)


def fixed_bandwidth_slope(head_dim: float, total_dim: float, inflation: float, bias: SquaredBias) -> float:
    """Slope of :func:`fixed_bandwidth_optimum` in ln n at an optimum `head_dim`.

    For B = A exp(-g p) it rises to 1 / (g + ln L) as p grows.  It falls short of this limit by the share
    ln L / (1 + p ln L) / (g + ln L), to first order: by a tenth at p = 8 and g = ln L = 1/2.
    """
    rate = math.log(inflation)
    growth = head_dim * rate + math.log1p(head_dim * rate)
    steepening = (rate + rate / (1 + head_dim * rate)) / -math.expm1(-growth)
    return 1 / (bias.steepness(head_dim, total_dim) + steepening)


def log_head_count_slope(
    log_n_keys: float, total_dim: float, noise_variance: float, inflation: float, bias: SquaredBias
) -> float:
    """Slope of ln H* = ln(D / p*) in ln D at fixed n and bandwidth; arguments as :func:`fixed_bandwidth_optimum`.

    For B = A exp(-g p), where n and D enter as n D alone, this is 1 - slope/p*: 0.9 to 0.95 at common sizes and 1 in
    the limit.
    """
    step = 1e-4

    def log_optimum(shift: float) -> float:
        wider = total_dim * math.exp(shift)
        return math.log(fixed_bandwidth_optimum(log_n_keys, wider, noise_variance, inflation, bias))

    return 1 - (log_optimum(step) - log_optimum(-step)) / (2 * step)


def sum_optimum(total_dim: float, inflation: float) -> float:
    """Head dimension that minimises the variance of the sum of D/p orthogonal heads, (sigma^2/n) [H L^p + H (H - 1)].

    The sum of heads has the same bias at every p if the target is additive over coordinates and of mean 0: this is
    then the best allocation at a fixed bandwidth, whatever n.  The root of L^p (p ln L - 1) + 1 = 2 D/p, it grows as
    ln D / ln L, and H* nearly linearly in D.
    """
    rate = math.log(inflation)

    def gap(head_dim: float) -> float:
        return 2 * total_dim / head_dim - 1 - math.exp(head_dim * rate) * (head_dim * rate - 1)

    return _root(gap)


def retuned_optimum(log_n_keys: float, smoothness: float, bias: SquaredBias, total_dim: float = 1.0) -> float:
    """Head dimension that minimises B(p) + n^(-2 beta / (2 beta + p)), the bandwidth being the best for each p.

    The second term is the rate of a p-dimensional regression of smoothness beta (Stone 1982); factors that change
    slowly in p, the number of heads among them, do not change the laws below.

    Raises
    ------
    ValueError
        If n is too small for a minimum: one more dimension always pays.
    """

    def gap(head_dim: float) -> float:
        scale = 2 * smoothness + head_dim
        loss = 2 * smoothness * log_n_keys / scale
        return bias.log_fall(head_dim, total_dim) - (math.log(loss / scale) - loss)

    return _root(gap, limit=smoothness * (log_n_keys - 2))


def square_root_log_law(log_n_keys: float, smoothness: float, rate: float) -> float:
    """Limit (2 beta ln n / g)^(1/2) of :func:`retuned_optimum` for B = A exp(-g p); relative error O((ln n)^(-1/2))."""
    return math.sqrt(2 * smoothness * log_n_keys / rate)


def log_over_log_log_law(log_n_keys: float, smoothness: float, exponent: float) -> float:
    """Limit (2 beta / s) ln n / ln ln n of :func:`retuned_optimum` for B = A p^(-s).

    The relative error is O(1 / ln ln n): no number at any real n, as a factor 100 in A shifts the optimum by 15 % at
    ln n = 10^10.
    """
    return 2 * smoothness / exponent * log_n_keys / math.log(log_n_keys)


def _log_growth(head_dim: float, rate: float) -> float:
    """ln d/dp (p L^p - p) = ln(L^p (1 + p ln L) - 1), without overflow."""
    exponent = head_dim * rate + math.log1p(head_dim * rate)
    return exponent + math.log(-math.expm1(-exponent))


def _root(gap: Callable[[float], float], limit: float = math.inf) -> float:
    """Root of a function that falls from positive values; at the limit it no longer does."""
    lower = upper = 1e-9
    while gap(upper) > 0:
        lower, upper = upper, 2 * upper
        if upper > limit:
            raise ValueError(f"no optimum below p = {limit:.3g}: n is too small")
    return float(brentq(gap, lower / 2, upper, xtol=1e-12, rtol=1e-14))
