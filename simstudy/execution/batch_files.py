"""A batch as a record of fixed size, and what makes such bytes a batch: nothing in them is believed unchecked.

Its digest, which lies beside it, shows damage, not forgery: whoever forges numbers also seals them, and only computing
them again, by `execution.verify`, tells.  Beside the batches of a cell stands its statement: the settings and the
engine of which the name of the cell is a digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.design.feasibility import impossibilities
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.design.settings.records import Record
from simstudy.replicates.moments import Moments

LARGEST_SUM = 1e100
"""Bound on sums of errors and of their products: beyond what a design allows, and its square does not overflow."""
DIGEST_LENGTH = 64


class Statement(Record):
    """What a cell is, and what computed its batches."""

    engine: str
    cell: Cell

    @classmethod
    def parse(cls, content: bytes, identity: str) -> Statement:
        """Return the statement of the cell with this name; ValueError if it is damaged, another's or impossible."""
        stated = cls.model_validate_json(content)
        if stated.cell.identity(stated.engine) != identity or impossibilities(stated.cell):
            raise ValueError("states another cell, or an impossible one")
        return stated


class Shape(NamedTuple):
    """What the settings of a cell say of the size of its batches."""

    n_queries: int
    n_members: int
    n_statistics: int
    batch_size: int
    controlled: bool = False

    @classmethod
    def of(cls, cell: Cell) -> Shape:
        """Return the shape of the batches of a cell."""
        n_statistics = len(GEOMETRIC_INDICES) + len(cell.statistics)
        return cls(cell.n_queries, cell.n_members, n_statistics, cell.simulation.batch_size, cell.controlled)

    @property
    def record(self) -> np.dtype:
        """Type of the record of a batch: the fields of `Moments`, of which ``failed`` is a bit for each replicate."""
        return _record(self)


@lru_cache
def _record(shape: Shape) -> np.dtype:
    n_pairs = shape.n_members * (shape.n_members + 1) // 2
    return np.dtype([
        ("n_defined", "<i8", (N_BLOCKS,)),
        ("error_sum", "<f8", (N_BLOCKS, shape.n_queries, shape.n_members)),
        ("product_sum", "<f8", (N_BLOCKS, shape.n_queries, n_pairs)),
        ("statistic_sum", "<f8", (N_BLOCKS, shape.n_statistics)),
        ("control_sum", "<f8", (N_BLOCKS, shape.n_queries, (shape.n_members + n_pairs) * shape.controlled)),
        ("target", "<f8", (shape.n_queries,)),
        ("failed", "u1", (-(-shape.batch_size // 64) * 8,)),  # so that all numbers of the next record are aligned
    ])  # fmt: skip


def pack(batch: int, moments: Moments, shape: Shape) -> bytes:
    """Return the record of a batch."""
    record = np.zeros((), shape.record)
    for name, field in zip(Moments._fields[:-1], moments[:-1], strict=True):
        record[name] = field
    failed = np.zeros(8 * record["failed"].size, bool)
    failed[moments.failed - batch * shape.batch_size] = True
    record["failed"] = np.packbits(failed)
    return record.tobytes()


def unpack(records: np.ndarray, batches: Sequence[int], shape: Shape) -> dict[int, Moments]:
    """Return the moments in records by batch, without those whose counts or sums no batch of this shape can have."""
    failed = np.unpackbits(records["failed"], axis=1, count=shape.batch_size)
    per_block = shape.batch_size // N_BLOCKS
    n_failed = failed.reshape(-1, N_BLOCKS, per_block).sum(axis=2, dtype=np.int64)
    sound = (records["n_defined"] + n_failed == per_block).all(axis=1)
    for name in ("error_sum", "product_sum", "control_sum", "target"):
        sums = np.abs(records[name])
        sound &= (sums <= LARGEST_SUM).all(axis=tuple(range(1, sums.ndim)))
    fields = [records[name] for name in Moments._fields[:-1]]
    none, some = np.zeros(0, np.int64), n_failed.any(axis=1)
    own = (batch * shape.batch_size + np.flatnonzero(marks) if any_ else none
           for batch, marks, any_ in zip(batches, failed, some, strict=True))  # fmt: skip
    found = zip(batches, map(Moments, *fields, own), sound, strict=True)
    return {batch: moments for batch, moments, is_sound in found if is_sound}


def same(one: Moments, other: Moments) -> bool:
    """Whether two batches are equal bit by bit."""
    return all(ours.tobytes() == theirs.tobytes() for ours, theirs in zip(one, other, strict=True))


def sealed(content: bytes) -> bytes:
    """Append the digest of a file."""
    return content + digest(content)


def is_sealed(content: bytes) -> bool:
    """Whether bytes end with the digest of what comes before."""
    return digest(content[:-DIGEST_LENGTH]) == content[-DIGEST_LENGTH:]


def digest(content: bytes) -> bytes:
    """Return the digest that seals a file."""
    return hashlib.sha256(content).hexdigest().encode()
