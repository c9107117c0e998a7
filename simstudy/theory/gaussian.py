"""Exact expectations of functions, and of products of two, under Gaussian laws that share a covariance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.theory.functions import Array, ComplexArray, Exponentials, Function, product_of_exponentials


def expectation(function: Function, means: Array, covariance: Array) -> Array:
    """E f(X), (Q,), for X ~ N(mean, covariance), with means (Q, d) and covariance (d, d)."""
    total = _polynomial_mean(function, means, covariance)
    for part in function.exponentials:
        if part.waves:
            total = total + _phasors(part, means)[0] @ np.exp(-_halves(part, covariance))
        else:
            total = total + _tilt(part, means, covariance).mass.sum(axis=1).real
    return total


def product_expectation(first: Function, second: Function, means: Array, covariance: Array) -> Array:
    """E f(X) g(X) for X ~ N(mean, covariance); arguments and result as in :func:`expectation`."""
    total = _polynomial_product(first, second, means, covariance)
    for polynomial, other in ((first, second), (second, first)):
        # A wave alone is the product of its polynomial, which is 0, with nothing.
        for part in () if polynomial.flat and polynomial.constant == 0.0 else other.exponentials:
            tilted = _tilt(part, means, covariance)
            smoothed = _polynomial_mean(polynomial, tilted.means, tilted.covariance)
            total = total + (tilted.mass * smoothed).sum(axis=1).real
    for one in first.exponentials:
        for two in second.exponentials:
            if one.waves and two.waves:
                total = total + _product_of_waves(one, two, means, covariance)
            else:
                total = total + _tilt(product_of_exponentials(one, two), means, covariance).mass.sum(axis=1).real
    return total


def _product_of_waves(one: Exponentials, two: Exponentials, means: Array, covariance: Array) -> Array:
    # Angles add up, so that sines and cosines of each wave do instead of those of each pair:
    # Re a Re b = Re(a b + a conj(b)) / 2, and |k +- l|^2 / 2 in the exponents of their expectations.
    across = one.linear.imag @ covariance @ two.linear.imag.T
    ends = _halves(one, covariance)[:, None] + _halves(two, covariance)
    plus, minus = np.exp(-ends - across), np.exp(-ends + across)
    real, imaginary = _phasors(one, means)
    other_real, other_imaginary = (real, imaginary) if two is one else _phasors(two, means)
    both = (real @ (minus + plus)) * other_real + (imaginary @ (minus - plus)) * other_imaginary
    return np.asarray(0.5 * both.sum(axis=1))


def _phasors(waves: Exponentials, means: Array) -> tuple[Array, Array]:
    """Real and imaginary parts (Q, T) of waves at the means."""
    # NumPy's tangent of the half angle gives both, to rounding, in a fifth of the time of its cosine and sine.
    tangents = np.tan(0.5 * (means @ waves.linear.imag.T))
    doubled = 2.0 / (1.0 + tangents**2)
    cosines, sines = doubled - 1.0, tangents * doubled
    amplitude = waves.amplitude * np.exp(waves.offset)
    real, imaginary = amplitude.real, amplitude.imag
    return real * cosines - imaginary * sines, imaginary * cosines + real * sines


def _halves(waves: Exponentials, covariance: Array) -> Array:
    frequencies = waves.linear.imag
    return np.asarray(0.5 * np.sum((frequencies @ covariance) * frequencies, axis=1))


class _Tilt(NamedTuple):
    """Law of X tilted by each exponential: E e(X) q(X) = mass * E q(X_t), X_t ~ N(means_t, covariance)."""

    mass: ComplexArray
    covariance: Array
    shifts: ComplexArray
    pulled: Array

    @property
    def means(self) -> ComplexArray:
        """Tilted means, (Q, T, d)."""
        return self.pulled[:, None, :] + self.shifts


def _tilt(part: Exponentials, means: Array, covariance: Array) -> _Tilt:
    """Law of X ~ N(mean, covariance) tilted by each term of an exponential; arguments as in :func:`expectation`."""
    # With W = (I + beta S)^-1, which commutes with S:
    # log E exp(l.X - beta |X|^2/2) = l'W mu + l'SW l/2 - beta mu'W mu/2 - log det(I + beta S)/2.
    # All exponents are added before the one exp: apart they overflow for narrow bumps.
    shrunk, pulled, log_det, by_mean = covariance, means, 0.0, np.zeros(len(means))
    if part.precision:
        inverse = np.eye(len(covariance)) + part.precision * covariance
        shrinkage = np.linalg.inv(inverse)
        log_det = np.linalg.slogdet(inverse)[1]
        shrunk, pulled = covariance @ shrinkage, means @ shrinkage
        by_mean = -0.5 * part.precision * np.sum(pulled * means, axis=1)
    shifts = _times(part.linear, shrunk)
    by_term = part.offset + 0.5 * np.sum(shifts * part.linear, axis=1) - 0.5 * log_det
    mass = part.amplitude * np.exp(by_mean[:, None] + by_term + _times(part.linear, pulled.T).T)
    return _Tilt(mass, shrunk, shifts, pulled)


def _times(x: ComplexArray, matrix: Array) -> ComplexArray:
    # NumPy would turn the matrix complex, and does not pass strided views to BLAS; and waves have no real part.
    product = np.array(1j * (np.ascontiguousarray(x.imag) @ matrix), np.complex128)
    return product + x.real @ matrix if x.real.any() else product


def _polynomial_mean(function: Function, means: NDArray, covariance: Array) -> NDArray:
    return function.polynomial(means) + np.sum(function.curvature * covariance)


def _polynomial_product(first: Function, second: Function, means: Array, covariance: Array) -> Array:
    expected = _polynomial_mean(first, means, covariance)
    expected = expected * (expected if second is first else _polynomial_mean(second, means, covariance))
    if first.flat or second.flat:
        return expected
    # Isserlis' theorem about the mean: Cov(q1, q2) = g1'S g2 + 2 tr(M1 S M2 S), g = gradient at the mean.
    slopes = first.gradient + 2 * means @ first.curvature
    other_slopes = slopes if second is first else second.gradient + 2 * means @ second.curvature
    spread = 2 * np.sum((first.curvature @ covariance) * (second.curvature @ covariance).T)
    return expected + (np.sum((slopes @ covariance) * other_slopes, axis=1) + spread)
