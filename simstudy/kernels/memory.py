"""Arrays that kernels of heads write to: they may not allocate.

Imports NumPy, jit and vectors, and lanes and tiles beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simstudy.jit import aligned
from simstudy.kernels.lanes import STRIP
from simstudy.kernels.tiles import STRIDE
from simstudy.vectors import lanes

BUSY_LANES = 0.9
"""Share of lanes with a query from which on vectors of queries are faster than vectors of keys."""


class Memory(NamedTuple):
    """Memory for a number of heads at a time."""

    laid: np.ndarray  # (head, 2 + dimension, tile) keys of a tile, below their offsets: see `tiles.lay_keys`
    rows: np.ndarray  # (head, tile) weights at one query
    data: np.ndarray  # (2, tile) values, scales of the noise
    centres: np.ndarray  # (head, dimension) and, below, what `shifts.aim` says of each query
    slopes: np.ndarray  # (head, dimension, query)
    limits: np.ndarray  # (head, 2, query)
    near: np.ndarray  # (head, query)
    nearest: np.ndarray  # (head, query) lowest score, where the careful formula serves
    sums: np.ndarray  # (query, head, 2) sum of weights, weighted sum of values
    products: np.ndarray  # (query, head, head) sums of products of weights
    strips: np.ndarray  # (head, lanes of each key of a strip), empty if vectors hold keys; lanes hold queries
    lane_sums: np.ndarray  # (head, 2, lane)
    lane_products: np.ndarray  # (block, 16, lane): see `lanes.add_lane_products`


def memory_for(keys: np.ndarray, queries: np.ndarray, n_heads: int) -> Memory:
    """Memory for ``n_heads`` heads at a time; loops take dimensions and rows of weights by fours."""
    head_dim, n_queries, real = keys.shape[2], queries.shape[3], keys.dtype
    whole_dim, whole_heads = -(-head_dim // 4) * 4, -(-n_heads // 4) * 4
    width = lanes(real.itemsize)
    whole_queries = -(-n_queries // width) * width
    width = width if n_queries >= BUSY_LANES * whole_queries else 0
    n_blocks = whole_heads // 4 * (whole_heads // 4 + 1) // 2
    return Memory(
        laid=_tiles((n_heads, 2 + whole_dim), real),
        rows=_tiles((whole_heads,), real),
        data=_tiles((2,), real),
        centres=np.zeros((n_heads, head_dim), real),
        slopes=_zeros((n_heads, whole_dim, whole_queries), real),
        limits=_zeros((n_heads, 2, whole_queries), real),
        near=np.empty((n_heads, n_queries), np.bool_),
        nearest=np.empty((n_heads, n_queries), real),
        sums=np.empty((n_queries, n_heads, 2)),
        products=np.empty((n_queries, whole_heads, whole_heads)),
        strips=_zeros((whole_heads, (STRIP + 1) * width), real),
        lane_sums=_zeros((n_heads, 2, width), real),
        lane_products=_zeros((n_blocks, 16, width), real),
    )


def _tiles(shape: tuple[int, ...], real: np.dtype) -> np.ndarray:
    return _zeros((*shape, STRIDE), real)


def _zeros(shape: tuple[int, ...], real: np.dtype) -> np.ndarray:
    array = aligned(shape, real)
    array[:] = 0
    return array
