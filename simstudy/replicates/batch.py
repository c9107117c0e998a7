"""From cells and a batch number to moments: the one composition of data, heads and kernels.

Pure: no I/O, no scheduler, no clock, so that every executor submits this very function.
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
"""Largest array held at once; bounds a worker's memory whatever the size of a batch."""
CACHE_BYTES = 2 << 20
"""Small replicates are held together up to this size: calls from Python would outweigh them, and 8 times as many would
leave the cache, which costs a fifth of the time."""
GPU_PIECE_BYTES = 256 << 20
"""Takes the place of both for heads on a GPU, where each piece costs some calls of a millisecond in all."""
NUMERICAL_FAILURES = (np.linalg.LinAlgError, ArithmeticError)
"""Errors of a replicate that count as its failure; anything else is a defect of the program and stops it."""


def shares_data(cell: Cell, device: str = "cpu") -> tuple[Any, ...]:
    """Identity that two cells share if one drawing serves both: all but n_keys, and pieces, for the rounding."""
    simulation, limits = cell.simulation, _limits(cell, device)
    sizes = cell.data.n_features, simulation.batch_size, simulation.dtype, *limits, _piece_length(cell, limits[1])
    # Data hold what heads make of the keys: cells of one task have the same heads by the same name.
    return cell.data_id, *sizes, cell.population


def _limits(cell: Cell, device: str) -> tuple[int, int]:
    """Return the largest sizes of arrays, in bytes, of whole blocks and of replicates of one block."""
    estimator = cell.estimator
    heads = cell.functions is None and isinstance(estimator.learner, NadarayaWatsonLearner)
    # All else is computed by the host, whatever draws the data.
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
    """Replicates of one block that are held at once, within a size in bytes."""
    return min(max(1, cell.simulation.batch_size // N_BLOCKS), max(1, size // replicate_bytes(cell)))


def draws_at_once(cell: Cell, device: str) -> int:
    """Draws of a population that are computed together, where each takes less than the calls from Python; else 1."""
    estimator, heads, size = cell.estimator, cell.heads, cell.simulation.batch_size
    alone = device == "cuda" or cell.controlled or heads.redrawn or cell.own or cell.file_rows
    chosen = estimator.plain, estimator.learner.kind, estimator.reference, estimator.combination.kind == "fitted"
    if alone or "queries" not in cell.population or chosen != (True, "nadaraya_watson", "none", False):
        return 1
    of_head = heads.head_dim * (cell.data.n_features + size * cell.n_queries)
    return max(1, CACHE_BYTES // (size * replicate_bytes(cell) + 8 * heads.n_heads * of_head))


def simulate_batch(cells: Sequence[Cell], batch: int, device: str = "cpu", count: int = 1) -> list[Moments]:
    """Return the moments of one batch, or so many draws, for each of some cells with equal `shares_data`."""
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
    together_bytes, alone_bytes = _limits(cell, device)
    together = max(1, together_bytes // (replicate_bytes(cell) * per_block))
    length = together * per_block if together > 1 else _piece_length(cell, alone_bytes)
    for block in range(0, n_blocks, together):
        blocks = range(block, min(block + together, n_blocks))
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
    """Add replicates; if one of them raises, each by itself, so that only that one is counted as failed."""
    try:
        members = members_of(cell, shared)
        statistics = replicate_statistics(members, moments.target, cell.statistics)
    except NUMERICAL_FAILURES:
        if shared.count == 1:
            return moments._replace(failed=np.append(moments.failed, shared.first))
        inside = [blocks] * shared.count if len(blocks) == 1 else [range(block, block + 1) for block in blocks]
        for part, own in zip(shared.split(len(inside)), inside, strict=True):
            moments = _add(cell, moments, part, own)
        return moments
    return update(moments, blocks, shared.first, members, statistics)


def update(moments: Moments, blocks: range, first: int, members: Members, statistics: Array) -> Moments:
    """Add consecutive replicates to consecutive blocks, to each the same number, changing ``moments`` in place."""
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
