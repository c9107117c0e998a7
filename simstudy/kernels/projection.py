"""Projections of the keys of many replicates onto the subspaces of the heads.

Imports NumPy and jit only.

No BLAS: its bits depend on its threads and on how replicates are grouped, those of this loop do not.
"""

from __future__ import annotations

import numpy as np

from simstudy.jit import aligned, inlined, kernel

# Index legend: r replicate, i key, j feature, c column of the stacked projections (head and dimension).

_TILE = 256
_STRIDE = _TILE + 16


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
    n_columns = n_heads * head_dim
    stacked = np.moveaxis(projections.reshape((-1, *projections.shape[-3:])), -1, -2)
    # Columns pass by fours: those that fill the last four are zero, and their products are dropped.
    rows = np.zeros((len(stacked), -(-n_columns // 4) * 4, keys.shape[1]), keys.dtype)
    rows[:, :n_columns] = stacked.reshape(len(stacked), n_columns, -1)
    projected = aligned((len(keys), n_columns, keys.shape[2]), keys.dtype)
    sums = aligned((4 * _STRIDE,), keys.dtype)
    _project(np.require(keys, requirements=("C", "W")), rows, sums, projected)
    return projected.reshape(len(keys), n_heads, head_dim, keys.shape[2])


@kernel
def _project(keys, rows, sums, projected):
    # projected[r, c, i] = sum_j rows[r, c, j] * keys[r, j, i]
    n_replicates, n_columns, n_keys = projected.shape
    for r in range(n_replicates):
        weights = rows[r if len(rows) > 1 else 0]
        for start in range(0, n_keys, _TILE):
            size = min(_TILE, n_keys - start)
            for c in range(0, n_columns, 4):
                _sum_tile(keys[r], weights[c : c + 4], start, size, sums)
                for k in range(min(4, n_columns - c)):
                    target, source = projected[r, c + k, start : start + size], sums[k * _STRIDE : (k + 1) * _STRIDE]
                    for i in range(size):
                        target[i] = source[i]


@inlined
def _sum_tile(keys, weights, start, size, sums):
    n_features, stop = len(keys), start + size
    rest = n_features % 4
    for i in range(4 * _STRIDE):
        sums[i] = 0
    for j in range(rest):
        x, a, b, c, d = keys[j, start:stop], weights[0, j], weights[1, j], weights[2, j], weights[3, j]
        for i in range(size):
            sums[i] += a * x[i]
            sums[i + _STRIDE] += b * x[i]
            sums[i + 2 * _STRIDE] += c * x[i]
            sums[i + 3 * _STRIDE] += d * x[i]
    for j in range(rest, n_features, 4):
        _add_four(keys, weights, j, start, stop, sums)


@inlined
def _add_four(keys, w, j, start, stop, sums):
    # 16 products for 8 reads and 4 writes: with fewer, memory would be waited for.
    x0, x1, x2, x3 = keys[j, start:stop], keys[j + 1, start:stop], keys[j + 2, start:stop], keys[j + 3, start:stop]
    a0, a1, a2, a3 = w[0, j], w[0, j + 1], w[0, j + 2], w[0, j + 3]
    b0, b1, b2, b3 = w[1, j], w[1, j + 1], w[1, j + 2], w[1, j + 3]
    c0, c1, c2, c3 = w[2, j], w[2, j + 1], w[2, j + 2], w[2, j + 3]
    d0, d1, d2, d3 = w[3, j], w[3, j + 1], w[3, j + 2], w[3, j + 3]
    for i in range(stop - start):
        p, q, r, s = x0[i], x1[i], x2[i], x3[i]
        sums[i] += a0 * p + a1 * q + a2 * r + a3 * s
        sums[i + _STRIDE] += b0 * p + b1 * q + b2 * r + b3 * s
        sums[i + 2 * _STRIDE] += c0 * p + c1 * q + c2 * r + c3 * s
        sums[i + 3 * _STRIDE] += d0 * p + d1 * q + d2 * r + d3 * s
