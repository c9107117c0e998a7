"""Regression and noise-variance functions in the one form whose Gaussian expectations are closed, and these.

A function is a quadratic polynomial plus waves, which are exponentials with an imaginary linear part.  Expectations are
exact, also of products of two functions, under Gaussian laws that share a covariance.  The next term is what leading
order leaves out of the variance of a ratio of averages.
"""

from collections.abc import Sequence
from functools import reduce, singledispatch
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings import processes
from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]


class Exponentials(NamedTuple):
    """x -> Re sum_t amplitude_t exp(linear_t . x): waves, of complex amplitude (T,) and imaginary linear (T, d)."""

    amplitude: ComplexArray
    linear: ComplexArray

    def __call__(self, points: Array) -> Array:
        """Values at points of shape (..., d), as an array of shape (...)."""
        return (np.exp(points @ self.linear.T) @ self.amplitude).real


class Function(NamedTuple):
    """x -> constant + gradient . x + x' curvature x + exponentials(x), on R^d.

    Attributes
    ----------
    constant : float
    gradient : (d,) array
        Gradient at the origin of the polynomial part.
    curvature : (d, d) array
        Symmetric; half the Hessian of the polynomial part.
    exponentials : tuple of Exponentials
    """

    constant: float
    gradient: Array
    curvature: Array
    exponentials: tuple[Exponentials, ...] = ()

    def __call__(self, points: Array) -> Array:
        """Values at points of shape (..., d), as an array of shape (...)."""
        return self.polynomial(points) + sum(part(points) for part in self.exponentials)

    def polynomial(self, points: NDArray) -> NDArray:
        """Value of the polynomial part at real or complex points of shape (..., d)."""
        # Most functions lack one of the terms, which would take as long as the other.
        value = np.full(points.shape[:-1], self.constant)
        value = value + points @ self.gradient if self.gradient.any() else value
        return value + np.sum((points @ self.curvature) * points, axis=-1) if self.curvature.any() else value

    @property
    def flat(self) -> bool:
        """Whether the polynomial part is a constant."""
        return not (self.gradient.any() or self.curvature.any())

    def plus(self, other: Self) -> Self:
        """Return the sum of two functions on the same space."""
        return self._replace(
            constant=self.constant + other.constant,
            gradient=self.gradient + other.gradient,
            curvature=self.curvature + other.curvature,
            exponentials=self.exponentials + other.exponentials,
        )


@singledispatch
def regression_function(regression: processes.Regression, n_features: int) -> Function:
    """Return the regression function m of a design as a :class:`Function` on R^d.

    Parameters
    ----------
    regression : processes.Regression
        Any regression record of the schema.
    n_features : int
        Dimension d.

    Raises
    ------
    ValueError
        If the record names more coordinates than `n_features`.
    """
    raise TypeError(f"no closed form is known for the regression function {regression!r}")


@regression_function.register
def _(_: processes.Zero, n_features: int) -> Function:
    return _polynomial(n_features)


@regression_function.register
def _(record: processes.Linear, n_features: int) -> Function:
    return _polynomial(n_features, gradient=_padded(record.coefficients, n_features))


@regression_function.register
def _(record: processes.Sum, n_features: int) -> Function:
    return reduce(Function.plus, (regression_function(term, n_features) for term in record.terms))


def targets(cell: Cell, queries: Array) -> Array:
    """Return m at the queries (Q, d) of a cell, which are rows held out if m is known at rows only."""
    if isinstance(cell.data.regression, processes.FileRegression | processes.FittedRegression):
        return cell.rows.targets[: len(queries)]
    return regression_function(cell.data.regression, cell.data.n_features)(queries)


def noise_variance(noise: processes.Noise, noise_sd: float, n_features: int) -> Function:
    """Return v(x) = Var(Y | X = x) as a :class:`Function`: sigma^2, or sigma^2 (1 + s x_1^2) / (1 + s).

    Gaussian and Student-t noise of equal variance agree: second moments know nothing else of the noise.

    Parameters
    ----------
    noise : processes.Noise
        Its distribution, and whether its variance depends on x_1.
    noise_sd : float
        sigma, in units of Y.
    n_features : int
        d.

    Returns
    -------
    Function
        On R^d, in units of Y^2.
    """
    if not isinstance(noise, processes.HeteroscedasticNoise):
        return _polynomial(n_features, constant=noise_sd**2)
    base = noise_sd**2 / (1 + noise.strength)
    slope = np.zeros((n_features, n_features))
    slope[0, 0] = base * noise.strength
    return _polynomial(n_features, constant=base, curvature=slope)


def product_of_exponentials(first: Exponentials, second: Exponentials) -> Exponentials:
    """Pointwise product, by Re a Re b = Re(a b + a conj(b)) / 2 for every pair of terms."""
    # In a square, the pair (t, u) equals (u, t): one of them is enough.
    n_terms = len(first.amplitude), len(second.amplitude)
    t, u = np.triu_indices(n_terms[0]) if first is second else np.indices(n_terms).reshape(2, -1)
    multiplicity = np.where(t == u, 0.5, 1.0) if first is second else 0.5
    amplitude = multiplicity * np.stack([second.amplitude, second.amplitude.conj()])[:, u] * first.amplitude[t]
    linear = first.linear[t] + np.stack([second.linear, second.linear.conj()])[:, u]
    return Exponentials(amplitude.ravel(), linear.reshape(-1, first.linear.shape[1]))


def _polynomial(
    n_features: int, constant: float = 0.0, gradient: Array | None = None, curvature: Array | None = None
) -> Function:
    return Function(
        constant,
        np.zeros(n_features) if gradient is None else gradient,
        np.zeros((n_features, n_features)) if curvature is None else curvature,
    )


def _padded(values: Sequence[float], n_features: int) -> Array:
    if len(values) > n_features:
        raise ValueError(f"{len(values)} coordinates are given, but n_features is {n_features}")
    return np.concatenate([np.asarray(values, dtype=float), np.zeros(n_features - len(values))])


@regression_function.register
def _(record: processes.Quadratic, n_features: int) -> Function:
    coefficients = record.coefficients
    diagonal = _padded(coefficients, n_features) if len(coefficients) > 1 else np.full(n_features, coefficients[0])
    return _polynomial(n_features, curvature=np.diag(diagonal))


@regression_function.register
def _(record: processes.Interaction, n_features: int) -> Function:
    if max(record.coordinates) > n_features:
        raise ValueError(f"coordinates {record.coordinates} are given, but n_features is {n_features}")
    first, second = (c - 1 for c in record.coordinates)
    curvature = np.zeros((n_features, n_features))
    curvature[first, second] = curvature[second, first] = record.amplitude / 2
    return _polynomial(n_features, curvature=curvature)


def _waves(wave: str, amplitudes: Array, frequencies: Array) -> Function:
    # sin u = Re(-i e^{iu}),  cos u = Re(e^{iu})
    phase = np.complex128(-1j if wave == "sin" else 1.0)
    linear = 1j * frequencies.astype(np.complex128)
    terms = Exponentials(phase * amplitudes, linear)
    return _polynomial(frequencies.shape[1])._replace(exponentials=(terms,))


@regression_function.register
def _(record: processes.Ridge, n_features: int) -> Function:
    direction = _padded(record.direction, n_features)
    frequencies = record.frequency * direction / np.linalg.norm(direction)
    return _waves(record.wave, np.array([record.amplitude]), frequencies[None])


@regression_function.register
def _(record: processes.Additive, n_features: int) -> Function:
    n_active = n_features if record.n_active is None else record.n_active
    if n_active > n_features:
        raise ValueError(f"n_active is {n_active}, but n_features is {n_features}")
    position = np.arange(1.0, n_active + 1)
    fall = {
        "none": np.ones(n_active),
        "exponential": np.exp(-record.rate * (position - 1)),
        "power": position**-record.rate,
    }[record.decay]
    return _waves(record.wave, record.amplitude * fall, record.frequency * np.eye(n_features)[:n_active])


def next_term(ratio: Array, leading: Array, third: Array, drift: Array) -> Array:
    """n times the relative size of the O(n^-2) term of a head's variance.

    For f - mu = N / (1 + D), N and D averages over n keys: Var f = E N^2 - 2 E N^2 D + 3 E N^2 D^2 - (E N D)^2 + ...,
    with D having variance (ratio - 1) / n, N variance leading / n, and Cov(N, D) = drift / n.
    """
    neglected = 3 * (ratio - 1) * leading - 2 * (third - leading) + 5 * drift**2
    # Without noise or signal there is no variance, and nothing is neglected.
    return np.divide(neglected, leading, out=np.zeros_like(leading), where=leading != 0)


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
