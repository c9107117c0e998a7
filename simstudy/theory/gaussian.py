"""Exact expectations of functions, and of products of two, under Gaussian laws that share a covariance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.theory.functions import Array, ComplexArray, Exponentials, Function


def expectation(function: Function, means: Array, covariance: Array) -> Array:
    """E f(X), (Q,), for X ~ N(mean, covariance), with means (Q, d) and covariance (d, d)."""
    total = _polynomial_mean(function, means, covariance)
    for part in function.exponentials:
        total = total + _phasors(part, means)[0] @ np.exp(-_halves(part, covariance))
    return total


def product_expectation(first: Function, second: Function, means: Array, covariance: Array) -> Array:
    """E f(X) g(X) for X ~ N(mean, covariance); arguments and result as in :func:`expectation`."""
    total = _polynomial_product(first, second, means, covariance)
    for polynomial, other in ((first, second), (second, first)):
        # A wave alone is the product of its polynomial, which is 0, with nothing.
        for part in () if polynomial.flat and polynomial.constant == 0.0 else other.exponentials:
            # Tilted by a wave, a Gaussian law keeps its covariance and moves its mean by an imaginary vector.
            shifts = _times(part.linear, covariance)
            exponents = 0.5 * np.sum(shifts * part.linear, axis=1) + _times(part.linear, means.T).T
            smoothed = _polynomial_mean(polynomial, means[:, None, :] + shifts, covariance)
            total = total + (part.amplitude * np.exp(exponents) * smoothed).sum(axis=1).real
    for one in first.exponentials:
        for two in second.exponentials:
            total = total + _product_of_waves(one, two, means, covariance)
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
    real, imaginary = waves.amplitude.real, waves.amplitude.imag
    return real * cosines - imaginary * sines, imaginary * cosines + real * sines


def _halves(waves: Exponentials, covariance: Array) -> Array:
    frequencies = waves.linear.imag
    return np.asarray(0.5 * np.sum((frequencies @ covariance) * frequencies, axis=1))


def _times(x: ComplexArray, matrix: Array) -> ComplexArray:
    # Of numbers without a real part.  NumPy would turn the matrix complex, and does not pass strided views to BLAS.
    return np.array(1j * (np.ascontiguousarray(x.imag) @ matrix), np.complex128)


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
