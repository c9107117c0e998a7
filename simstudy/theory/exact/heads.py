"""Heads whose kernel depends on one linear function of a Gaussian key, and the values of t where e^{-tK} is needed.

Such are all dot-product heads, K = exp(k.X), and distance heads of dimension 1.
"""

from typing import NamedTuple

import numpy as np
import scipy
from scipy.special import expit, ndtr, ndtri

from simstudy.theory.functions import Array
from simstudy.theory.tilting import HeadKernels

# A key lies further out with probability 2e-17.  Weights are at most 1, so what it does to a moment is of that order.
EXTENT = 8.5
# Part of the integral of |d phi^n| that is neglected at either end of log t.
_TAIL = 1e-14
# e^{-tK} < _TAIL at log t = depth + MARGIN if log K > -depth.
MARGIN = float(np.log(-np.log(_TAIL)))
# At this step in log t, sums over e^{-tS} tS and e^{-tS} (tS)^2 are 1 within 2e-12 for every S.
_STEP = 0.3


class ScalarHead(NamedTuple):
    """Kernel exp(-(offset - spread x)^2 / 2 + slope x) of x = axis.X ~ N(0, 1)."""

    axis: Array
    offset: float
    spread: float
    slope: float

    def log_kernel(self, x: Array) -> Array:
        """Log K at values x of any shape."""
        return -0.5 * (self.offset - self.spread * x) ** 2 + self.slope * x

    def log_mass(self) -> float:
        """Log E K, or an upper bound of it over keys within `EXTENT`."""
        if self.slope:
            return self.slope * min(0.5 * self.slope, EXTENT)
        width = 1 + self.spread**2
        return -0.5 * (np.log(width) + self.offset**2 / width)

    def log_depth(self, n_keys: int) -> float:
        """The depth that -log max_i K(X_i) over n keys exceeds with probability `_TAIL`."""
        probability = _TAIL ** (1 / n_keys)
        if self.slope:
            return float(-self.slope * ndtri(probability))
        return 0.5 * self._distance_exceeded(probability) ** 2

    def steepness(self, n_keys: int) -> float:
        """Bound of |d log K / dx| where -log K is at most the depth and a margin."""
        return self.slope + self.spread * np.sqrt(2 * (max(self.log_depth(n_keys), 0.0) + MARGIN))

    def _distance_exceeded(self, probability: float) -> float:
        if not self.spread:
            return abs(self.offset)

        def excess(r: float) -> float:
            beyond = ndtr((self.offset - r) / self.spread) + ndtr(-(self.offset + r) / self.spread)
            return float(beyond - probability)

        return float(scipy.optimize.brentq(excess, 0.0, abs(self.offset) + 2 * EXTENT * self.spread))


def scalar_heads(kernels: HeadKernels, query: int) -> list[ScalarHead]:
    """Heads at one query, for dot-product logits of any dimension or distance logits of dimension 1."""
    projected = kernels.projected_queries[:, query]
    if kernels.logits == "distance":
        directions, offsets = kernels.projections[:, :, 0] / kernels.bandwidth, projected[:, 0] / kernels.bandwidth
    else:
        directions = np.einsum("hjk,hk->hj", kernels.projections, projected) / kernels.bandwidth**2
        offsets = np.zeros(len(directions))
    heads = []
    for direction, offset in zip(directions, offsets, strict=True):
        scale = float(np.sqrt(direction @ kernels.covariance @ direction))
        # A kernel that ignores the keys may be read along any axis.
        axis = direction / scale if scale else np.eye(len(direction))[0] / np.sqrt(kernels.covariance[0, 0])
        spread, slope = (scale, 0.0) if kernels.logits == "distance" else (0.0, scale)
        heads.append(ScalarHead(axis, float(offset), spread, slope))
    return heads


def log_grid(head: ScalarHead, n_keys: int, distinctness: float, coarsening: float) -> tuple[Array, Array]:
    """Nodes and weights of a trapezoid rule in log t that resolves e^{-tK} and the law of log max_i K(X_i)."""
    low = np.log(_TAIL / n_keys) - head.log_mass()
    high = head.log_depth(n_keys) + MARGIN
    step = coarsening * _STEP
    if head.slope:
        # The largest of n normal variables has a standard deviation of order 1 / (2 ln n)^(1/2).
        step *= max(1.0, head.slope * min(1 / (1 + np.sqrt(2 * np.log(n_keys))), distinctness))
        log_t = low + step * np.arange(np.ceil((high - low) / step) + 1)
        return log_t, np.full(len(log_t), step)
    bend = (min(np.sqrt(2 * high) / 40, head.spread * min(0.1, 0.3 * distinctness)) / _STEP) ** 2
    knee = 5 + 1.2 * bend

    def bent(y: Array) -> Array:
        return y + 0.5 * bend * np.logaddexp(0, y - knee) ** 2

    start = scipy.optimize.brentq(lambda y: bent(y) - low, low - 1 - bend if low < knee else knee - 1 - bend, low + 1)
    y = np.arange(start, start + (high - low) + 2 * step, step)
    y = y[: np.searchsorted(bent(y), high) + 1]
    return bent(y), step * (1 + bend * np.logaddexp(0, y - knee) * expit(y - knee))
