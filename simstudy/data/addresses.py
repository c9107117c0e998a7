"""Random numbers by address: each is a pure function of (stream, role, replicate, row, column).

The generator is that of `kernels.philox`.  Its 64-bit key comes from the stream's name; its four counter words are

    column // 4  |  row  |  replicate mod 2^32  |  role * 2^24 + replicate // 2^32

and its four output words serve the columns 4c .. 4c+3 of that row, by the word pairs (0, 1) and (2, 3).
"""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from simstudy.kernels.jit import aligned, kept_by_thread, kernel
from simstudy.kernels.philox import HALF_WORD, MASK, box_muller, box_muller_float32, philox, uniform_pair


class Role(IntEnum):
    """Use of a random number: part of its address, so that values must never change."""

    KEYS = 0
    KEY_LATENT = 1
    NOISE = 2
    PROJECTIONS = 3
    QUERY_PROJECTIONS = 4
    QUERIES = 5
    LEARNER = 6
    INSTANCE = 7
    OUTER_BOOTSTRAP = 8
    VALUE_PROJECTIONS = 9
    OUTPUT_PROJECTIONS = 10


# Rows are computed in whole tiles, of the last of which only a part may be copied.  So each row is computed by the same
# instructions, and its bits do not depend on the number of rows.
_TILE = 128
_BLOCK = 8 * _TILE  # most rows whose words are computed at once


@kernel
def _fill_words(words, half, block, start, c2, c3, k0, k1):
    # Two rows at once, as their products are independent.
    for i in range(half):
        row = start + np.uint64(i)
        a, b = philox(block, row, c2, c3, k0, k1), philox(block, row + np.uint64(half), c2, c3, k0, k1)
        words[0, i], words[1, i], words[2, i], words[3, i] = a
        words[0, i + half], words[1, i + half], words[2, i + half], words[3, i + half] = b


def _filler(transform):
    """Return the kernel that fills an array with the numbers that ``transform`` makes of pairs of words."""

    @kernel
    def fill_whole(words, others, x, y):
        for i in range(words.size):
            x[i], y[i] = transform(np.uint64(words[i]), np.uint64(others[i]))

    @kernel
    def fill_pair(words, others, x, y, tile):
        whole = x.size // _TILE * _TILE
        fill_whole(words[:whole], others[:whole], x[:whole], y[:whole])
        if whole < x.size:
            fill_whole(words[whole : whole + _TILE], others[whole : whole + _TILE], tile[0], tile[1])
            for i in range(x.size - whole):
                x[whole + i], y[whole + i] = tile[0, i], tile[1, i]

    @kernel
    def fill(out, k0, k1, role, first, words, tile, spare):
        # r: replicate; b: block of four columns; i: row; j: column
        n_replicates, n_columns, n_rows = out.shape
        for r in range(n_replicates):
            replicate = first + np.uint64(r)
            c2 = replicate & MASK
            c3 = (role << np.uint64(24)) | (replicate >> HALF_WORD)
            for b in range((n_columns + 3) // 4):
                for start in range(0, n_rows, _BLOCK):
                    stop = min(start + _BLOCK, n_rows)
                    half = (stop - start + _TILE - 1) // _TILE * (_TILE // 2)
                    _fill_words(words, half, np.uint64(b), np.uint64(start), c2, c3, k0, k1)
                    for j in range(4 * b, min(4 * b + 4, n_columns), 2):
                        x, y = out[r, j, start:stop], spare[: stop - start]
                        if j + 1 < n_columns:
                            y = out[r, j + 1, start:stop]
                        fill_pair(words[j - 4 * b], words[j - 4 * b + 1], x, y, tile)

    return fill


_FILLERS = {transform: _filler(transform) for transform in (box_muller, box_muller_float32, uniform_pair)}
_NORMALS = {np.dtype(np.float64): box_muller, np.dtype(np.float32): box_muller_float32}


class Drawn(NamedTuple):
    """Random numbers (replicate, column, row) by address, which a GPU draws where they are needed."""

    transform: Any
    address: tuple[np.uint64, ...]
    shape: tuple[int, ...]
    dtype: np.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        out = aligned(self.shape, self.dtype)
        _FILLERS[self.transform](out, *self.address, *_memory(out.dtype))
        return out


def draw(stream: str, role: Role, first: int, count: int, n_rows: int, n_columns: int, real: str = "float64") -> Drawn:
    """Return standard normals; with fewer rows or columns, a prefix of the same numbers.  ValueError beyond 2^56."""
    if not 0 <= first <= 2**56 - count:
        raise ValueError(f"replicates {first} + {count} reach beyond [0, 2**56)")
    key = int(stream[:16], 16)
    address = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32), np.uint64(role), np.uint64(first)
    return Drawn(_NORMALS[np.dtype(real)], address, (count, n_columns, n_rows), np.dtype(real))


def normals(*address: Any) -> np.ndarray:
    """Return the numbers of `draw` as an array."""
    return np.asarray(draw(*address))


def uniforms(*address: Any) -> np.ndarray:
    """Return float64 uniforms in (0, 1) of the same words as :func:`normals` with this address."""
    return np.asarray(draw(*address)._replace(transform=uniform_pair))


_memory = kept_by_thread(lambda real: (aligned((4, _BLOCK), "u4"), aligned((2, _TILE), real), aligned((_BLOCK,), real)))
