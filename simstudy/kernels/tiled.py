"""Moments of Nadaraya–Watson heads whose keys arrive in tiles: as many as one likes, in the memory of one tile.

Each tile is a softmax by itself, with a shift of its own; the logarithms of their masses say what each is worth among
all keys.  Means and covariances of tiles are averaged with these weights and their products, in float64.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simstudy.kernels import few_queries, many_queries
from simstudy.kernels.jit import writable
from simstudy.kernels.nadaraya_watson import arguments_of, recompute
from simstudy.kernels.shifts import Law

Array = NDArray[np.float64]


class RunningMoments:
    """What `nw_moments` returns of all keys that were added.

    Parameters
    ----------
    n_replicates
        R.
    projected_queries, bandwidth, logits
        As in `nw_moments`.

    Attributes
    ----------
    means, grams, log_mass
        Its three arrays.
    """

    def __init__(self, n_replicates: int, projected_queries: np.ndarray, bandwidth: float, logits: str) -> None:
        self._scored = projected_queries, bandwidth, logits
        shape = n_replicates, *projected_queries.shape[-3:-1]
        self.means: Array = np.zeros(shape)
        self.grams: Array = np.zeros((*shape, shape[-1]))
        self.log_mass: Array = np.full(shape, -np.inf)

    # An undefined key makes its heads NaN, without a warning.
    @np.errstate(invalid="ignore")
    def add(self, projected_keys: np.ndarray, values: np.ndarray, variances: np.ndarray) -> None:
        """Add a tile of keys (R, H, p, n), with their values (R, n) and variances (R, n)."""
        means, grams, logs = self._moments(projected_keys, values, variances)
        # Of no weight at all there is neither a mean nor a covariance, and none is needed.
        lost = np.isneginf(logs)
        means[lost], grams[lost[..., :, None] | lost[..., None, :]] = 0.0, 0.0
        total = np.logaddexp(self.log_mass, logs)
        before, now = np.exp(self.log_mass - total), np.exp(logs - total)
        self.means = before * self.means + now * means
        self.grams = _products(before) * self.grams + _products(now) * grams
        self.log_mass = total

    def _moments(self, keys: np.ndarray, values: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, ...]:
        """Moments of one tile, which may be wrong where all its weights are negligible."""
        keys, queries, law = arguments_of(keys, *self._scored)
        data = writable(values, keys.dtype), writable(variances, keys.dtype)
        if not many_queries.worth_while(keys, queries):
            return few_queries.moments(keys, *data, queries, law, True)
        # What is too small a sum for a tile need not be one for all keys.
        accepted = law._replace(least=0.0) if law.distance else law
        *found, done = many_queries.moments(keys, *data, queries, accepted, True)
        if law.distance:
            done &= (np.logaddexp(self.log_mass, found[2]) >= _least_log_mass(law)).all(axis=2)
        # The careful formula at once, which `few_queries` else takes for each query after the fast one has failed.
        recompute(found, done, keys, data, queries, law._replace(farthest=keys.dtype.type(-1)))
        return tuple(found)


def _least_log_mass(law: Law) -> float:
    """Return the logarithm of the mass from which the fast formula is accepted, for distances.

    There the largest weight that there can be, 1, is 2^ceiling or up to half of it.
    """
    return math.log(law.least) - (float(law.ceiling) - 1.0) * math.log(2.0)


def _products(shares: np.ndarray) -> np.ndarray:
    return shares[..., :, None] * shares[..., None, :]
