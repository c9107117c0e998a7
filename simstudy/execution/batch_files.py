"""A batch as the bytes of a file, and what makes such bytes a batch: nothing in them is believed unchecked.

A batch file is one record in NumPy's own format, behind it a digest that readers of .npy pass over.  The digest shows
damage, not forgery: whoever forges numbers also seals them, and only computing them again, by `execution.verify`,
tells.  Beside the batches of a cell stands its statement: the settings and the engine of which the name of the cell is
a digest.
"""

from __future__ import annotations

import hashlib
import io
from typing import NamedTuple

import numpy as np
from numpy.lib import format as npy

from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.design.feasibility import impossibilities
from simstudy.design.settings import Record
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.replicates.moments import Moments

LARGEST_SUM = 1e100
"""Bound on sums of errors and of their products: beyond what a design allows, and its square does not overflow."""
OVERHEAD_BYTES = 1 << 13
"""Most of a file that is not numbers: header, address and digest."""
_DIGEST_LENGTH = 64


class Statement(Record):
    """What a cell is, and what computed its batches."""

    engine: str
    cell: Cell

    @classmethod
    def parse(cls, content: bytes, identity: str) -> Statement:
        """Return the statement of the cell with this name.

        Raises
        ------
        ValueError
            If it is damaged, another cell's, or of a cell that no design may have.
        """
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

    @classmethod
    def of(cls, cell: Cell) -> Shape:
        """Return the shape of the batches of a cell."""
        n_statistics = len(GEOMETRIC_INDICES) + len(cell.statistics)
        return cls(cell.n_queries, cell.n_members, n_statistics, cell.simulation.batch_size)

    @property
    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Types and shapes of all fields of `Moments` but ``failed``."""
        n_pairs = self.n_members * (self.n_members + 1) // 2
        return {
            "n_defined": ("<i8", (N_BLOCKS,)),
            "error_sum": ("<f8", (N_BLOCKS, self.n_queries, self.n_members)),
            "product_sum": ("<f8", (N_BLOCKS, self.n_queries, n_pairs)),
            "statistic_sum": ("<f8", (N_BLOCKS, self.n_statistics)),
            "target": ("<f8", (self.n_queries,)),
        }

    @property
    def max_bytes(self) -> int:
        """Largest size of a batch file."""
        numbers = sum(int(np.prod(shape)) for _, shape in self.fields.values()) + self.batch_size
        return 8 * numbers + OVERHEAD_BYTES


def _record_type(fields: dict[str, tuple], identity: str) -> np.dtype:
    """Return the type of the record of a batch, with its address behind the numbers, so that these are aligned."""
    numbers = [(name, *fields[name]) for name in Moments._fields]
    return np.dtype([*numbers, ("batch", "<i8"), ("identity", f"S{len(identity)}")])


def pack(identity: str, batch: int, moments: Moments) -> bytes:
    """Return the file of a batch."""
    fields = {name: (field.dtype, field.shape) for name, field in moments._asdict().items()}
    record = np.array((*moments, batch, identity.encode()), dtype=_record_type(fields, identity))
    buffer = io.BytesIO()
    npy.write_array(buffer, record, version=(1, 0), allow_pickle=False)
    return sealed(buffer.getvalue())


def unpack(content: bytes, identity: str, batch: int, shape: Shape) -> Moments:
    """Return the moments in the file of a batch.

    Raises
    ------
    Exception
        If it is damaged, another's, or holds what no batch of this shape can: whatever the parser meets.
    """
    if not is_sealed(content):
        raise ValueError("damaged")
    file = io.BytesIO(content)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("a header that this program does not write")
    dimensions, _, found = npy.read_array_header_1_0(file)
    # Compared before an array is made of them: a header could ask for objects, or more memory than there is.
    if dimensions or found != _record_type(shape.fields | {"failed": ("<i8", found["failed"].shape)}, identity):
        raise ValueError("other shapes or types")
    record = np.ndarray((), found, buffer=content, offset=file.tell())
    if (record["identity"].item(), record["batch"].item()) != (identity.encode(), batch):
        raise ValueError("another's")
    moments = Moments(*(record[name] for name in Moments._fields))
    _require_sound(moments, batch, shape)
    return moments


def _require_sound(moments: Moments, batch: int, shape: Shape) -> None:
    """Raise ValueError unless these can be the moments of a batch: counts and magnitudes."""
    # Every replicate of a block has an estimate or is named as failed, once.
    per_block = shape.batch_size // N_BLOCKS
    blocks = (moments.failed - batch * shape.batch_size) // per_block
    ascending = (np.diff(moments.failed) > 0).all()
    inside = ((blocks >= 0) & (blocks < N_BLOCKS)).all()
    if not (ascending and inside and (moments.n_defined + np.bincount(blocks, minlength=N_BLOCKS) == per_block).all()):
        raise ValueError("other counts")
    # Statistics without a meaning are NaN; all else is a number.
    for sums in (moments.error_sum, moments.product_sum, moments.target):
        if not (np.abs(sums) <= LARGEST_SUM).all():
            raise ValueError("sums that no study has")


def same(one: Moments, other: Moments) -> bool:
    """Whether two batches are equal bit by bit."""
    return all(ours.tobytes() == theirs.tobytes() for ours, theirs in zip(one, other, strict=True))


def sealed(content: bytes) -> bytes:
    """Append the digest of a file."""
    return content + digest(content)


def is_sealed(content: bytes) -> bool:
    """Whether bytes end with the digest of what comes before."""
    return digest(content[:-_DIGEST_LENGTH]) == content[-_DIGEST_LENGTH:]


def digest(content: bytes) -> bytes:
    """Return the digest that seals a file."""
    return hashlib.sha256(content).hexdigest().encode()
