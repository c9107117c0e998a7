"""Regression and noise-variance functions as quadratic polynomials plus waves, and their Gaussian expectations.

Expectations of such a function and of its square have closed forms.  The next term is the first that leading order
neglects in the variance of a ratio of averages.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings import choices
from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]


class Function(NamedTuple):
    """x -> constant + gradient . x + x' curvature x + Re sum_t amplitudes_t exp(i frequencies_t . x), on R^d.

    Attributes
    ----------
    constant : float
    gradient : (d,) array
        Gradient at the origin of the polynomial part.
    curvature : (d, d) array
        Symmetric; half the Hessian of the polynomial part.
    amplitudes : (T,) array
        Complex amplitudes of the waves.
    frequencies : (T, d) array
        Their angular frequencies, along each feature.
    """

    constant: float
    gradient: Array
    curvature: Array
    amplitudes: ComplexArray
    frequencies: Array

    def __call__(self, points: Array) -> Array:
        """Values at points of shape (..., d), as an array of shape (...)."""
        return self.polynomial(points) + (np.exp(1j * (points @ self.frequencies.T)) @ self.amplitudes).real

    def polynomial(self, points: NDArray) -> NDArray:
        """Value of the polynomial part at real or complex points of shape (..., d)."""
        # Most functions lack one of the two terms, each of which takes as long as the other.
        value = np.full(points.shape[:-1], self.constant)
        value = value + points @ self.gradient if self.gradient.any() else value
        return value + np.sum((points @ self.curvature) * points, axis=-1) if self.curvature.any() else value

    @property
    def flat(self) -> bool:
        """True if the polynomial part is a constant."""
        return not (self.gradient.any() or self.curvature.any())


def zero_function(n_features: int) -> Function:
    """Return the zero function, from which callers build others by replacing parts."""
    d = n_features
    return Function(0.0, np.zeros(d), np.zeros((d, d)), np.zeros(0, np.complex128), np.zeros((0, d)))


def regression_function(regression: choices.Regression, n_features: int) -> Function:
    """Return the regression function m of a design as a :class:`Function` on R^d.

    Parameters
    ----------
    regression : choices.Regression
        Any regression record of a design whose function has a closed form.
    n_features : int
        Dimension d.

    Returns
    -------
    Function
        On R^d.

    Raises
    ------
    ValueError
        If the record names more coordinates than `n_features`.
    TypeError
        If no closed form is known.
    """
    zero = zero_function(n_features)
    match regression:
        case choices.Zero():
            return zero
        case choices.Linear():
            return zero._replace(gradient=_padded(regression.coefficients, n_features))
        case choices.Quadratic():
            coefficients = regression.coefficients * (n_features if len(regression.coefficients) == 1 else 1)
            return zero._replace(curvature=np.diag(_padded(coefficients, n_features)))
        case choices.Interaction():
            if max(regression.coordinates) > n_features:
                raise ValueError(f"coordinates = {regression.coordinates}; give at most n_features = {n_features}")
            first, second = (_padded([0.0] * (c - 1) + [1.0], n_features) for c in regression.coordinates)
            both = np.outer(first, second) + np.outer(second, first)
            return zero._replace(curvature=regression.amplitude / 2 * both)
        case choices.Ridge():
            direction = _padded(regression.direction, n_features)
            return _waves(regression, np.ones(1), regression.frequency * direction[None] / np.linalg.norm(direction))
        case choices.Additive():
            n_active = n_features if regression.n_active is None else regression.n_active
            if n_active > n_features:
                raise ValueError(f"n_active = {n_active}; give at most n_features = {n_features}")
            active, axes = np.ones(n_active), np.eye(n_active, n_features)
            position = np.cumsum(active)
            decay = {"none": active, "exponential": np.exp(-regression.rate * (position - 1)),
                     "power": position**-regression.rate}  # fmt: skip
            return _waves(regression, decay[regression.decay], regression.frequency * axes)
        case choices.Sum():
            terms = zip(*(regression_function(term, n_features) for term in regression.terms), strict=True)
            constants, gradients, curvatures, *waves = terms
            return Function(sum(constants), sum(gradients), sum(curvatures), *map(np.concatenate, waves))
    raise TypeError(f"no closed form is known for the regression function {regression!r}")


def _waves(record: choices.Ridge | choices.Additive, shares: Array, frequencies: Array) -> Function:
    # sin u = Re(-i e^{iu}),  cos u = Re(e^{iu})
    amplitudes = np.complex128(-1j if record.wave == "sin" else 1.0) * (record.amplitude * shares)
    return zero_function(frequencies.shape[1])._replace(amplitudes=amplitudes, frequencies=frequencies)


def _padded(values: Sequence[float] | Array, n_features: int) -> Array:
    if len(values) > n_features:
        raise ValueError(f"{len(values)} coordinates; give at most n_features = {n_features}")
    return np.concatenate([np.asarray(values, dtype=float), np.zeros(n_features - len(values))])


def targets(cell: Cell, queries: Array) -> Array:
    """Return m at the queries (Q, d) of a cell; held-out rows of data are the queries if m is known only at rows."""
    if isinstance(cell.data.regression, choices.FileRegression | choices.FittedRegression):
        return cell.rows.targets[: len(queries)]
    return regression_function(cell.data.regression, cell.data.n_features)(queries)


def noise_variance(noise: choices.Noise, noise_sd: float, n_features: int) -> Function:
    """Return v(x) = Var(Y | X = x) as a :class:`Function`: sigma^2, or sigma^2 (1 + s x_1^2) / (1 + s).

    It is the same for Gaussian and Student-t noise, as second moments depend only on the variance.

    Parameters
    ----------
    noise : choices.Noise
        Distribution of the noise; the variance of heteroscedastic noise depends on x_1.
    noise_sd : float
        sigma, in units of Y.
    n_features : int
        d.

    Returns
    -------
    Function
        On R^d, in units of Y^2.
    """
    zero = zero_function(n_features)
    if not isinstance(noise, choices.HeteroscedasticNoise):
        return zero._replace(constant=noise_sd**2)
    base = noise_sd**2 / (1 + noise.strength)
    zero.curvature[0, 0] = base * noise.strength
    return zero._replace(constant=base)


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
    decays = np.exp(-0.5 * np.sum((function.frequencies @ covariance) * function.frequencies, axis=1))
    return polynomial_mean(function, means, covariance) + _phasors(function, means)[0] @ decays


def square_expectation(function: Function, means: Array, covariance: Array) -> Array:
    """E f(X)^2 for X ~ N(mean, covariance); arguments and result as in :func:`expectation`."""
    total = polynomial_square(function, means, covariance)
    if not len(function.amplitudes):
        return total
    real, imaginary = _phasors(function, means)
    shifts = function.frequencies @ covariance
    across = shifts @ function.frequencies.T
    halves = 0.5 * np.diagonal(across)
    # Tilted by a wave, a Gaussian law keeps its covariance and moves its mean by i times a shift.
    even = polynomial_mean(function, means, covariance)[:, None] - np.sum(
        (shifts @ function.curvature) * shifts, axis=1
    )
    odd = shifts @ function.gradient + 2 * means @ (function.curvature @ shifts.T)
    total = total + 2 * (real * even - imaginary * odd) @ np.exp(-halves)
    # By addition theorems, sines and cosines of each wave suffice; those of each pair are not needed:
    # Re a Re b = Re(a b + a conj(b)) / 2, and |k +- l|^2 / 2 in the exponents of their expectations.
    ends = halves[:, None] + halves
    plus, minus = np.exp(-ends - across), np.exp(-ends + across)
    both = (real @ (minus + plus)) * real + (imaginary @ (minus - plus)) * imaginary
    return np.asarray(total + 0.5 * both.sum(axis=1))


def _phasors(function: Function, means: Array) -> tuple[Array, Array]:
    """Real and imaginary parts (Q, T) of waves at the means."""
    # The tangent of the half angle gives sine and cosine, to rounding, in a fifth of the time NumPy needs for both.
    tangents = np.tan(0.5 * (means @ function.frequencies.T))
    doubled = 2.0 / (1.0 + tangents**2)
    cosines, sines = doubled - 1.0, tangents * doubled
    real, imaginary = function.amplitudes.real, function.amplitudes.imag
    return real * cosines - imaginary * sines, imaginary * cosines + real * sines


def polynomial_mean(function: Function, means: NDArray, covariance: NDArray) -> NDArray:
    """Expectation of the polynomial part; a covariance (P, d, d) for each of means (P, Q, d), real or complex."""
    return function.polynomial(means) + np.sum(function.curvature * covariance, axis=(-2, -1))[..., None]


def polynomial_square(function: Function, means: NDArray, covariance: NDArray) -> NDArray:
    """Expectation of the square of the polynomial part; arguments as in :func:`polynomial_mean`."""
    expected = polynomial_mean(function, means, covariance)
    if function.flat:
        return expected**2
    # By Isserlis' theorem, with X centred at its mean: Var q = g'S g + 2 tr(M S M S), g = gradient at the mean.
    slopes, bent = function.gradient + 2 * means @ function.curvature, function.curvature @ covariance
    spread = 2 * np.sum(bent * np.swapaxes(bent, -2, -1), axis=(-2, -1))
    return expected**2 + (np.sum((slopes @ covariance) * slopes, axis=-1) + spread[..., None])
