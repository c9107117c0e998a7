"""Projections of the keys of many replicates onto the subspaces of the heads.

Imports NumPy, jit and elementary.

No BLAS: its bits depend on its threads and on how replicates are grouped, those of this loop do not.
"""

from __future__ import annotations

import numpy as np

from simstudy.jit import inlined, kernel

# Index legend: r replicate, i key, j feature, c column of the stacked projections (head and dimension).

_TILE = 256


def project(keys: np.ndarray, projections: np.ndarray) -> np.ndarray:
    """Project the keys of each replicate by each head.

    Parameters
    ----------
    keys : array (R, d, n)
        Keys, feature-major.
    projections : array (H, d, p) or (R, H, d, p)
        Projections W_h: the same for all replicates, or one set for each.

    Returns
    -------
    array (R, H, p, n)
        W_hᵀ X_i in the precision of the keys.  The bits for one replicate do not depend on the others.
    """
    n_heads, _, head_dim = projections.shape[-3:]
    stacked = np.moveaxis(projections.reshape((-1, *projections.shape[-3:])), -1, -2)
    rows = np.array(stacked.reshape(len(stacked), n_heads * head_dim, -1), keys.dtype, order="C")
    projected = np.empty((len(keys), rows.shape[1], keys.shape[2]), keys.dtype)
    spare = np.empty((1, keys.shape[2]), keys.dtype)
    _project(np.require(keys, requirements=("C", "W")), rows, spare, projected)
    return projected.reshape(len(keys), n_heads, head_dim, keys.shape[2])


@kernel
def _project(keys, rows, spare, projected):
    # projected[r, c, i] = sum_j rows[r, c, j] * keys[r, j, i]
    n_replicates, n_columns, n_keys = projected.shape
    # Columns pass in pairs; the partner of an odd last one is computed and dropped.
    for r in range(n_replicates):
        x, weights = keys[r], rows[r if len(rows) > 1 else 0]
        for start in range(0, n_keys, _TILE):
            stop = min(start + _TILE, n_keys)
            for c in range(0, n_columns, 2):
                partner = projected[r, c + 1] if c + 1 < n_columns else spare[0]
                _project_tile(x, weights, c, start, projected[r, c, start:stop], partner[start:stop])


@inlined
def _project_tile(keys, weights, c, start, sums0, sums1):
    a, b = weights[c], weights[min(c + 1, len(weights) - 1)]
    for i in range(sums0.size):
        sums0[i] = 0
        sums1[i] = 0
    whole = len(keys) - len(keys) % 4
    for j in range(0, whole, 4):
        _add_four(keys, a, b, j, start, sums0, sums1)
    for j in range(whole, len(keys)):
        x, a0, b0 = keys[j, start : start + sums0.size], a[j], b[j]
        for i in range(sums0.size):
            sums0[i] += a0 * x[i]
            sums1[i] += b0 * x[i]


@inlined
def _add_four(keys, a, b, j, start, sums0, sums1):
    # Each sum is read and written once for four products, each key read once for two.
    stop = start + sums0.size
    x0, x1, x2, x3 = keys[j, start:stop], keys[j + 1, start:stop], keys[j + 2, start:stop], keys[j + 3, start:stop]
    a0, a1, a2, a3, b0, b1, b2, b3 = a[j], a[j + 1], a[j + 2], a[j + 3], b[j], b[j + 1], b[j + 2], b[j + 3]
    for i in range(sums0.size):
        sums0[i] += a0 * x0[i] + a1 * x1[i] + a2 * x2[i] + a3 * x3[i]
        sums1[i] += b0 * x0[i] + b1 * x1[i] + b2 * x2[i] + b3 * x3[i]
