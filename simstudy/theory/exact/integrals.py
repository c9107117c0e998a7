"""Moments of head estimates at any n as integrals over Laplace variables, given expectations over one key.

Let S_h = sum_i K_h(X_i) and f_h = sum_i K_h(X_i) Y_i / S_h.  As 1/S = int_0^inf e^{-tS} dt and keys are independent,
moments are integrals of products of expectations over one key:

    E f_h     = int n E[K_h m e^{-tK_h}] phi_h^{n-1} dt,                             phi_h = E e^{-tK_h},
    E f_h^2   = int t {n E[K_h^2 (m^2 + v) e^{-tK_h}] phi_h^{n-1} + n(n-1) E[K_h m e^{-tK_h}]^2 phi_h^{n-2}} dt,
    E f_h f_g = int int {n E[K_h K_g (m^2 + v) e^{-sK_h - tK_g}] phi_hg^{n-1}
                + n(n-1) E[K_h m e^{-sK_h - tK_g}] E[K_g m e^{-sK_h - tK_g}] phi_hg^{n-2}} ds dt,

with phi_hg = E e^{-sK_h - tK_g}; m and v are the mean and the variance of Y given X.  The variable of integration is
log t, in which dt K_h = d(log t) z_h with z_h = tK_h.  A constant, different for each head, may be subtracted
from m: weights sum to 1, so that f_h changes by the same constant.

Index legend: h, g head; U values of log t; N basis functions in which functions of a key are expanded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.theory.functions import Array

# phi is 1 minus a rounded number; below this it cannot be distinguished from 0.
_SMALLEST_PHI = 1e-16
# e^{-e^z} counts as 0 for z above this, e^z for z below its negative, so that no product is a slow subnormal number.
_LARGE = 100.0


class Factors(NamedTuple):
    """Functions (3, U, N) of z = tK of a head: 1 - e^{-z}, z e^{-z}, z^2 e^{-z}; weights (U,) of the rule in log t."""

    functions: NDArray
    steps: Array


class Moments(NamedTuple):
    """Expectations of basis functions times 1, m, m^2 + v: (N,); (N, N) for two heads, unless supports are disjoint."""

    one: NDArray
    mean: NDArray
    square: NDArray

    def about(self, first: float, second: float) -> NDArray:
        """Return expectations of basis functions times (m - first)(m - second) + v."""
        return self.square - (first + second) * self.mean + first * second * self.one

    def certain(self) -> Moments:
        """Return the same moments for Y = 1."""
        return Moments(self.one, self.one, self.one)


class Law:
    """Distribution of one key and its response, in basis functions that suit a kind of head."""

    def factors(self, query: int) -> list[Factors]:
        """Return the functions of tK of every head at a query."""
        raise NotImplementedError

    def moments(self, query: int, *heads: int) -> Moments:
        """Return the moments of one key in the basis functions of one head or of two."""
        raise NotImplementedError

    def pair(
        self, query: int, factors: list[Factors], first: int, second: int
    ) -> tuple[tuple[Factors, Factors], tuple[Moments, Moments], Moments]:
        """Return factors of two heads, the moments of one key for each head, and those for both."""
        marginals = self.moments(query, first), self.moments(query, second)
        return (factors[first], factors[second]), marginals, self.moments(query, first, second)


def damped(log_z: Array) -> Array:
    """Return 1 - e^{-z}, z e^{-z} and z^2 e^{-z}, stacked."""
    z = np.exp(np.clip(log_z, -_LARGE, _LARGE))
    lost, first, second = found = np.empty((3, *z.shape))
    np.negative(np.expm1(-z, out=lost), out=lost)
    np.multiply(z, 1.0 - lost, out=first)
    np.multiply(z, first, out=second)
    return found


def head_mean(head: Factors, law: Moments, n_keys: int) -> float:
    """Return E f_h, which is 1 if Y = 1."""
    lost, first, _ = head.functions
    weight = head.steps * n_keys * power((lost @ law.one).real, n_keys - 1)
    return float(weight @ (first @ law.mean).real)


def head_variance(head: Factors, law: Moments, n_keys: int, centre: float) -> float:
    """Return E (f_h - centre)^2, which is 1 if Y = 1 and the centre is 0."""
    lost, first, second = head.functions
    one_key, mean = (second @ law.about(centre, centre)).real, law.mean - centre * law.one
    return float(head.steps @ _second(one_key, (first @ mean).real ** 2, (lost @ law.one).real, n_keys))


def head_covariance(
    heads: tuple[Factors, Factors],
    marginals: tuple[Moments, Moments],
    joint: Moments,
    n_keys: int,
    centres: tuple[float, float],
) -> float:
    """Return E (f_h - centre_h)(f_g - centre_g) from moments of one key for each head and for both."""
    ((lost_h, first_h, _), steps_h), ((lost_g, first_g, _), steps_g) = heads
    # e^{-z_h - z_g} = 1 - lost_h - lost_g + lost_h lost_g.  Only functions that vanish where kernels do are integrated,
    # so that phi^n loses no digits for large n.
    either = (lost_h @ marginals[0].one)[:, None] + lost_g @ marginals[1].one - _table(lost_h, joint.one, lost_g)
    one_key, two_keys = _table(first_h, joint.about(*centres), first_g).real, np.zeros(1)
    if joint.mean.any():
        alone_h, alone_g = (law.mean - centre * law.one for law, centre in zip(marginals, centres, strict=True))
        both_h, both_g = (joint.mean - centre * joint.one for centre in centres)
        mean_h = (first_h @ alone_h)[:, None] - _table(first_h, both_h, lost_g)
        mean_g = first_g @ alone_g - _table(lost_h, both_g, first_g)
        two_keys = mean_h.real * mean_g.real
    return float(steps_h @ _second(one_key, two_keys, either.real, n_keys) @ steps_g)


def _table(first: NDArray, law: NDArray, second: NDArray) -> NDArray:
    return (first * law) @ second.T if law.ndim == 1 else first @ law @ second.T


def _second(one_key: Array, two_keys: Array, lost: Array, n_keys: int) -> Array:
    # The same key contributes to both estimates, or two different keys do.
    density = n_keys * one_key * power(lost, n_keys - 1)
    return density if n_keys == 1 else density + n_keys * (n_keys - 1) * two_keys * power(lost, n_keys - 2)


def power(lost: Array, exponent: int) -> Array:
    """Return (1 - lost)^exponent, that is, phi to this power."""
    return np.exp(exponent * np.log1p(-np.minimum(lost, 1 - _SMALLEST_PHI)))
