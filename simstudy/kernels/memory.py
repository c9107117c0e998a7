"""Arrays that kernels of heads write to: they may not allocate; and freed memory, which stays."""

import ctypes
import sys
from typing import NamedTuple

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
    centres: np.ndarray  # (head, dimension) and, below, what `shifts.set_shifts` says of each query
    slopes: np.ndarray  # (head, dimension, query); queries themselves, for vectors that are not near
    limits: np.ndarray  # (head, 2, query)
    near: np.ndarray  # (head, query)
    nearest: np.ndarray  # (head, query) largest closeness so far, where the shift is not known beforehand
    sums: np.ndarray  # (query, head, 2) sum of weights, weighted sum of values
    products: np.ndarray  # (query, head, head) sums of products of weights
    # For vectors of queries.
    raw: np.ndarray  # as laid, of keys as they are, but for payloads of NaN
    references: np.ndarray  # (vector of queries, head, lane) closeness that weights are relative to
    closest: np.ndarray  # (lane) largest closeness of a strip
    strips: np.ndarray  # (head, lanes of each key of a strip) exponents and weights
    lane_sums: np.ndarray  # (vector of queries, head, 2, lane) float64
    lane_products: np.ndarray  # (block, 16, lane): see `lanes.add_lane_products`
    totals: np.ndarray  # (vector of queries, block, 16, lane) their sums over tiles, float64


@kept_by_thread
def memory_for(n_heads: int, head_dim: int, n_queries: int, real: np.dtype) -> Memory:
    """Memory for heads of keys of a type."""
    # Loops take dimensions and rows of weights by fours; slopes of dimensions are not a power of 2 apart.
    whole_dim, fours, width = -(-head_dim // 4) * 4, -(-n_heads // 4), lanes(real.itemsize)
    n_vectors, n_blocks = -(-n_queries // width), fours * (fours + 1) // 2
    return Memory(
        laid=aligned((n_heads, 2 + whole_dim, STRIDE), real, np.zeros),
        rows=aligned((4 * fours, STRIDE), real, np.zeros),
        data=aligned((5, STRIDE), real, np.zeros),
        centres=np.zeros((n_heads, head_dim), real),
        slopes=aligned((n_heads, whole_dim, (n_vectors + 1) * width), real, np.zeros),
        limits=aligned((n_heads, 2, n_vectors * width), real, np.zeros),
        near=np.empty((n_heads, n_queries), np.bool_),
        nearest=np.empty((n_heads, n_queries), real),
        sums=np.empty((n_queries, n_heads, 2)),
        products=np.empty((n_queries, 4 * fours, 4 * fours)),
        raw=aligned((n_heads, 2 + whole_dim, STRIDE), real, np.zeros),
        references=aligned((n_vectors, n_heads, width), real, np.zeros),
        closest=aligned((width,), real, np.zeros),
        strips=aligned((4 * fours, ROW * width), real, np.zeros),
        lane_sums=np.zeros((n_vectors, n_heads, 2, width)),
        lane_products=aligned((n_blocks, 16, width), real, np.zeros),
        totals=np.zeros((n_vectors, n_blocks, 16, width)),
    )


# By itself the allocator of Linux gives the arrays of a piece of a batch back to the system, and gets them again page
# by page, cleared, for the next piece: batches of 256 to 2048 replicates took 1.2 to 1.8 times as long.
if sys.platform == "linux" and hasattr(_library := ctypes.CDLL(None), "mallopt"):
    for _option in ((-1, 64 << 20), (-3, 32 << 20)):  # thresholds of trimming and of mapping
        _library.mallopt(*_option)
