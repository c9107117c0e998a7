"""Hierarchies of resolutions: signs of the eigenvalues of mixed scores, errors of a level.

The questions are those of arXiv 2604.08829.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import AutoregressiveKeys, GaussianKeys, HeteroscedasticNoise, Linear
from simstudy.design.settings.systems.hierarchy import ResolutionInstance, ScoreKernelInstance
from simstudy.theory.instances import instance_numbers


@instance_numbers.register
def score_kernel(instance: ScoreKernelInstance, cell: Cell) -> dict[str, float]:
    """Signs of the eigenvalues of the mixed scores, and the share of the symmetric part.

    The symmetrised form of one level is (QK' + KQ')/2, which has p eigenvalues of either sign if the 2p columns of Q
    and K are independent; by Sylvester's law of inertia all levels together have L times as many, if the tokens of
    all levels are independent as columns: if level m and those above it have no more of them than positions.  With
    Haar O, OM has the law of M and E tr((OM)²) = |M|²/d, so that the symmetric part has (1 + 1/d)/2 of |M|².
    """
    n, d, p = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim
    levels, tied = instance.levels, instance.projections == "tied"
    numbers = {"symmetric_share": 1.0 if tied else 0.5 * (1.0 + 1.0 / d)}
    room = all(d * (levels - m) <= -(-n // 2**m) for m in range(levels))
    if room and (tied or 2 * p <= d):
        numbers |= {"positive_eigenvalues": float(p * levels), "negative_eigenvalues": 0.0 if tied else p * levels}
    return numbers


@instance_numbers.register
def resolution(instance: ResolutionInstance, cell: Cell) -> dict[str, float]:
    """Error of chunk means of m(x) = Σ c_j x_j: |c|²(1 − Σ_{k,l} γ(k − l)/w²), and the noise σ²/w that they keep."""
    data = cell.data
    width, numbers = instance.chunk, {}
    if not isinstance(data.noise, HeteroscedasticNoise):
        numbers["level_noise"] = data.noise_sd**2 / width
    covariances = _autocovariances(instance, cell, width)
    if isinstance(data.regression, Linear) and covariances is not None:
        counts = np.where(np.arange(width) > 0, 2.0, 1.0) * (width - np.arange(width))
        size = float(np.square(data.regression.coefficients).sum())
        numbers["level_error"] = size * (1.0 - float(counts @ covariances) / width**2)
    return numbers


def _autocovariances(instance: ResolutionInstance, cell: Cell, count: int) -> NDArray[np.float64] | None:
    """γ(0), …, γ(count − 1) of one feature along the keys; None if features are not independent and Gaussian."""
    keys, lags = cell.data.key_distribution, np.arange(count)
    if instance.signal == "band_limited":
        frequencies = 2.0 * np.pi * np.arange(1, instance.band + 1) / cell.data.n_keys
        return np.asarray(np.cos(np.outer(frequencies, lags)).mean(axis=0), np.float64)
    if isinstance(keys, AutoregressiveKeys):
        return np.asarray(keys.coefficient**lags, np.float64)
    if isinstance(keys, GaussianKeys) and keys.structure == "identity":
        return (lags == 0).astype(np.float64)
    return None
