"""Moments of head estimates at any n as integrals over Laplace variables, given expectations over one key.

With S_h = sum_i K_h(X_i) and 1/S = int_0^inf e^{-tS} dt, an estimate f_h = sum_i K_h(X_i) Y_i / S_h has moments that
are integrals of products over keys, and keys are independent:

    E f_h     = int n E[K_h m e^{-tK_h}] phi_h^{n-1} dt,                             phi_h = E e^{-tK_h},
    E f_h^2   = int t {n E[K_h^2 (m^2 + v) e^{-tK_h}] phi_h^{n-1} + n(n-1) E[K_h m e^{-tK_h}]^2 phi_h^{n-2}} dt,
    E f_h f_g = int int {n E[K_h K_g (m^2 + v) e^{-sK_h - tK_g}] phi_hg^{n-1}
                + n(n-1) E[K_h m e^{-sK_h - tK_g}] E[K_g m e^{-sK_h - tK_g}] phi_hg^{n-2}} ds dt,

with phi_hg = E e^{-sK_h - tK_g}; m and v are the mean and the variance of Y given X.  The variable of integration is
log t, in which dt K_h = d(log t) z_h with z_h = tK_h.  Both m may be taken about a centre, a different one for each
head: weights sum to 1, so f_h moves by the same constant.

Index legend: h, g head; U values of log t; N basis functions in which functions of a key are expanded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.theory.functions import Array

# phi is a difference from 1 of rounded numbers; below this it cannot be told from 0.
_SMALLEST_PHI = 1e-16
# e^{-e^z} = 0 beyond, and e^z = 0 below the negative: no product falls below what a processor computes at speed.
_LARGE = 100.0


class Factors(NamedTuple):
    """1 - e^{-z}, z e^{-z} and z^2 e^{-z} of z = tK of one head, (3, U, N), and weights (U,) of the rule in log t."""

    functions: NDArray
    steps: Array


class Moments(NamedTuple):
    """Expectations of basis functions times 1, m and m^2 + v: (N,) of disjoint supports, or (N, N) of two heads."""

    one: NDArray
    mean: NDArray
    square: NDArray

    def about(self, first: float, second: float) -> NDArray:
        """Expectations times (m - first)(m - second) + v."""
        return self.square - (first + second) * self.mean + first * second * self.one

    def certain(self) -> Moments:
        """The same law with Y = 1."""
        return Moments(self.one, self.one, self.one)


class Law:
    """One key with its response, as seen by heads of some kind."""

    def factors(self, query: int) -> list[Factors]:
        """Functions of tK of every head."""
        raise NotImplementedError

    def moments(self, query: int, *heads: int) -> Moments:
        """Law of one key as one head sees it, or two."""
        raise NotImplementedError

    def pair(
        self, query: int, factors: list[Factors], first: int, second: int
    ) -> tuple[tuple[Factors, Factors], tuple[Moments, Moments], Moments]:
        """Factors of two heads, the law of one key as each sees it and as both see it."""
        each = self.moments(query, first), self.moments(query, second)
        return (factors[first], factors[second]), each, self.moments(query, first, second)


def damped(log_z: Array) -> Array:
    """1 - e^{-z}, z e^{-z} and z^2 e^{-z}, stacked."""
    z = np.exp(np.clip(log_z, -_LARGE, _LARGE))
    lost, first, second = found = np.empty((3, *z.shape))
    np.negative(np.expm1(-z, out=lost), out=lost)
    np.multiply(z, 1.0 - lost, out=first)
    np.multiply(z, first, out=second)
    return found


def head_mean(head: Factors, law: Moments, n_keys: int) -> float:
    """E f_h; 1 if Y = 1."""
    lost, first, _ = head.functions
    weight = head.steps * n_keys * power((lost @ law.one).real, n_keys - 1)
    return float(weight @ (first @ law.mean).real)


def head_variance(head: Factors, law: Moments, n_keys: int, centre: float) -> float:
    """E (f_h - centre)^2; 1 if Y = 1 and the centre is 0."""
    lost, first, second = head.functions
    own, mean = (second @ law.about(centre, centre)).real, law.mean - centre * law.one
    return float(head.steps @ _second(own, (first @ mean).real ** 2, (lost @ law.one).real, n_keys))


def head_covariance(
    heads: tuple[Factors, Factors],
    alone: tuple[Moments, Moments],
    together: Moments,
    n_keys: int,
    centres: tuple[float, float],
) -> float:
    """E (f_h - centre_h)(f_g - centre_g) from the law of one key as each head sees it alone, and as both do."""
    ((lost_h, first_h, _), steps_h), ((lost_g, first_g, _), steps_g) = heads
    # e^{-z_h - z_g} = 1 - lost_h - lost_g + lost_h lost_g: only functions that vanish where kernels do are integrated,
    # and phi^n keeps its digits when n is large.
    either = (lost_h @ alone[0].one)[:, None] + lost_g @ alone[1].one - _table(lost_h, together.one, lost_g)
    own, cross = _table(first_h, together.about(*centres), first_g).real, np.zeros(1)
    if together.mean.any():
        alone_h, alone_g = (law.mean - centre * law.one for law, centre in zip(alone, centres, strict=True))
        both_h, both_g = (together.mean - centre * together.one for centre in centres)
        mean_h = (first_h @ alone_h)[:, None] - _table(first_h, both_h, lost_g)
        mean_g = first_g @ alone_g - _table(lost_h, both_g, first_g)
        cross = mean_h.real * mean_g.real
    return float(steps_h @ _second(own, cross, either.real, n_keys) @ steps_g)


def _table(first: NDArray, law: NDArray, second: NDArray) -> NDArray:
    return (first * law) @ second.T if law.ndim == 1 else first @ law @ second.T


def _second(own: Array, cross: Array, lost: Array, n_keys: int) -> Array:
    # One pair contributes to both estimates, or two different pairs do.
    density = n_keys * own * power(lost, n_keys - 1)
    return density if n_keys == 1 else density + n_keys * (n_keys - 1) * cross * power(lost, n_keys - 2)


def power(lost: Array, exponent: int) -> Array:
    """Phi to this power, phi = 1 - lost."""
    return np.exp(exponent * np.log1p(-np.minimum(lost, 1 - _SMALLEST_PHI)))
