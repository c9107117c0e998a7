"""Projections of the keys of many replicates onto the subspaces of the heads.

No BLAS: its bits depend on its threads and on how replicates are grouped, those of this loop do not.
"""

from __future__ import annotations

import numpy as np

from simstudy.kernels.devices import on_cuda
from simstudy.kernels.jit import aligned, inlined, kept_by_thread, kernel, writable
from simstudy.kernels.vectors import lanes_of, load, repeat, spread, store_four

# Index legend: r replicate, i key, j feature, c column of the stacked projections (head and dimension).

_TILE = 144
_STRIDE = _TILE + 16
"""Numbers from one row of a tile to the next: not a power of 2, as the first-level cache holds few such rows."""


def project(keys: np.ndarray, projections: np.ndarray) -> np.ndarray:
    """Project the keys (R, d, n) by heads (H, d, p) or (R, H, d, p), to (R, H, p, n), in the precision of the keys."""
    if on_cuda():
        from simstudy.kernels import cuda

        return cuda.project(keys, projections)
    real = keys.dtype
    n_heads, n_features, head_dim = projections.shape[-3:]
    n_columns = n_heads * head_dim
    stacked = projections.reshape((-1, *projections.shape[-3:])).swapaxes(-1, -2)
    # Columns pass by fours: those that fill the last four are zero, and their products are dropped.
    rows = np.zeros((len(stacked), -(-n_columns // 4) * 4, n_features), real)
    rows[:, :n_columns] = stacked.reshape(len(stacked), n_columns, -1)
    # Weights that are used together lie together, (·, four columns, feature, column): one pointer reads them all.
    fours = np.ascontiguousarray(rows.reshape(len(rows), -1, 4, n_features).swapaxes(2, 3))
    projected = aligned((len(keys), n_columns, keys.shape[2]), real)
    _project(writable(keys, real), fours, *_memory(n_features, real), projected)
    return projected.reshape(len(keys), n_heads, head_dim, keys.shape[2])


@kept_by_thread
def _memory(n_features: int, real: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    return aligned((n_features, _STRIDE), real), aligned((4, _STRIDE), real)


@kernel
def _project(keys, fours, tile, sums, projected):
    # projected[r, 4 b + k, i] = sum_j fours[r, b, j, k] * keys[r, j, i]
    n_replicates, n_columns, n_keys = projected.shape
    step = 3 * lanes_of(tile)
    for r in range(n_replicates):
        weights = fours[r if len(fours) > 1 else 0]
        for start in range(0, n_keys, _TILE):
            size = min(_TILE, n_keys - start)
            for j in range(keys.shape[1]):
                _copy(keys[r, j, start : start + size], tile[j])
            for c in range(0, n_columns, 4):
                for begin in range(0, size, step):
                    # The last step ends with the tile: what it finds again has the same bits.
                    i = max(min(begin, size - step), 0)
                    if size >= step and c + 4 <= n_columns:
                        _sum_products(tile, weights, c, i, projected, (r * n_columns + c) * n_keys + start + i, n_keys)
                    else:
                        _sum_products(tile, weights, c, i, sums, 0, _STRIDE)
                        first, last = start + i, start + min(i + step, size)
                        for k in range(min(4, n_columns - c)):
                            _copy(sums[k, : last - first], projected[r, c + k, first:last])


@inlined
def _copy(source, target):
    for i in range(source.size):
        target[i] = source[i]


@inlined
def _sum_products(tile, weights, c, i, sums, first, stride):
    # sums[first + k stride + i'] = sum_j weights[c / 4, j, k] * tile[j, i + i'] for four columns and three vectors of
    # keys: 12 sums share 7 reads for each feature.  Columns are a, b, c, d, and vectors 0, 1, 2: with what they need
    # they fill 16 registers, and a sum waits for its last addition less long than the others take.
    w, y = lanes_of(tile), c * tile.shape[0]
    a0 = a1 = a2 = b0 = b1 = b2 = c0 = c1 = c2 = d0 = d1 = d2 = spread(weights.dtype.type(0))
    for x in range(i, i + len(tile) * _STRIDE, _STRIDE):
        x0, x1, x2 = load(tile, x), load(tile, x + w), load(tile, x + 2 * w)
        e = repeat(weights, y)
        a0, a1, a2 = a0 + e * x0, a1 + e * x1, a2 + e * x2
        e = repeat(weights, y + 1)
        b0, b1, b2 = b0 + e * x0, b1 + e * x1, b2 + e * x2
        e = repeat(weights, y + 2)
        c0, c1, c2 = c0 + e * x0, c1 + e * x1, c2 + e * x2
        e = repeat(weights, y + 3)
        d0, d1, d2 = d0 + e * x0, d1 + e * x1, d2 + e * x2
        y += 4
    store_four(sums, first, stride, a0, b0, c0, d0)
    store_four(sums, first + w, stride, a1, b1, c1, d1)
    store_four(sums, first + 2 * w, stride, a2, b2, c2, d2)
