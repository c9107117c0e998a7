"""Work arrays for kernels of heads, which do not allocate memory; and settings that keep freed memory."""

import ctypes
import sys
from typing import NamedTuple

import numpy as np

from simstudy.kernels.jit import aligned, kept_by_thread
from simstudy.kernels.lanes import ROW
from simstudy.kernels.tiles import STRIDE
from simstudy.kernels.vectors import lanes


class Memory(NamedTuple):
    """Work arrays for all heads."""

    laid: np.ndarray  # (head, 2 + dimension, tile) offsets and keys of a tile: see `tiles.lay_keys`
    rows: np.ndarray  # (head, tile) weights at one query
    # (5, tile) values, scales of the noise; for compact kernels also zeros and two rows of sums of squares over
    # dimensions
    data: np.ndarray
    centres: np.ndarray  # (head, dimension); this and the next three are set by `shifts.set_shifts`
    slopes: np.ndarray  # (head, dimension, query); the queries, for vectors that are not near
    limits: np.ndarray  # (head, 2, query)
    near: np.ndarray  # (head, query)
    nearest: np.ndarray  # (head, query) largest closeness so far, if the shift is not known beforehand
    sums: np.ndarray  # (query, head, 2) sum of weights, weighted sum of values
    products: np.ndarray  # (query, head, head) sums of products of weights
    # For vectors of queries.
    raw: np.ndarray  # as laid, with keys that are not centred and NaN without payloads
    references: np.ndarray  # (vector of queries, head, lane) closeness to which weights are relative
    closest: np.ndarray  # (lane) largest closeness of a strip
    strips: np.ndarray  # (head, key of a strip and lane) exponents, then weights
    lane_sums: np.ndarray  # (vector of queries, head, 2, lane) float64
    lane_products: np.ndarray  # (block, 16, lane): see `lanes.add_lane_products`
    totals: np.ndarray  # (vector of queries, block, 16, lane) their sums over tiles, float64


@kept_by_thread
def memory_for(n_heads: int, head_dim: int, n_queries: int, real: np.dtype) -> Memory:
    """Return work arrays for heads with keys of a type."""
    # Loops process dimensions and rows of weights by fours; rows of slopes are not a power of 2 apart.
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


# By default, the allocator of Linux returns the arrays of each part of a batch to the system, and gets cleared pages
# for the next part.  Batches of 256 to 2048 replicates then took 1.2 to 1.8 times as long.
if sys.platform == "linux" and hasattr(_library := ctypes.CDLL(None), "mallopt"):
    for _option in ((-1, 64 << 20), (-3, 32 << 20)):  # thresholds of trimming and of mapping
        _library.mallopt(*_option)
