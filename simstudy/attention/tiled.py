"""Heads of replicates whose keys are too many to be held: drawn, projected and weighted tile by tile."""

from __future__ import annotations

import numpy as np

from simstudy.attention.mechanism import Estimates
from simstudy.data.shared import SharedData, scaled
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.tiling import tiles_of
from simstudy.kernels.projection import projector
from simstudy.kernels.tiled import RunningMoments


def evaluate_in_tiles(cell: Cell, shared: SharedData, key: np.ndarray, queries: np.ndarray) -> Estimates:
    """Return what `mechanism.evaluate` does, for a cell that `passes_in_tiles`; of its replicates no key is asked.

    Key projections are (h, d, p) or (r, h, d, p), projected query points (q, h, p) or (r, q, h, p).
    """
    integrated = cell.simulation.noise_treatment == "integrated"
    project = projector(key, key.dtype)
    running = RunningMoments(shared.count, queries, cell.bandwidth, cell.estimator.logits)
    for tile in tiles_of(cell):
        data = SharedData(tile, shared.first, shared.count)
        values = data.values(tile)
        # Drawn noise needs no covariance; what it costs is little beside the projections.
        variances = data.variances(tile) if integrated else np.ones_like(values)
        keys = scaled(project(data.keys(tile.data.n_keys)), cell.estimator.key_scale)
        running.add(keys, values, variances)
    log_mass = running.log_mass if cell.controlled else None
    return Estimates(running.means, running.grams if integrated else None, log_mass)
