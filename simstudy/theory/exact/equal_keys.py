"""Expectations over one key that is any of N with the same probability: means over these keys.

The integrals over log t are then exact for n keys drawn from the N with replacement, such as rows of a user's data.

Index legend: h head; Q queries; U values of log t; N keys; j feature.
"""

import math

import numpy as np
from scipy.special import logsumexp

from simstudy.theory.exact.integrals import Factors, Moments
from simstudy.theory.functions import Array
from simstudy.theory.tilting import Heads

# Part of the integrals over t that is neglected at either end of log t.
_TAIL = 1e-10
# Of moments of estimates, relative to those of Y: two tails for either head.
NEGLECTED = 4 * _TAIL
# At this step, sums over e^{-tS} (tS)^2 are 1 within 3e-9 for every S from 0 to n max K.
_STEP = 0.38
# e^{-tK} = 0 beyond.
_LARGE = 100.0
# Numbers held at once, and multiplications for the tables of one pair of heads: half a minute.
_NUMBERS = 6e7
_WORK = 3e11
_TABLES = 7


class EqualKeysLaw:
    """One key with its response, as seen by heads of any kind: N equally likely keys (N, d), moments of Y (N,) given
    each.
    """

    def __init__(
        self, heads: Heads, keys: Array, means: Array, variances: Array, n_keys: int, coarsening: float = 1.0
    ) -> None:
        self._n_keys, self._step = n_keys, coarsening * _STEP
        self._log_kernels = _log_kernels(heads, keys)
        self._law = Moments(*(np.stack([np.ones(len(keys)), means, means**2 + variances]) / len(keys)))

    def n_steps(self) -> int:
        """Return how many values of log t the heads need at most."""
        # Counted, not made: grids of kernels too narrow would fill the memory.
        ranges = [self._range(log_kernel) for heads in self._log_kernels for log_kernel in heads]
        return max(math.ceil((high - low) / self._step) for _, low, high in ranges)

    def too_large(self) -> str:
        """Say why the moments cannot be computed in reasonable time and memory, or nothing."""
        n_heads, _, size = self._log_kernels.shape
        n_steps = self.n_steps()
        if 3 * n_heads * n_steps * size <= _NUMBERS and _TABLES * n_steps**2 * size <= _WORK:
            return ""
        return (
            f"{n_heads} heads at {size} rows and {n_steps} values of log t would take too much time or memory: "
            "too many rows, or kernels too narrow"
        )

    def factors(self, query: int) -> list[Factors]:
        """Functions of tK of every head at the N keys."""
        return [self._factors(log_kernel) for log_kernel in self._log_kernels[:, query]]

    def alone(self, query: int, head: int) -> Moments:
        """Law of one key, (N,): the same for every head."""
        return self._law

    def together(
        self, query: int, factors: list[Factors], first: int, second: int
    ) -> tuple[tuple[Factors, Factors], tuple[Moments, Moments], Moments]:
        """Factors of two heads, the law of one key as each sees it and as both see it."""
        return (factors[first], factors[second]), (self._law, self._law), self._law

    def _factors(self, log_kernel: Array) -> Factors:
        log_t, steps = self._grid(log_kernel)
        z = np.exp(np.minimum(log_t[:, None] + log_kernel, _LARGE))
        left = np.exp(-z)
        first = z * left
        return Factors(1 - left, first, z * first, steps)

    def _grid(self, log_kernel: Array) -> tuple[Array, Array]:
        """Nodes log t and weights of a trapezoid rule in y, log t = y - e^{y0 - y}, for one kernel at the N keys."""
        y0, low, high = self._range(log_kernel)
        y = np.arange(low, high, self._step)
        return y - np.exp(y0 - y), self._step * (1 + np.exp(y0 - y))

    def _range(self, log_kernel: Array) -> tuple[float, float, float]:
        """Return y0 and the ends of y."""
        log_mass = logsumexp(log_kernel) - np.log(len(log_kernel))
        y0 = -np.log(self._n_keys) - log_kernel.max() - 1.0
        low = np.log(_TAIL / self._n_keys) - log_mass
        # -log max_i K(X_i) is larger with probability `_TAIL`.
        depth = -np.quantile(log_kernel, _TAIL ** (1 / self._n_keys), method="lower")
        high = depth + np.log(-np.log(_TAIL)) + self._step
        return y0, y0 - np.log(y0 - low), high


def _log_kernels(heads: Heads, keys: Array) -> Array:
    """Log K of every head and query at every key, (H, Q, N)."""
    projected = keys @ heads.projections
    if heads.logits == "dot_product":
        return heads.projected_queries @ projected.mT / heads.bandwidth**2
    gaps = heads.projected_queries[:, :, None] - projected[:, None]
    return -0.5 * np.sum((gaps / heads.bandwidth) ** 2, axis=-1)
