"""Expectations over one Gaussian key for distance heads of any dimension, through Mellin transforms of e^{-tK}.

With z = tK and a line q = c + i w, -1 < c < 0 (Paris and Kaminski 2001, Asymptotics and Mellin-Barnes integrals),

    e^{-z} - 1 = (1/2pi) int Gamma(q) z^{-q} dw,   z e^{-z} and z^2 e^{-z} the same with Gamma(q + 1), Gamma(q + 2).

So functions of tK are sums of powers K^{-q}, whose joint expectations have closed forms: K^{-q} is a Gaussian kernel
with the complex precision -q/b^2, and formulas for real precisions apply.

Index legend: h, g head; q query; U values of log t; N nodes on the line; P points (pairs of nodes); T exponentials;
k coordinates of one or two projections; j feature.
"""

import numpy as np
from scipy.special import chdtri, gamma

from simstudy.theory.exact.integrals import Factors, Law, Moments
from simstudy.theory.functions import Array, ComplexArray, Function, polynomial_mean, polynomial_square, zero_function
from simstudy.theory.tilting import Heads

_TAIL = 1e-13
_STEP = 0.3
# Sums over the line are truncated where terms are below exp(-_DECAY); so are their periodic repetitions in log t.
_DECAY = 21.0
# Rounding errors are amplified at most by exp(_AMPLIFICATION), where e^{-tK} - 1 is multiplied by t^{|c|}.
_AMPLIFICATION = 9.0
_BLOCK_NUMBERS = 400_000
MAX_NODES = 1500
# Most exponentials of quadratics, which take some minutes.
MAX_WORK = 6e8

Waves = tuple[ComplexArray, Array]
"""Complex amplitudes (T,) and frequencies (T, d) of sum_t amplitude_t exp(i frequency_t . x)."""


class MellinLaw(Law):
    """One key N(0, covariance) and its response, for distance heads of any dimension; v is a polynomial."""

    def __init__(
        self, heads: Heads, covariance: Array, regression: Function, variance: Function, n_keys: int, coarsening: float
    ) -> None:
        self._heads, self._covariance, self._n_keys, self._coarsening = heads, covariance, n_keys, coarsening
        self._terms = _terms(regression, variance)
        # Bounds (H, Q) of log t, from the depth that -log max_i K(X_i) exceeds with probability `_TAIL`.
        spread = heads.projections.mT @ covariance @ heads.projections
        widest = np.sqrt(np.linalg.eigvalsh(spread)[:, -1:])
        radius = np.sqrt(chdtri(heads.projections.shape[2], _TAIL ** (1 / n_keys)))
        distance = np.linalg.norm(heads.projected_queries, axis=2) + widest * radius
        self._highest = 0.5 * (distance / heads.bandwidth) ** 2 + np.log(-np.log(_TAIL))
        self._lowest = np.log(_TAIL / n_keys) - heads.tilt(covariance, np.arange(len(heads.projections))).log_mass
        self._nodes, self._weight = _line(float(self._highest.max()), n_keys, coarsening)

    def too_large(self) -> str:
        """Return why the sums would take too long, or an empty string."""
        n_nodes = len(self._nodes)
        if n_nodes > MAX_NODES:
            return f"quadrature needs more than {MAX_NODES} nodes: the kernels are too narrow for so few keys"
        n_heads, n_queries = self._heads.projected_queries.shape[:2]
        n_exponentials = sum(len(amplitudes) for _, _, _, (amplitudes, _) in self._terms)
        work = n_queries * n_heads * (n_heads - 1) / 2 * n_nodes**2 / 2 * n_exponentials
        if work > MAX_WORK:
            return f"quadrature needs {work:.1g} terms (at most {MAX_WORK:.1g}): too many heads, queries or waves"
        return ""

    def factors(self, query: int) -> list[Factors]:
        """Return the functions of tK of every head, as coefficients of the powers K^{-q}."""
        step, found = self._coarsening * _STEP, []
        for low, high in zip(self._lowest[:, query], self._highest[:, query], strict=True):
            log_t = np.arange(low, high + step, step)
            powers = np.exp(-np.multiply.outer(log_t, self._nodes)) * self._weight
            functions = [sign * powers * gamma(self._nodes + k) for k, sign in enumerate((-1, 1, 1))]
            found.append(Factors(np.stack(functions), np.full(len(log_t), step)))
        return found

    def moments(self, query: int, *heads: int) -> Moments:
        """Return expectations of powers of the kernel of one head, (N,), or of two, (N, N)."""
        half = self._nodes[len(self._nodes) // 2 :]
        grid = np.meshgrid(*(half, *[self._nodes] * (len(heads) - 1)), indexing="ij")
        exponents = -np.stack(grid, axis=-1).reshape(-1, len(heads))
        upper = (values.reshape(grid[0].shape) for values in self._expected(query, heads, exponents))
        # Expectations at the other half of the line are complex conjugates.
        return Moments(*(np.concatenate([np.flip(values).conj(), values]) for values in upper))

    def _expected(self, query: int, heads: tuple[int, ...], exponents: ComplexArray) -> ComplexArray:
        """Expectations (3, P) of kernels to the powers (P, heads), times 1, m, and m^2 + v."""
        projections = np.concatenate([self._heads.projections[h] for h in heads], axis=1)
        projected = np.concatenate([self._heads.projected_queries[h, query] for h in heads])
        noises = self._heads.bandwidth**2 / np.repeat(exponents, len(projected) // len(heads), axis=1)
        spread = self._covariance @ projections
        size = max(frequencies.size for _, _, _, (_, frequencies) in self._terms) + self._covariance.size
        size = max(1, _BLOCK_NUMBERS // size)
        expected = np.zeros((3, len(exponents)), dtype=complex)
        for start in range(0, len(exponents), size):
            # Every kernel is a likelihood of W'X + N(0, noise).
            block = slice(start, start + size)
            marginal = projections.T @ spread + noises[block, :, None] * np.eye(len(projected))
            precision, log_determinant = np.linalg.inv(marginal), _log_determinant(marginal, noises[block])
            covariance = self._covariance - spread @ precision @ spread.T
            for moment, function, power, (amplitudes, frequencies) in self._terms:
                # Weighting N(0, S) by exp(i k.x) moves its mean to i S k and leaves S.
                means = 1j * frequencies @ self._covariance
                residual = projected - means @ projections
                gained = residual @ precision
                exponent = -0.5 * np.sum(gained * residual, axis=-1) - 0.5 * log_determinant[:, None]
                mass = amplitudes * np.exp(0.5j * np.sum(means * frequencies, axis=1) + exponent)
                if function.flat:
                    expected[moment, block] += function.constant**power * mass.sum(axis=1)
                else:
                    of = (polynomial_mean, polynomial_square)[power - 1]
                    expected[moment, block] += np.sum(
                        mass * of(function, means + gained @ spread.T, covariance), axis=1
                    )
        return expected


def _terms(regression: Function, variance: Function) -> list[tuple[int, Function, int, Waves]]:
    """Split 1, m and m^2 + v (numbered 0, 1, 2) into powers of quadratics, times waves."""
    zero = zero_function(len(regression.gradient))
    quadratic = regression._replace(amplitudes=zero.amplitudes, frequencies=zero.frequencies)
    one, plain = zero._replace(constant=1.0), (np.ones(1, dtype=complex), np.zeros((1, len(zero.gradient))))
    terms = [(0, one, 1, plain), (1, quadratic, 1, plain), (2, quadratic, 2, plain), (2, variance, 1, plain)]
    if not len(regression.amplitudes):
        return terms
    waves = _real(regression.amplitudes, regression.frequencies)
    # Twice the polynomial, for cross products; Re a Re b = Re(a b + a conj(b)) / 2 for each pair of waves once.
    doubled = quadratic._replace(
        **{part: 2 * getattr(quadratic, part) for part in ("constant", "gradient", "curvature")}
    )
    t, u = np.triu_indices(len(regression.amplitudes))
    a, k = regression.amplitudes, regression.frequencies
    amplitudes = np.where(t == u, 0.5, 1.0) * a[t] * np.stack([a[u], a[u].conj()])
    pairs = _real(amplitudes.ravel(), np.concatenate([k[t] + k[u], k[t] - k[u]]))
    return [*terms, (1, one, 1, waves), (2, doubled, 1, waves), (2, one, 1, pairs)]


def _real(amplitudes: ComplexArray, frequencies: Array) -> Waves:
    # Re e = (e + conj e) / 2: under a complex weight the two no longer have conjugate expectations.
    halves = np.array([amplitudes, amplitudes.conj()], np.complex128).ravel() / 2
    return halves, np.concatenate([frequencies, -frequencies])


def _line(highest: float, n_keys: int, coarsening: float) -> tuple[ComplexArray, float]:
    """Nodes q on the line of integration, symmetric about the real axis, and the weight of each."""
    # Errors of phi are multiplied by n, and then compared with standard deviations of order n^{-1/2}.
    decay = _DECAY / coarsening + 1.5 * np.log(n_keys)
    # Sums are periodic in log t; both neighbouring periods must have decayed.
    left = min(decay / (max(highest, 0.0) + 2 * decay), _AMPLIFICATION / max(highest, 1.0))
    period = max(decay / left, (highest + decay) / (1 - left))
    step = 2 * np.pi / period
    # |Gamma(c + 2 + i w)| falls as w^{3/2} exp(-pi w / 2).
    extent = 2 / np.pi * (decay + left * max(highest, 0.0) + 9)
    half = step * (np.arange(min(np.ceil(extent / step), MAX_NODES)) + 0.5)
    return -left + 1j * np.concatenate([-half[::-1], half]), step / (2 * np.pi)


def _log_determinant(marginal: ComplexArray, noise: ComplexArray) -> ComplexArray:
    """Logarithm of det(marginal) / prod(noise) on the branch that is real for real noise.

    Pivots of a symmetric matrix whose real part is positive definite have positive real parts, so the principal
    logarithm of each is the continuous one.
    """
    remaining = marginal.copy()
    logarithm = -np.log(noise).sum(axis=1)
    for k in range(noise.shape[1]):
        pivot = remaining[:, k, k]
        logarithm += np.log(pivot)
        row = remaining[:, k, k + 1 :]
        remaining[:, k + 1 :, k + 1 :] -= row[:, :, None] * row[:, None, :] / pivot[:, None, None]
    return logarithm
