"""The file of batches: one that is appended to, each entry whole or none, with an index that is made as it is read.

An entry is a head and a payload.  The head says what the payload holds and its digest, and has a digest of its own: a
flipped bit costs one entry.  What a killed process leaves behind the last whole entry nobody reads, and the next writer
cuts off.  Of a batch that stands there twice the last one counts.  Digests show damage, not forgery, and what has the
right one is believed.

A payload is the moments of one batch; or of all batches from the first on, folded together; or what one batch of a
population tells; or a summary of a cell: the numbers of batches at which it was looked at, and measures for moments.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.execution.folder import Folder, Missing
from simstudy.replicates.moments import Draw, Moments

MAGIC = b"\x93batch\r\n"
_HEAD = struct.Struct("<8s10sHqqq16s8s")
_CHUNK = 1 << 20
FARTHEST = 1 << 30
"""Bytes that are searched for the next entry behind one whose head is damaged."""
DRAWN = 40
"""In the place of halvings, which are fewer: what a batch of a population tells, in the place of its moments."""


class Entry(NamedTuple):
    """Content of an entry, and where its payload stands in which file."""

    identity: str  # Of the cell, 20 hexadecimal digits
    halvings: int  # How often pairs of blocks were added
    first: int  # Number of the first batch; of a summary, how many batches are stored as their measures
    n_batches: int  # How many batches; 0 for a summary of the cell
    size: int  # Bytes of the payload
    digest: bytes
    start: int = -1
    file: str = ""

    @property
    def key(self) -> int | str:
        """Number of a single batch, ``folded`` of several, ``summary`` of a cell."""
        return self.first if self.n_batches == 1 else "folded" if self.n_batches else "summary"

    @property
    def stop(self) -> int:
        """Place behind the payload."""
        return self.start + self.size

    def head(self) -> bytes:
        """Bytes that precede the payload."""
        header = MAGIC, bytes.fromhex(self.identity), *self[1:6]
        return _HEAD.pack(*header, _digest(_HEAD.pack(*header, b""), 8))


def _digest(content: bytes, size: int = 16) -> bytes:
    return hashlib.sha256(content).digest()[:size]


def entry_of(identity: str, halvings: int, first: int, count: int, payload: bytes) -> Entry:
    """Return the entry of a payload."""
    return Entry(identity, halvings, first, count, len(payload), _digest(payload))


class Stored(dict[int | str, Entry]):
    """Stored batches of a cell: single ones by their numbers, those ``folded`` together, and a ``summary``."""

    @property
    def numbers(self) -> set[int]:
        """Numbers of the batches whose moments are there, whole or damaged."""
        return set().union(*(range(each.first, each.first + each.n_batches) for each in self.values()))

    def count(self, most: int = sys.maxsize) -> int:
        """How many of the first batches, so many at most, are there as moments or in measures."""
        in_measures = self["summary"].first if "summary" in self else 0
        return max(sum(number < most for number in self.numbers), min(most, in_measures))


Index = dict[str, Stored]


def scan(folder: Folder, name: str) -> Iterator[Entry]:
    """Yield the whole entries of a file, in order; none if there is no such file."""
    start = searched = 0
    with contextlib.suppress(Missing), folder.reading(name) as file:
        size = os.fstat(file.fileno()).st_size
        while start + _HEAD.size <= size and searched < FARTHEST:
            file.seek(start)
            header = _HEAD.unpack(file.read(_HEAD.size))
            if header[0] == MAGIC and header[-1] == _digest(_HEAD.pack(*header[:-1], b""), 8):
                entry = Entry._make([header[1].hex(), *header[2:-1], start + _HEAD.size, name])
                if entry.stop > size or min(entry[2:4]) < 0 or entry.size < 0 or entry.halvings > DRAWN:
                    return
                yield entry
                start, searched = entry.stop, 0
            else:
                file.seek(start + 1)
                found = (chunk := file.read(_CHUNK)).find(MAGIC)
                start += 1 + found if found >= 0 else max(1, len(chunk) - len(MAGIC) + 1)
                searched += len(chunk)


def index_of(folder: Folder, names: Iterable[str]) -> Index:
    """Contents of the files of these names, by cell."""
    index: Index = defaultdict(Stored)
    for name in names:
        for entry in scan(folder, name):
            index[entry.identity][entry.key] = entry
    return index


def payloads(folder: Folder, entries: Iterable[Entry]) -> Iterator[tuple[Entry, bytes]]:
    """Yield entries with their payloads, in the order of their places; nothing that is damaged."""
    ordered = sorted(entries, key=attrgetter("file", "start"))
    for name, within in groupby(ordered, attrgetter("file")):
        with contextlib.suppress(Missing), folder.reading(name) as file:
            for entry in within:
                file.seek(entry.start)
                payload = file.read(entry.size)
                if _digest(payload) == entry.digest:
                    yield entry, payload


def pack(moments: Moments | Draw) -> bytes:
    """Return moments, or what was drawn, as a payload."""
    if isinstance(moments, Draw):
        counts = moments.n_defined, moments.averages is not None
        parts = (np.array(counts, float), *(moments.averages or ()), np.sort(moments.failed))
        return b"".join(np.asarray(each).tobytes() for each in parts)
    return b"".join(each.tobytes() for each in (*moments[:-1], np.sort(moments.failed)))


def _shapes(cell: Cell, count: int, halvings: int) -> list[tuple[int, ...]]:
    """Shapes of what a payload of so many batches holds, but for the failed replicates."""
    n_blocks, n_queries, n = -(-count * N_BLOCKS >> halvings), cell.n_queries, cell.n_members
    n_pairs, n_statistics = n * (n + 1) // 2, len(GEOMETRIC_INDICES) + len(cell.statistics)
    if halvings == DRAWN:
        return [(2,), (n_pairs,), (n_pairs,), (n_pairs,), (n,), (n_pairs,), (), (), (), (n_statistics,)]
    return [
        (n_blocks,), (n_blocks, n_queries, n), (n_blocks, n_queries, n_pairs), (n_blocks, n_statistics),
        (n_blocks, n_queries, (n + n_pairs) * cell.controlled), (n_queries,),
    ]  # fmt: skip


def size_of(cell: Cell, count: int, halvings: int) -> int:
    """Return the bytes of an entry of so many batches without failures."""
    return _HEAD.size + sum(8 * math.prod(shape) for shape in _shapes(cell, count, halvings))


def unpack(payload: bytes, entry: Entry, cell: Cell) -> Moments | Draw:
    """Return the moments in a payload, or what was drawn."""
    drawn, shapes = entry.halvings == DRAWN, _shapes(cell, entry.n_batches, entry.halvings)
    shapes = shapes[:1] if drawn and payload[8:16] == bytes(8) else shapes  # nothing is defined
    ends = list(accumulate((8 * math.prod(shape) for shape in shapes), initial=0))
    parts = zip(pairwise(ends), shapes, strict=True)
    fields = [np.frombuffer(payload[first:last], "<f8").reshape(shape) for (first, last), shape in parts]
    failed = np.frombuffer(payload[ends[-1] :], "<i8")
    if drawn:
        return Draw(int(fields[0][0]), tuple(fields[1:]) or None, failed)
    return Moments._make([fields[0].view("<i8"), *fields[1:], failed])
