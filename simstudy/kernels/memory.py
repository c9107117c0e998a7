"""Arrays that kernels of heads write to: they may not allocate; and what becomes of freed memory."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

import numpy as np

from simstudy.kernels.jit import aligned, kept_by_thread
from simstudy.kernels.lanes import ROW
from simstudy.kernels.tiles import STRIDE
from simstudy.kernels.vectors import lanes


class Memory(NamedTuple):
    """Memory for all heads."""

    laid: np.ndarray  # (head, 2 + dimension, tile) keys of a tile, below their offsets: see `tiles.lay_keys`
    rows: np.ndarray  # (head, tile) weights at one query
    # (5, tile) values, scales of the noise; of compact kernels zeros, and two rows of sums of squares of earlier
    # dimensions
    data: np.ndarray
    centres: np.ndarray  # (head, dimension) and, below, what `shifts.aim` says of each query
    slopes: np.ndarray  # (head, dimension, query)
    limits: np.ndarray  # (head, 2, query)
    near: np.ndarray  # (head, query)
    nearest: np.ndarray  # (head, query) lowest score, where the careful formula serves
    sums: np.ndarray  # (query, head, 2) sum of weights, weighted sum of values
    products: np.ndarray  # (query, head, head) sums of products of weights
    # For vectors of queries.
    strips: np.ndarray  # (head, lanes of each key of a strip) exponents and weights
    lane_sums: np.ndarray  # (vector of queries, head, 2, lane) float64
    lane_products: np.ndarray  # (block, 16, lane): see `lanes.add_lane_products`
    totals: np.ndarray  # (vector of queries, block, 16, lane) their sums over tiles, float64


def memory_for(keys: np.ndarray, queries: np.ndarray) -> Memory:
    """Memory for the heads of keys (r, h, k, i) at queries (r or 1, h, k, q)."""
    return _memory(*keys.shape[1:3], queries.shape[3], keys.dtype)


@kept_by_thread
def _memory(n_heads: int, head_dim: int, n_queries: int, real: np.dtype) -> Memory:
    # Loops take dimensions and rows of weights by fours.
    whole_dim, fours, width = -(-head_dim // 4) * 4, -(-n_heads // 4), lanes(real.itemsize)
    n_vectors, n_blocks = -(-n_queries // width), fours * (fours + 1) // 2
    return Memory(
        laid=_zeros((n_heads, 2 + whole_dim, STRIDE), real),
        rows=_zeros((4 * fours, STRIDE), real),
        data=_zeros((5, STRIDE), real),
        centres=np.zeros((n_heads, head_dim), real),
        slopes=_zeros((n_heads, whole_dim, n_vectors * width), real),
        limits=_zeros((n_heads, 2, n_vectors * width), real),
        near=np.empty((n_heads, n_queries), np.bool_),
        nearest=np.empty((n_heads, n_queries), real),
        sums=np.empty((n_queries, n_heads, 2)),
        products=np.empty((n_queries, 4 * fours, 4 * fours)),
        strips=_zeros((4 * fours, ROW * width), real),
        lane_sums=np.zeros((n_vectors, n_heads, 2, width)),
        lane_products=_zeros((n_blocks, 16, width), real),
        totals=np.zeros((n_vectors, n_blocks, 16, width)),
    )


def _zeros(shape: tuple[int, ...], real: np.dtype) -> np.ndarray:
    array = aligned(shape, real)
    array[:] = 0
    return array


# Of `mallopt` of the GNU C library, which takes no larger one for mapping.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = (-1, 64 << 20), (-3, 32 << 20)


def _keep_freed_memory() -> None:
    # By itself the allocator gives the arrays of a piece of a batch back to the system, and gets them again page by
    # page, cleared, for the next piece: up to a third of the time, depending on what else the process has freed.
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(library, "mallopt"):
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(*option)


_keep_freed_memory()
