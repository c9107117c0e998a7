"""Segments: some thousands of batches of a cell in two files that are appended to.

One file holds the records, one behind another and all of one size; the other, the index, says which batch each of them
is, when it was stored, and its digest.  A batch is stored once it stands in the index: what a killed process leaves
behind the last whole entry nobody reads, and the next writer cuts off.  A batch that was damaged and computed again
stands there twice, and the last one counts.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simstudy.execution.batch_files import Shape, unpack
from simstudy.execution.folder import Folder, Missing
from simstudy.replicates.moments import Moments

LENGTH = 1 << 12
"""Batches that a segment is for: few files for millions of batches, none of them too large to be copied."""
ENTRY = np.dtype([("batch", "<i8"), ("stored", "<f8"), ("digest", "V32")])
"""Of the index: the number of a batch, when it was stored (seconds of `time.time`), and the digest of its record."""
MAX_INDEX_BYTES = 1 << 24
"""Largest index that is read: no segment is computed again and again."""
CHUNK_BYTES = 1 << 24
"""Most bytes that are read at once."""
_INDEX = re.compile(r"([0-9]{4})\.index")


@dataclass(frozen=True)
class Segment:
    """The segment with this number of the cell whose folder this is: batches from number · `LENGTH` on."""

    folder: Folder
    number: int

    @property
    def names(self) -> tuple[str, str]:
        """Names of the files of the index and of the records."""
        return f"{self.number:04d}.index", f"{self.number:04d}.records"

    @property
    def records(self) -> Path:
        """File of the records."""
        return self.folder.path / self.names[1]

    @property
    def index(self) -> Path:
        """File of the index."""
        return self.folder.path / self.names[0]

    def append(self, records: Mapping[int, bytes]) -> None:
        """Store records, by the numbers of their batches; OSError if not all have room: those that fit are stored."""
        told = [(batch, time.time(), _digest(self.folder.name, batch, record)) for batch, record in records.items()]
        size = len(next(iter(records.values())))
        with self.folder.appending(self.names[0]) as index, self.folder.appending(self.names[1]) as file:
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
            content = self.folder.read(self.names[0], MAX_INDEX_BYTES)
        except Missing:
            return np.zeros(0, ENTRY)
        return np.frombuffer(content, ENTRY, len(content) // ENTRY.itemsize)

    def batches(self) -> dict[int, int]:
        """Return where the batches of the segment stand, by their numbers."""
        return self._rows(self.entries())

    def _rows(self, entries: np.ndarray) -> dict[int, int]:
        own = np.flatnonzero(entries["batch"] // LENGTH == self.number)
        return dict(zip(entries["batch"][own].tolist(), own.tolist(), strict=True))

    def read(self, batches: Iterable[int], shape: Shape) -> dict[int, Moments]:
        """Return of these batches those that are stored and whole, by their numbers."""
        entries = self.entries()
        rows = np.flatnonzero(np.isin(entries["batch"], list(batches)))
        step = max(1, CHUNK_BYTES // shape.record.itemsize)
        found: dict[int, Moments] = {}
        for chunk in np.split(rows, np.flatnonzero(np.diff(rows // step)) + 1) if rows.size else []:
            records = self._records(chunk[0], chunk[-1] + 1, shape)
            told = entries[chunk[chunk - chunk[0] < len(records)]]
            records = records[chunk[: len(told)] - chunk[0]]
            content, size, identity = memoryview(records.view(np.uint8)), records.itemsize, self.folder.name
            addresses = zip(told["batch"].tolist(), told["digest"].tolist(), strict=True)
            whole = {
                batch: row for row, (batch, digest) in enumerate(addresses)
                if _digest(identity, batch, content[row * size : (row + 1) * size]) == digest
            }  # fmt: skip
            found |= unpack(records[list(whole.values())], list(whole), shape)
        return found

    def _records(self, first: int, stop: int, shape: Shape) -> np.ndarray:
        """Return the records of these rows, as far as they are there."""
        try:
            with self.folder.reading(self.names[1]) as file:
                file.seek(first * shape.record.itemsize)
                content = file.read((stop - first) * shape.record.itemsize)
        except Missing:
            content = b""
        return np.frombuffer(content, shape.record, len(content) // shape.record.itemsize)


def segment_of(batch: int) -> int:
    """Return the number of the segment that a batch belongs to."""
    return batch // LENGTH


def by_segment(batches: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield numbers of batches, which are in order, those of each segment together with its number."""
    start = 0
    while start < len(batches):
        number = segment_of(batches[start])
        stop = bisect_left(batches, (number + 1) * LENGTH, start)
        yield number, batches[start:stop]
        start = stop


def segments(folder: Folder) -> list[Segment]:
    """Return the segments of the cell with this folder, in order."""
    return [Segment(folder, int(match[1])) for match in map(_INDEX.fullmatch, folder.names()) if match]


def _digest(identity: str, batch: int, record: bytes | memoryview) -> bytes:
    """Return what a record is known by: its own bytes, and whose they are."""
    return hashlib.sha256(b"%s/%d/%s" % (identity.encode(), batch, record)).digest()
