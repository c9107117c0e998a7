"""Causal hierarchies of resolutions: every level halves the one before, and scores of all levels are mixed.

After arXiv 2604.08829.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.transformations import chunk_means

Array = NDArray[np.float64]

# Index legend: i and j position, l level, k dimension.


def downsampled(x: Array, level: int, causal: bool) -> Array:
    """Rows of x (i, k) at a level: means of 2^l consecutive rows, ⌈n/2^l⌉ of them.

    If ``causal``, row j holds the positions up to 2^l·j and the first position in place of those before it, so that
    positions from 2^l·j on may look at it; else it holds the chunk that begins at 2^l·j.
    """
    length = 2**level
    if not causal:
        return chunk_means(x.T, length).T
    count = -(-len(x) // length)
    padded = np.concatenate([np.repeat(x[:1], length - 1, axis=0), x])[: count * length]
    return padded.reshape(count, length, -1).sum(axis=1) / length


def mixed_scores(queries: Array, keys: Array, weights: Array, causal: bool) -> Array:
    """Σ_l c_l S_l(⌊i/2^l⌋, ⌊j/2^l⌋), S_l the products of queries and keys (i, k) at level l.

    From the coarsest level to the finest, so that a level is mixed at its own size.
    """
    mixed: Array = np.zeros((1, 1))
    for level in reversed(range(len(weights))):
        left, right = (downsampled(x, level, causal) if level else x for x in (queries, keys))
        finer = np.repeat(np.repeat(mixed, 2, axis=0), 2, axis=1)[: len(left), : len(right)]
        mixed = weights[level] * (left @ right.T) + (finer if level < len(weights) - 1 else 0.0)
    return mixed
