"""Gaussian keys weighted by products of head kernels, whose distribution is again Gaussian.

Index legend: h, g head; G product of kernels; q query; d features; p head dimension.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import GaussianKeys, Keys
from simstudy.theory.functions import Array

# For heads with the same kernel, W W' and W c agree to this relative error.
_COINCIDENT = 1e-12
# A squared bandwidth below this share of the variance of keys is lost to rounding in their sum.
_LOST = 1e-15


class TiltedKeys(NamedTuple):
    """E[K(X) f(X)] = exp(log_mass) E f(N(mean, S)); log_mass (G, Q); laws of means (Q, d) and S (d, d) for each G."""

    log_mass: Array
    laws: Iterator[tuple[Array, Array]]


@dataclass(frozen=True)
class Heads:
    """Kernels of all heads at all queries; projections (H, d, p), projected queries (H, Q, p).

    Distance logits: K_h(z) = exp(-|c - W_h'z|^2 / 2b^2), c = W_qh'x.  Dot-product logits: K_h(z) = exp(c.W_h'z / b^2).
    """

    logits: str
    bandwidth: float
    projections: Array
    projected_queries: Array

    def coincide(self, query: int, first: int, second: int) -> bool:
        """True if two heads have one kernel: b^2 log K = c'W'x - x'WW'x / 2 + constant; dot products have no square."""
        one, two = self.projections[first], self.projections[second]
        pulled, other = one @ self.projected_queries[first, query], two @ self.projected_queries[second, query]
        squares = self.logits == "dot_product" or np.allclose(one @ one.T, two @ two.T, _COINCIDENT, _COINCIDENT)
        return squares and np.allclose(pulled, other, _COINCIDENT, _COINCIDENT)

    @np.errstate(invalid="ignore")
    def tilt(self, covariance: Array, *factors: NDArray[np.intp]) -> TiltedKeys:
        """Keys N(0, covariance) tilted by K_{h1} K_{h2} ..., where each factor is an array (G,) of head indices."""
        if self.logits == "dot_product":
            # Esscher transform: weighting N(0, S) by exp(k.z) moves its mean to S k and leaves S.
            pulled_back = np.matmul(self.projected_queries, self.projections.mT) / self.bandwidth**2
            moved = pulled_back @ covariance
            shift, means = (sum(each[h] for h in factors) for each in (pulled_back, moved))
            log_mass = 0.5 * np.sum(means * shift, axis=-1)
            return TiltedKeys(log_mass, ((each, covariance) for each in means))
        # A Gaussian kernel is, up to a factor, the likelihood of observing c = W'X + N(0, b^2 I).  So the
        # tilted law is the posterior of a linear Gaussian model, at the cost of one solve in the head dimensions.
        projections = np.concatenate([self.projections[h] for h in factors], axis=-1)
        projected = np.concatenate([self.projected_queries[h] for h in factors], axis=-1)
        spread = covariance @ projections
        marginal = projections.mT @ spread + self.bandwidth**2 * np.eye(projections.shape[-1])
        if self.bandwidth**2 < _LOST * np.abs(marginal).max():  # singular for two heads of one subspace
            marginal = np.full_like(marginal, np.nan)
        gain = np.linalg.solve(marginal, spread.mT)
        distance = np.sum(np.linalg.solve(marginal, projected.mT).mT * projected, axis=-1)
        log_det = np.linalg.slogdet(marginal / self.bandwidth**2)[1]
        log_mass = -0.5 * (distance + log_det[:, None])
        each = zip(projected, spread, gain, strict=True)
        return TiltedKeys(log_mass, ((seen @ k, covariance - s @ k) for seen, s, k in each))


def heads_of(cell: Cell, key_projections: Array, query_projections: Array, queries: Array) -> Heads:
    """Heads of a cell; projections (H, d, p), queries (Q, d)."""
    return Heads(cell.estimator.logits, cell.bandwidth, key_projections, np.matmul(queries, query_projections))


def key_covariance(keys: Keys, n_features: int) -> Array:
    """Covariance matrix (d, d) of Gaussian keys: identity, equicorrelated or autoregressive; TypeError for others."""
    if not isinstance(keys, GaussianKeys):
        raise TypeError(f"Gaussian keys are needed; these are {keys.label}")
    if keys.structure == "identity":
        return np.eye(n_features)
    position = np.arange(n_features)
    lag = np.abs(position[:, None] - position)
    return keys.correlation ** (np.minimum(lag, 1) if keys.structure == "equicorrelated" else lag)
