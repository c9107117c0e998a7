"""Projections of the keys of many replicates onto the subspaces of the heads, by the linear algebra of NumPy.

One product for each replicate: its bits depend on the library, which is part of the identity of what computes, and on
the number of its threads, which is one wherever batches are computed; not on the other replicates.
"""

from __future__ import annotations

import numpy as np

from simstudy.kernels.devices import on_cuda
from simstudy.kernels.jit import aligned


def project(keys: np.ndarray, projections: np.ndarray) -> np.ndarray:
    """Project the keys (R, d, n) by heads (H, d, p) or (R, H, d, p), to (R, H, p, n), in the precision of the keys."""
    if on_cuda():
        from simstudy.kernels import cuda

        return cuda.project(keys, projections)
    n_heads, n_features, head_dim = projections.shape[-3:]
    rows = np.ascontiguousarray(projections.swapaxes(-1, -2), keys.dtype).reshape(-1, n_heads * head_dim, n_features)
    projected = aligned((len(keys), n_heads, head_dim, keys.shape[2]), keys.dtype)
    np.matmul(rows, keys, out=projected.reshape(len(keys), n_heads * head_dim, keys.shape[2]))
    return projected
