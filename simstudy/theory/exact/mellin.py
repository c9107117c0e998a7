"""Expectations over one Gaussian key for distance heads of any dimension, through Mellin transforms of e^{-tK}.

With z = tK and a line q = c + i w, -1 < c < 0 (Paris and Kaminski 2001, Asymptotics and Mellin-Barnes integrals),

    e^{-z} - 1 = (1/2pi) int Gamma(q) z^{-q} dw,   z e^{-z} and z^2 e^{-z} the same with Gamma(q + 1), Gamma(q + 2).

So functions of tK are sums of powers K^{-q}, whose joint expectations are closed: K^{-q} is a Gaussian kernel with a
complex precision -q/b^2, and weights keys, their quadratics and their exponentials as a real one does.

Index legend: h, g head; q query; U values of log t; N nodes on the line; P points (pairs of nodes); T exponentials;
k coordinates of one or two projections; j feature.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, gamma

from simstudy.theory.exact.integrals import Factors, Moments
from simstudy.theory.functions import Array, ComplexArray, Exponentials, Function, product_of_exponentials
from simstudy.theory.tilting import HeadKernels

_TAIL = 1e-13
_STEP = 0.3
# Sums over the line are cut, and repeat, where terms are below exp(-_DECAY).
_DECAY = 21.0
# Digits lost where e^{-tK} - 1 is multiplied by t^{|c|}: at most exp(_AMPLIFICATION).
_AMPLIFICATION = 9.0
_BLOCK_NUMBERS = 400_000
MAX_NODES = 1500
# Exponentials of quadratics to be evaluated: some minutes.
MAX_WORK = 6e8


class _Line(NamedTuple):
    """Nodes q on the line of integration, in conjugate pairs from both ends, and the weight of each."""

    nodes: ComplexArray
    weight: float


class _Weighting(NamedTuple):
    """Keys weighted by T exponentials: E e(X) f(X) = amplitude exp(log_mass) E f(N(means, covariance))."""

    amplitude: ComplexArray
    log_mass: ComplexArray
    means: ComplexArray
    covariance: Array


class _Evidence(NamedTuple):
    """What P noisy observations of k coordinates say: Cov(X, W'X) (d, k), precision (P, k, k), log density (P,)."""

    spread: Array
    precision: NDArray
    log_determinant: ComplexArray


class MellinLaw:
    """One key N(0, covariance) with its response, as seen by distance heads of any dimension; v is a polynomial."""

    def __init__(
        self, kernels: HeadKernels, regression: Function, variance: Function, n_keys: int, coarsening: float
    ) -> None:
        self._kernels, self._n_keys, self._coarsening = kernels, n_keys, coarsening
        self._regression, self._variance = regression, variance
        self._highest = _log_depths(kernels, n_keys) + np.log(-np.log(_TAIL))
        self._log_mass = kernels.tilt(np.arange(len(kernels.projections))).log_mass
        self._line = _line(float(self._highest.max()), n_keys, coarsening)

    def too_large(self) -> str:
        """Say why the sums would be too long, or nothing."""
        n_nodes = len(self._line.nodes)
        if n_nodes > MAX_NODES:
            return f"quadrature needs more than {MAX_NODES} nodes: the kernels are too narrow for so few keys"
        n_heads, n_queries = self._kernels.projected_queries.shape[:2]
        n_exponentials = sum(len(weighting.log_mass) for _, _, weighting in self._terms())
        work = n_queries * n_heads * (n_heads - 1) / 2 * n_nodes**2 / 2 * n_exponentials
        if work > MAX_WORK:
            return f"quadrature needs {work:.1g} terms (at most {MAX_WORK:.1g}): too many heads, queries or waves"
        return ""

    def factors(self, query: int) -> list[Factors]:
        """Functions of tK of every head, as coefficients of the powers K^{-q}."""
        return [self._factors(query, head) for head in range(len(self._highest))]

    def alone(self, query: int, head: int) -> Moments:
        """Expectations of powers of one kernel, (N,)."""
        return self._moments(query, (head,))

    def together(
        self, query: int, factors: list[Factors], first: int, second: int
    ) -> tuple[tuple[Factors, Factors], tuple[Moments, Moments], Moments]:
        """Factors of two heads, the law of one key as each sees it and as both see it."""
        pair = factors[first], factors[second]
        return pair, (self.alone(query, first), self.alone(query, second)), self._moments(query, (first, second))

    def _factors(self, query: int, head: int) -> Factors:
        low = np.log(_TAIL / self._n_keys) - self._log_mass[head, query]
        step = self._coarsening * _STEP
        log_t = np.arange(low, self._highest[head, query] + step, step)
        powers = np.exp(-np.multiply.outer(log_t, self._line.nodes)) * self._line.weight
        lost, first, second = (sign * powers * gamma(self._line.nodes + k) for k, sign in enumerate((-1, 1, 1)))
        return Factors(lost, first, second, np.full(len(log_t), step))

    def _moments(self, query: int, heads: tuple[int, ...]) -> Moments:
        nodes = self._line.nodes
        half = nodes[len(nodes) // 2 :]
        grid = np.meshgrid(*(half, *[nodes] * (len(heads) - 1)), indexing="ij")
        exponents = -np.stack(grid, axis=-1).reshape(-1, len(heads))
        expected = self._expected(query, heads, exponents)
        upper = (values.reshape(grid[0].shape) for values in expected)
        # The other half of the line is the mirror image.
        return Moments(*(np.concatenate([np.flip(values).conj(), values]) for values in upper))

    def _expected(self, query: int, heads: tuple[int, ...], exponents: ComplexArray) -> ComplexArray:
        """Expectations (3, P) of kernels to the powers (P, heads), times 1, m, and m^2 + v."""
        kernels = self._kernels
        projections = np.concatenate([kernels.projections[h] for h in heads], axis=1)
        projected = np.concatenate([kernels.projected_queries[h, query] for h in heads])
        head_dim = kernels.projections.shape[2]
        terms = list(self._terms())
        largest = max(weighting.means.size for _, _, weighting in terms) + len(kernels.covariance) ** 2
        size = max(1, _BLOCK_NUMBERS // largest)
        expected = np.zeros((3, len(exponents)), dtype=complex)
        for start in range(0, len(exponents), size):
            block = slice(start, start + size)
            noise = kernels.bandwidth**2 / np.repeat(exponents[block], head_dim, axis=1)
            evidence: dict[bytes, _Evidence] = {}
            for moment, factors, weighting in terms:
                key = weighting.covariance.tobytes()
                if key not in evidence:
                    evidence[key] = _evidence(weighting.covariance, projections, noise)
                surprise = projected - weighting.means @ projections
                expected[moment, block] += _observed(weighting, surprise, evidence[key], factors)
        return expected

    def _terms(self) -> Iterator[tuple[int, tuple[Function, Function], _Weighting]]:
        """Split 1, m and m^2 + v (counted 0, 1, 2) into products of two quadratics, times weightings of the keys."""
        d = len(self._kernels.covariance)
        origin = np.zeros((1, d), dtype=complex)
        plain = _Weighting(np.ones(1, dtype=complex), origin[:, 0], origin, self._kernels.covariance)
        one = Function(1.0, np.zeros(d), np.zeros((d, d)))
        polynomial = self._regression._replace(exponentials=())
        waves = self._regression.exponentials
        yield 0, (one, one), plain
        yield 1, (one, polynomial), plain
        yield 2, (polynomial, polynomial), plain
        yield 2, (one, self._variance), plain
        for wave in waves:
            weighting = self._weighting(wave)
            yield 1, (one, one), weighting
            yield 2, (one, polynomial.plus(polynomial)), weighting
            for other in waves:
                yield 2, (one, one), self._weighting(product_of_exponentials(wave, other))

    def _weighting(self, part: Exponentials) -> _Weighting:
        # Re e = (e + conj e) / 2: under a complex weight the two no longer have conjugate expectations.
        amplitude, linear = (np.concatenate([array, array.conj()]) for array in (part.amplitude / 2, part.linear))
        covariance = self._kernels.covariance.astype(complex)
        means = linear @ covariance
        return _Weighting(amplitude, 0.5 * np.sum(means * linear, axis=1), means, self._kernels.covariance)


def _line(highest: float, n_keys: int, coarsening: float) -> _Line:
    # Errors of phi are multiplied by n, and then compared with standard deviations of order n^{-1/2}.
    decay = _DECAY / coarsening + 1.5 * np.log(n_keys)
    # Sums repeat with a period in log t; both neighbours must have decayed.
    left = min(decay / (max(highest, 0.0) + 2 * decay), _AMPLIFICATION / max(highest, 1.0))
    period = max(decay / left, (highest + decay) / (1 - left))
    step = 2 * np.pi / period
    # |Gamma(c + 2 + i w)| falls as w^{3/2} exp(-pi w / 2).
    extent = 2 / np.pi * (decay + left * max(highest, 0.0) + 9)
    half = step * (np.arange(min(np.ceil(extent / step), MAX_NODES)) + 0.5)
    return _Line(-left + 1j * np.concatenate([-half[::-1], half]), step / (2 * np.pi))


def _log_depths(kernels: HeadKernels, n_keys: int) -> Array:
    """Bounds (H, Q) of the depth that -log max_i K(X_i) exceeds with probability `_TAIL`."""
    spread = kernels.projections.mT @ kernels.covariance @ kernels.projections
    widest = np.sqrt(np.linalg.eigvalsh(spread)[:, -1:])
    radius = np.sqrt(chdtri(kernels.projections.shape[2], _TAIL ** (1 / n_keys)))
    distance = np.linalg.norm(kernels.projected_queries, axis=2) + widest * radius
    return 0.5 * (distance / kernels.bandwidth) ** 2


def _evidence(covariance: Array, projections: Array, noise: ComplexArray) -> _Evidence:
    """Observe W'X + N(0, noise) for every row of the noise (P, k), X of the given covariance."""
    spread = covariance @ projections
    law = projections.T @ spread + noise[:, :, None] * np.eye(noise.shape[1])
    return _Evidence(spread, np.linalg.inv(law), _log_determinant(law, noise))


def _observed(
    weighting: _Weighting, surprise: ComplexArray, evidence: _Evidence, factors: tuple[Function, Function]
) -> ComplexArray:
    """E exp(-sum_k (c_k - (W'X)_k)^2 / (2 noise_k)) f(X) g(X) of weighted keys, (P,); surprise c - E W'X, (T, k)."""
    spread, precision, log_determinant = evidence
    gained = surprise @ precision
    exponent = -0.5 * np.sum(gained * surprise, axis=-1) - 0.5 * log_determinant[:, None]
    mass = weighting.amplitude * np.exp(weighting.log_mass + exponent)
    if all(factor.flat for factor in factors):
        return factors[0].constant * factors[1].constant * mass.sum(axis=1)
    means = weighting.means + gained @ spread.T
    covariance = weighting.covariance - spread @ precision @ spread.T
    value = _mean(factors[0], means, covariance) * _mean(factors[1], means, covariance)
    if not any(factor.flat for factor in factors):
        value += _covariance(*factors, means, covariance)
    return np.sum(mass * value, axis=1)


def _mean(function: Function, means: ComplexArray, covariance: ComplexArray) -> ComplexArray:
    return function.polynomial(means) + np.einsum("jl,plj->p", function.curvature, covariance)[:, None]


def _covariance(first: Function, second: Function, means: ComplexArray, covariance: ComplexArray) -> ComplexArray:
    """Covariance of two quadratics of normal vectors (Isserlis 1918), (P, T)."""
    slopes = first.gradient + 2 * means @ first.curvature
    other_slopes = second.gradient + 2 * means @ second.curvature
    spread = np.einsum("pjl,plj->p", first.curvature @ covariance, second.curvature @ covariance)
    return np.sum((slopes @ covariance) * other_slopes, axis=-1) + 2 * spread[:, None]


def _log_determinant(evidence: ComplexArray, noise: ComplexArray) -> ComplexArray:
    """Logarithm of det(evidence) / prod(noise) on the branch that is real for real noise.

    Pivots of a symmetric matrix whose real part is positive definite have positive real parts, so the principal
    logarithm of each is the continuous one.
    """
    remaining = evidence.copy()
    logarithm = -np.log(noise).sum(axis=1)
    for k in range(noise.shape[1]):
        pivot = remaining[:, k, k]
        logarithm += np.log(pivot)
        row = remaining[:, k, k + 1 :]
        remaining[:, k + 1 :, k + 1 :] -= row[:, :, None] * row[:, None, :] / pivot[:, None, None]
    return logarithm
