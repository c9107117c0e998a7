"""A sequence of outcomes told by the means of its chunks: what a level of a hierarchy misses, and what noise it keeps.

The claim is one of arXiv 2604.08829.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.systems.draws import matrices
from simstudy.attention.transformations import chunk_means
from simstudy.data import regression
from simstudy.data.shared import SharedData
from simstudy.design.settings import ResolutionInstance
from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]


def coarsen(cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Errors of chunk means of Y in the place of m(X_i), along a sequence of n_keys keys."""
    instance = cell.estimator.instance
    assert isinstance(instance, ResolutionInstance)  # for the type checker
    n, d, chunk = cell.data.n_keys, cell.data.n_features, instance.chunk
    if instance.signal == "keys":
        target = shared.regression(cell)
    else:
        (amplitudes,) = matrices(shared, (d, 2 * instance.band))
        target = regression.evaluate(cell.data.regression, amplitudes @ waves(n, instance.band))
    noise = np.sqrt(shared.variances(cell)) * shared.noise(cell)
    missed = target - np.repeat(chunk_means(target, chunk), chunk, axis=1)
    kept = chunk_means(noise, chunk)
    return {"level_error": (missed**2).mean(axis=1), "level_noise": (kept**2).mean(axis=1)}


def waves(n_keys: int, band: int) -> Array:
    """Cosines and sines (2·band, i) of 1 to ``band`` periods in n keys: with normal amplitudes a stationary process."""
    phases = 2.0 * np.pi * np.outer(np.arange(1, band + 1), np.arange(n_keys)) / n_keys
    return np.concatenate([np.cos(phases), np.sin(phases)]) / np.sqrt(band)
