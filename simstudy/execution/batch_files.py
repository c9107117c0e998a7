"""Where batches lie: each a record of fixed size, some thousands of a cell in two files that are appended to.

One file of such a segment holds the records, one behind another; the other, the index, says which batch each of them
is, when it was stored, and its digest.  A batch is stored once it stands in the index: what a killed process leaves
behind the last whole entry nobody reads, and the next writer cuts off.  A batch that was damaged and computed again
stands there twice, and the last one counts.  Nothing in the bytes is believed unchecked.

The digest of a batch shows damage, not forgery: whoever forges numbers also forges digests.

Beside the batches of a cell stands its statement: the settings
and the engine of which the name of the cell is a digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from pydantic import ConfigDict

from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.design.settings.records import Record
from simstudy.execution.folder import Folder, Missing
from simstudy.replicates.moments import Moments

LARGEST_SUM = 1e100
"""Bound on sums of errors and of their products: beyond what a design allows, and its square does not overflow."""
DIGEST_LENGTH = 64
LENGTH = 1 << 12
"""Batches that a segment is for: few files for millions of batches, none of them too large to be copied."""
ENTRY = np.dtype([("batch", "<i8"), ("stored", "<f8"), ("digest", "V32")])
"""Of the index: the number of a batch, when it was stored (seconds of `time.time`), and the digest of its record."""
MAX_INDEX_BYTES = 1 << 24
"""Largest index that is read: no segment is computed again and again."""
CHUNK_BYTES = 1 << 24
"""Most bytes that are read at once."""
_INDEX = re.compile(r"([0-9]{4})\.index")


class Statement(Record):
    """What a cell is, and what computed its batches."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # a parameter of a simulation may be infinite

    engine: str
    cell: Cell


def record_of(cell: Cell) -> np.dtype:
    """Return the type of the record of a batch: the fields of `Moments`, ``failed`` as a bit for each replicate."""
    n_queries, n_members = cell.n_queries, cell.n_members
    n_pairs = n_members * (n_members + 1) // 2
    return np.dtype(
        [
            ("n_defined", "<i8", (N_BLOCKS,)),
            ("error_sum", "<f8", (N_BLOCKS, n_queries, n_members)),
            ("product_sum", "<f8", (N_BLOCKS, n_queries, n_pairs)),
            ("statistic_sum", "<f8", (N_BLOCKS, len(GEOMETRIC_INDICES) + len(cell.statistics))),
            ("control_sum", "<f8", (N_BLOCKS, n_queries, (n_members + n_pairs) * cell.controlled)),
            ("target", "<f8", (n_queries,)),
            # So that all numbers of the next record are aligned.
            ("failed", "u1", (-(-cell.simulation.batch_size // 64) * 8,)),
        ]
    )


def pack(batch: int, moments: Moments, cell: Cell) -> bytes:
    """Return the record of a batch."""
    record = np.zeros((), record_of(cell))
    for name, field in zip(Moments._fields[:-1], moments[:-1], strict=True):
        record[name] = field
    failed = np.zeros(8 * record["failed"].size, bool)
    failed[moments.failed - batch * cell.simulation.batch_size] = True
    record["failed"] = np.packbits(failed)
    return record.tobytes()


def unpack(records: np.ndarray, batches: Sequence[int], cell: Cell) -> dict[int, Moments]:
    """Return the moments in records by batch, without those whose counts or sums no batch of the cell can have."""
    size = cell.simulation.batch_size
    failed, per_block = np.unpackbits(records["failed"], axis=1, count=size), size // N_BLOCKS
    n_failed = failed.reshape(-1, N_BLOCKS, per_block).sum(axis=2, dtype=np.int64)
    sound = (records["n_defined"] + n_failed == per_block).all(axis=1)
    for name in ("error_sum", "product_sum", "control_sum", "target"):
        sums = np.abs(records[name])
        sound &= (sums <= LARGEST_SUM).all(axis=tuple(range(1, sums.ndim)))
    fields = [records[name] for name in Moments._fields[:-1]]
    none, some = np.zeros(0, np.int64), n_failed.any(axis=1)
    own = (
        batch * size + np.flatnonzero(marks) if any_ else none
        for batch, marks, any_ in zip(batches, failed, some, strict=True)
    )
    found = zip(batches, map(Moments, *fields, own), sound, strict=True)
    return {batch: moments for batch, moments, is_sound in found if is_sound}


def same(one: Moments, other: Moments) -> bool:
    """Whether two batches are equal bit by bit."""
    return all(ours.tobytes() == theirs.tobytes() for ours, theirs in zip(one, other, strict=True))


def with_digest(content: bytes) -> bytes:
    """Append the digest of a file."""
    return content + hashlib.sha256(content).hexdigest().encode()


@dataclass(frozen=True)
class Segment:
    """The segment with this number of the cell whose folder this is: batches from number · `LENGTH` on."""

    folder: Folder
    number: int

    def name(self, kind: str) -> str:
        """Return the name of the file of ``records`` or of the ``index``."""
        return f"{self.number:04d}.{kind}"

    def path(self, kind: str) -> Path:
        """Return the path of one of them, for people."""
        return self.folder.path / self.name(kind)

    def append(self, records: Mapping[int, bytes]) -> None:
        """Store records, by the numbers of their batches; OSError if not all have room: those that fit are stored."""
        identity = self.folder.path.name
        told = [(batch, time.time(), _digest(identity, batch, record)) for batch, record in records.items()]
        size = len(next(iter(records.values())))
        with self.folder.appending(self.name("index")) as index, self.folder.appending(self.name("records")) as file:
            n_whole = index.tell() // ENTRY.itemsize
            index.truncate(n_whole * ENTRY.itemsize)
            file.truncate(n_whole * size)
            try:
                file.writelines(records.values())
                file.flush()
            finally:
                n_fit = os.fstat(file.fileno()).st_size // size - n_whole
                index.write(np.array(told[:n_fit], ENTRY).tobytes())

    def entries(self) -> np.ndarray:
        """Return the whole entries of the index, of type `ENTRY`; none if there is none."""
        try:
            content = self.folder.read(self.name("index"), MAX_INDEX_BYTES)
        except Missing:
            return np.zeros(0, ENTRY)
        return np.frombuffer(content, ENTRY, len(content) // ENTRY.itemsize)

    def batches(self) -> dict[int, int]:
        """Return where the batches of the segment stand, by their numbers."""
        numbers = self.entries()["batch"]
        own = np.flatnonzero(numbers // LENGTH == self.number)
        return dict(zip(numbers[own].tolist(), own.tolist(), strict=True))

    def read(self, batches: Iterable[int], cell: Cell) -> dict[int, Moments]:
        """Return of these batches those that are stored and whole, by their numbers."""
        entries, record, identity = self.entries(), record_of(cell), self.folder.path.name
        size = record.itemsize
        rows = np.flatnonzero(np.isin(entries["batch"], list(batches)))
        step = max(1, CHUNK_BYTES // size)
        found: dict[int, Moments] = {}
        for chunk in np.split(rows, np.flatnonzero(np.diff(rows // step)) + 1) if rows.size else []:
            first, content = int(chunk[0]), memoryview(b"")
            with contextlib.suppress(Missing):
                n_bytes = (int(chunk[-1]) + 1 - first) * size
                content = memoryview(self.folder.read(self.name("records"), n_bytes, first * size))
            whole = {}
            for place, (batch, _, digest) in zip((chunk - first).tolist(), entries[chunk].tolist(), strict=True):
                there = (place + 1) * size <= len(content)
                if there and _digest(identity, batch, content[place * size : (place + 1) * size]) == digest:
                    whole[batch] = place
            records = np.frombuffer(content, record, len(content) // size)
            found |= unpack(records[list(whole.values())], list(whole), cell)
        return found


def by_segment(batches: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield numbers of batches, which are in order, those of each segment together with its number."""
    return ((number, list(inside)) for number, inside in groupby(batches, lambda batch: batch // LENGTH))


def segments(folder: Folder) -> list[Segment]:
    """Return the segments of the cell with this folder, in order."""
    return [Segment(folder, int(match[1])) for match in map(_INDEX.fullmatch, folder.names()) if match]


def _digest(identity: str, batch: int, record: bytes | memoryview) -> bytes:
    """Return what a record is known by: its own bytes, and whose they are."""
    return hashlib.sha256(b"%s/%d/%s" % (identity.encode(), batch, record)).digest()
