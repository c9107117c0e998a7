"""Random numbers by address on a GPU: one thread for each counter."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from simstudy.kernels.jit import cuda_compiler, cuda_function, cuda_kernel
from simstudy.kernels.philox import HALF_WORD, MASK, philox

cuda = cuda_compiler()
_THREADS = 128
_ROLE_SHIFT = np.uint64(24)


def fill(
    transform: Any, out: np.ndarray, k0: np.uint64, k1: np.uint64, role: np.uint64, first: np.uint64
) -> np.ndarray:
    """Fill an array (replicate, column, row) with what ``transform`` makes of pairs of words; see `data.addresses`."""
    n_replicates, n_columns, n_rows = out.shape
    n_counters = n_replicates * -(-n_columns // 4) * n_rows
    target = cuda.device_array(out.shape, out.dtype)
    if n_counters:
        _filler(transform)[-(-n_counters // _THREADS), _THREADS](target, k0, k1, role, first)
    return target.copy_to_host(out)


@functools.cache
def _filler(transform: Any) -> Any:
    words, pair = cuda_function(philox), cuda_function(transform)

    @cuda_kernel
    def fill_counter(out, k0, k1, role, first):
        # r: replicate; b: block of four columns; i: row; j: column within the block
        n_replicates, n_columns, n_rows = out.shape
        n_blocks = (n_columns + 3) // 4
        at = cuda.grid(1)
        if at < n_replicates * n_blocks * n_rows:
            i, b, r = at % n_rows, at // n_rows % n_blocks, at // (n_rows * n_blocks)
            replicate = first + np.uint64(r)
            c3 = (role << _ROLE_SHIFT) | (replicate >> HALF_WORD)
            w0, w1, w2, w3 = words(np.uint64(b), np.uint64(i), replicate & MASK, c3, k0, k1)
            x0, x1 = pair(w0, w1)
            x2, x3 = pair(w2, w3)
            for j in range(min(4, n_columns - 4 * b)):
                out[r, 4 * b + j, i] = (x0 if j == 0 else x1) if j < 2 else (x2 if j == 2 else x3)

    return fill_counter
