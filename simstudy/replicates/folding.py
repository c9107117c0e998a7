"""Batches folded as they are read: of many batches some thirty thousand blocks are left, the later ones the longer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings.cell import N_BLOCKS
from simstudy.replicates.moments import Moments, stack

FINE_BATCHES = 256
"""Batches of a cell whose blocks are never folded: some thousands of blocks know an error to a percent."""


def fold(batches: list[Moments], first: int = 0) -> Moments:
    """Return the blocks of consecutive batches, of which ``first`` begins one, as `block_starts` says."""
    blocks = stack(batches)
    start = first * N_BLOCKS
    starts = block_starts(start + len(blocks.n_defined))
    places = starts[np.searchsorted(starts, start) :] - start
    sums = (np.add.reduceat(each, places) for each in blocks[:5])
    # A copy: a view would keep the whole array in memory.
    return Moments._make([*sums, blocks.target.copy(), blocks.failed])


def block_starts(n_blocks: int) -> NDArray[np.int64]:
    """Return where folded blocks begin: after `FINE_BATCHES` 16 are one, from 16 times as many on 256, and so forth."""
    begin, length = FINE_BATCHES * N_BLOCKS, N_BLOCKS
    found = [np.arange(min(n_blocks, begin))]
    while begin < n_blocks:
        found.append(np.arange(begin, min(n_blocks, begin * N_BLOCKS), length))
        begin, length = begin * N_BLOCKS, length * N_BLOCKS
    return np.concatenate(found)


def block_lengths(n_batches: int) -> NDArray[np.int64]:
    """Return of how many blocks of batches each block is that so many batches are folded to."""
    return np.diff(block_starts(n_batches * N_BLOCKS), append=n_batches * N_BLOCKS)


def whole_blocks(n_batches: int) -> int:
    """Return with how many of so many batches a block ends to which no further batch belongs."""
    return int(block_starts(n_batches * N_BLOCKS + 1)[-1]) // N_BLOCKS
