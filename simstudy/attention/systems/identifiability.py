"""What the sum of heads over an output projection leaves of single heads: ambiguous directions, errors of recovery.

The claims are those of arXiv 2604.23681.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.systems.draws import RELATIVE, matrices, orthonormal
from simstudy.data.shared import SharedData
from simstudy.design.settings import HeadRecoveryInstance
from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]

# Index legend: g group of positions with the same outputs of heads, t position in its group, h head, k dimension of a
# head, c channel (h, k), m feature of the model.


def recover_heads(cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Heads of n_keys positions from their sum over a projection of n_features, which noise_sd blurs."""
    instance = cell.estimator.instance
    assert isinstance(instance, HeadRecoveryInstance)  # for the type checker
    n, d, n_heads, p = cell.data.n_keys, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim
    shapes = ((n // instance.held, n_heads * p), (n, d), (n, d), (n_heads, d), (n_heads * p, d), (d, d))
    found = []
    for outputs, noise, tokens, weights, left, right in zip(*matrices(shared, *shapes), strict=True):
        projection = output_projection(instance, left, right, p)
        gates = np.ones((n, n_heads))
        if instance.gates == "position":
            gates = 1.0 / (1.0 + np.exp(-tokens @ weights.T / np.sqrt(d)))
        # (t, c, m), then what a group sees of its channels side by side: (g, c, t·m).
        seen = np.repeat(gates, p, axis=1)[:, :, None] * projection
        seen = seen.reshape(-1, instance.held, *projection.shape).transpose(0, 2, 1, 3)
        seen = seen.reshape(len(outputs), n_heads * p, -1)
        blurred = np.einsum("gc,gcm->gm", outputs, seen) + cell.data.noise_sd * noise.reshape(len(outputs), -1)
        sizes = np.linalg.svd(seen, compute_uv=False)
        ranks = (sizes > RELATIVE * sizes[:, :1]).sum(axis=1)
        recovered = np.einsum("gm,gmc->gc", blurred, np.linalg.pinv(seen, rcond=RELATIVE))
        found.append(((n_heads * p - ranks).sum(), ((recovered - outputs) ** 2).mean()))
    return dict(zip(("nullity", "recovery_error"), np.array(found, np.float64).T, strict=True))


def output_projection(instance: HeadRecoveryInstance, left: Array, right: Array, head_dim: int) -> Array:
    """W_O (c, m): the same block for every head, or one of given rank and condition, in random directions."""
    if instance.output == "shared":
        block = orthonormal(right)[:head_dim]
        n_heads = len(left) // head_dim
        return np.tile(block, (n_heads, 1)) / n_heads
    kept = min(left.shape) - instance.rank_deficit
    sizes = np.geomspace(1.0, 1.0 / instance.condition, kept)
    return orthonormal(left)[:, :kept] * sizes @ orthonormal(right)[:, :kept].T
