"""Moments of one batch of cells, composed of data, heads and kernels.

Functions have no input, output or clock, so that every executor can call `simulate_batch`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simstudy.attention import Members, members_of, replicate_statistics
from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.data.regression import at_queries
from simstudy.data.shared import SharedData
from simstudy.data.span import n_coordinates
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.design.settings.choices import NadarayaWatsonLearner
from simstudy.kernels.devices import computing_on
from simstudy.kernels.errors import add_errors, sum_blocks
from simstudy.replicates.moments import Array, Moments, empty

PIECE_BYTES = 16 << 20
"""Largest array, so that the memory of a worker does not depend on the size of a batch."""
CACHE_BYTES = 2 << 20
"""Largest array of several blocks of small replicates.  Less would be dominated by calls from Python; 8 times as much
would exceed the cache and take a fifth more time."""
GPU_PIECE_BYTES = 256 << 20
"""Both limits for heads on a GPU, where the calls of each piece take a millisecond."""
NUMERICAL_FAILURES = (np.linalg.LinAlgError, ArithmeticError)
"""Exceptions that count as failure of a replicate; others are defects of the program and stop it."""


def shares_data(cell: Cell, device: str = "cpu") -> tuple[Any, ...]:
    """Return a key that is equal for cells that can share data: all but n_keys, and pieces, which affect rounding."""
    simulation, limits = cell.simulation, _limits(cell, device)
    sizes = cell.data.n_features, simulation.batch_size, simulation.dtype, *limits, _piece_length(cell, limits[1])
    # Shared data contain projected keys, so that cells of a task have the same heads for a seed.
    return cell.data_id, *sizes, cell.population


def _limits(cell: Cell, device: str) -> tuple[int, int]:
    """Return the largest sizes of arrays, in bytes, for whole blocks and for replicates of one block."""
    estimator = cell.estimator
    heads = cell.functions is None and isinstance(estimator.learner, NadarayaWatsonLearner)
    # Other members are computed on the host, wherever data are drawn.
    if device == "cuda" and heads and estimator.normaliser.kind == "softmax" and estimator.mask.kind == "none":
        return GPU_PIECE_BYTES, GPU_PIECE_BYTES
    return CACHE_BYTES, PIECE_BYTES


def replicate_bytes(cell: Cell) -> int:
    """Return the size of the largest array of one replicate."""
    n_heads, drawn, itemsize = cell.heads.n_heads, n_coordinates(cell), np.dtype(cell.simulation.dtype).itemsize
    columns = n_heads * (cell.heads.head_dim if drawn is None else cell.n_queries)
    keys = cell.data.n_keys * max(drawn or cell.data.n_features, columns) * itemsize
    return max(keys, cell.n_queries * n_heads**2 * np.dtype(np.float64).itemsize)


def _piece_length(cell: Cell, size: int) -> int:
    """Return the number of replicates of one block that are computed together, within a size in bytes."""
    return min(max(1, cell.simulation.batch_size // N_BLOCKS), max(1, size // replicate_bytes(cell)))


def draws_at_once(cell: Cell, device: str) -> int:
    """Return the number of draws of a population to compute together, if calls from Python would dominate; else 1."""
    estimator, heads, size = cell.estimator, cell.heads, cell.simulation.batch_size
    alone = device == "cuda" or cell.controlled or heads.redrawn or cell.own or cell.file_rows
    chosen = estimator.plain, estimator.learner.kind, estimator.reference, estimator.combination.kind == "fitted"
    if alone or "queries" not in cell.population or chosen != (True, "nadaraya_watson", "none", False):
        return 1
    of_head = heads.head_dim * (cell.data.n_features + size * cell.n_queries)
    return max(1, CACHE_BYTES // (size * replicate_bytes(cell) + 8 * heads.n_heads * of_head))


def simulate_batch(cells: Sequence[Cell], batch: int, device: str = "cpu", count: int = 1) -> list[Moments]:
    """Return the moments of a batch, or of ``count`` draws, for each of several cells with equal `shares_data`."""
    drawn = [cell.in_batch(batch, count) for cell in cells]
    largest = max(drawn, key=lambda cell: cell.data.n_keys)
    with computing_on(device):
        found = [no_moments(cell) for cell in drawn]
        for blocks, first, length in pieces(largest, batch, device):
            shared = SharedData(largest, first, length)
            found = [_add(cell, moments, shared, blocks) for cell, moments in zip(drawn, found, strict=True)]
    return found


def pieces(cell: Cell, batch: int, device: str) -> Iterator[tuple[range, int, int]]:
    """Yield (blocks, first replicate, number of replicates): whole blocks, or consecutive replicates of one."""
    size, per_block = cell.simulation.batch_size, max(1, cell.simulation.batch_size // N_BLOCKS)
    n_blocks = size // per_block * cell.geometry[1]  # the last blocks of a short batch are empty
    blocks_bytes, piece_bytes = _limits(cell, device)
    n_joint = max(1, blocks_bytes // (replicate_bytes(cell) * per_block))
    length = n_joint * per_block if n_joint > 1 else _piece_length(cell, piece_bytes)
    for block in range(0, n_blocks, n_joint):
        blocks = range(block, min(block + n_joint, n_blocks))
        stop = blocks.stop * per_block
        for first in range(block * per_block, stop, length):
            yield blocks, batch * size + first, min(length, stop - first)


def no_moments(cell: Cell) -> Moments:
    """Return the moments of a cell before its first replicate."""
    n_statistics = len(GEOMETRIC_INDICES) + len(cell.statistics)
    target = at_queries(cell)[..., : cell.n_queries]
    n_blocks = N_BLOCKS if target.ndim == 1 else len(target) * min(N_BLOCKS, cell.simulation.batch_size)
    return empty(n_blocks, target, cell.n_members, n_statistics, controlled=cell.controlled)


def _add(cell: Cell, moments: Moments, shared: SharedData, blocks: range) -> Moments:
    """Return moments with further replicates; if one raises, they are added singly, and only that one has failed."""
    try:
        members = members_of(cell, shared)
        statistics = replicate_statistics(members, moments.target, cell.statistics)
    except NUMERICAL_FAILURES:
        if shared.count == 1:
            return moments._replace(failed=np.append(moments.failed, shared.first))
        inside = [blocks] * shared.count if len(blocks) == 1 else [range(block, block + 1) for block in blocks]
        for part, of_part in zip(shared.split(len(inside)), inside, strict=True):
            moments = _add(cell, moments, part, of_part)
        return moments
    return update(moments, blocks, shared.first, members, statistics)


def update(moments: Moments, blocks: range, first: int, members: Members, statistics: Array) -> Moments:
    """Return moments with consecutive replicates added, equally many to each block; changes ``moments`` in place."""
    n_defined, errors, products, of_statistics, of_control = (each[blocks.start : blocks.stop] for each in moments[:5])
    defined = add_errors(members.means, moments.target, members.gram, errors, products)
    defined = defined if members.failed is None else defined & ~members.failed
    if not defined.all():
        moments = moments._replace(failed=np.concatenate([moments.failed, first + np.flatnonzero(~defined)]))
        statistics = np.where(defined[:, None], statistics, 0.0)
    if of_control.size and members.control is not None:
        of_control += sum_blocks(members.control, defined, len(blocks))
    n_defined += defined.reshape(len(blocks), -1).sum(axis=1)
    of_statistics += statistics.reshape(len(blocks), -1, statistics.shape[1]).sum(axis=1)
    return moments
