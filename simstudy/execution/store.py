"""Batches and results on disk; `docs/results.md` describes the folder of a study.

A file is written under another name and renamed, so that a killed process leaves the whole file or none.  Batches are
appended instead, and flushed to disk every second: after a power failure lost batches are computed again.  They are
named by a digest of everything that determines their contents.  Only writers hold a lock.

A file of batches consists of entries with a head and a payload.  The head describes the payload, with its digest and a
digest of the head itself, so that a flipped bit costs one entry.  An incomplete last entry, left by a killed process,
is not read, and the next writer truncates it.  If a batch is stored twice, the last one counts.  Digests show damage,
not manipulation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter

from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.design.document import Design
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.design.settings.records import Record
from simstudy.errors import UserError
from simstudy.execution.folder import PARTIAL, Folder, LockHeld, Missing, due
from simstudy.replicates.moments import Draw, Moments

if TYPE_CHECKING:
    import xarray as xr

RUN = "batches/run"
DETAILS_FILE, PROVENANCE_FILE, RESULTS_FILE = "details.nc", "provenance.json", "results.nc"
DIGEST_LENGTH = 64
MAX_JSON_BYTES, MAX_RESULTS_BYTES = 1 << 20, 1 << 34
"""Largest record and largest file of results that are read; files are held in memory."""
FLUSH_SECONDS, DISK_SHARE = 1.0, 0.05
"""Seconds between flushes of batches to disk; largest share of time for flushing."""
DEFAULT_OUTPUT = Path("outputs")
Instant = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]  # By `time.time`, up to the year 5138
Named = Annotated[dict[str, Any], AfterValidator(lambda named: {k: np.array(v, float)[()] for k, v in named.items()})]
Kept = tuple[Named, Named, Named, Named, int, int, int, bool, Named, str, int, Named, tuple[int, ...]]
LARGEST_SUM = 1e100
"""Bound on sums of errors and of their products: no design reaches it, and its square is finite."""
MAGIC = b"\x93batch\r\n"
_HEAD = struct.Struct("<8s10sHqqq16s8s")
_CHUNK = 1 << 20
MAX_SEARCHED = 1 << 30
"""Bytes that are searched for the next entry after a damaged head."""
_COMPRESSED: dict[str, Any] = {"zlib": True, "complevel": 4, "shuffle": True}
"""Lossless compression that all readers of netCDF 4 support."""
_COMPRESSED_BYTES = 2048
"""Size of arrays, in bytes, from which compression saves more than netCDF's index of chunks takes."""
DRAWN = 40
"""Value of ``halvings`` in entries with statistics of a draw of a population; moments have smaller ones."""


class Entry(NamedTuple):
    """Description of an entry, with the file and place of its payload."""

    identity: str  # Identity of the cell, 20 hexadecimal digits
    halvings: int  # Number of times that pairs of blocks were added
    first: int  # Number of the first batch; of a summary, number of batches that are stored as measures
    n_batches: int  # Number of batches; 0 for a summary of the cell
    size: int  # Bytes of the payload
    digest: bytes
    start: int = -1
    file: str = ""

    @property
    def key(self) -> int | str:
        """Number of a single batch, ``folded`` for several, or ``summary`` for a cell."""
        return self.first if self.n_batches == 1 else "folded" if self.n_batches else "summary"

    @property
    def stop(self) -> int:
        """Place after the payload."""
        return self.start + self.size

    def head(self) -> bytes:
        """Return the bytes that precede the payload."""
        header = MAGIC, bytes.fromhex(self.identity), *self[1:6]
        return _HEAD.pack(*header, _digest(_HEAD.pack(*header, b""), 8))


def _digest(content: bytes, size: int = 16) -> bytes:
    return hashlib.sha256(content).digest()[:size]


def entry_of(identity: str, halvings: int, first: int, count: int, payload: bytes) -> Entry:
    """Return the entry of a payload."""
    return Entry(identity, halvings, first, count, len(payload), _digest(payload))


class Stored(dict[int | str, Entry]):
    """Stored entries of a cell: single batches by number, ``folded`` batches, and a ``summary``."""

    @property
    def numbers(self) -> set[int]:
        """Numbers of the batches with stored moments, whether damaged or not."""
        return set().union(*(range(each.first, each.first + each.n_batches) for each in self.values()))

    def count(self, most: int = sys.maxsize) -> int:
        """Return the number of stored batches among the first ``most``, as moments or in measures."""
        in_measures = self["summary"].first if "summary" in self else 0
        return max(sum(number < most for number in self.numbers), min(most, in_measures))


Index = dict[str, Stored]


def index_of(folder: Folder, names: Iterable[str]) -> Index:
    """Return the complete entries of files, by cell; missing files are ignored."""
    index: Index = defaultdict(Stored)
    for name in names:
        start = searched = 0
        with contextlib.suppress(Missing), folder.reading(name) as file:
            size = os.fstat(file.fileno()).st_size
            while start + _HEAD.size <= size and searched < MAX_SEARCHED:
                file.seek(start)
                header = _HEAD.unpack(file.read(_HEAD.size))
                if header[0] == MAGIC and header[-1] == _digest(_HEAD.pack(*header[:-1], b""), 8):
                    entry = Entry._make([header[1].hex(), *header[2:-1], start + _HEAD.size, name])
                    if entry.stop > size or min(entry[2:4]) < 0 or entry.size < 0 or entry.halvings > DRAWN:
                        break
                    index[entry.identity][entry.key] = entry
                    start, searched = entry.stop, 0
                else:
                    file.seek(start + 1)
                    found = (chunk := file.read(_CHUNK)).find(MAGIC)
                    start += 1 + found if found >= 0 else max(1, len(chunk) - len(MAGIC) + 1)
                    searched += len(chunk)
    return index


def payloads(folder: Folder, entries: Iterable[Entry]) -> Iterator[tuple[Entry, bytes]]:
    """Yield undamaged entries with their payloads, in the order of their places."""
    for name, within in groupby(sorted(entries, key=attrgetter("file", "start")), attrgetter("file")):
        with contextlib.suppress(Missing), folder.reading(name) as file:
            for entry in within:
                file.seek(entry.start)
                if _digest(payload := file.read(entry.size)) == entry.digest:
                    yield entry, payload


def pack(moments: Moments | Draw) -> bytes:
    """Return moments, or statistics of a draw, as a payload."""
    if isinstance(moments, Draw):
        counts = moments.n_defined, moments.averages is not None
        parts = (np.array(counts, float), *(moments.averages or ()), np.sort(moments.failed))
        return b"".join(np.asarray(each).tobytes() for each in parts)
    return b"".join(each.tobytes() for each in (*moments[:-1], np.sort(moments.failed)))


def _layout(cell: Cell, count: int, halvings: int) -> np.dtype:
    """Return the layout of a payload of these batches, without the failed replicates at its end."""
    n_blocks, n_queries, n = -(-count * N_BLOCKS >> halvings), cell.n_queries, cell.n_members
    n_pairs, n_statistics = n * (n + 1) // 2, len(GEOMETRIC_INDICES) + len(cell.statistics)
    shapes: list[tuple[int, ...]] = [
        (n_blocks,), (n_blocks, n_queries, n), (n_blocks, n_queries, n_pairs), (n_blocks, n_statistics),
        (n_blocks, n_queries, (n + n_pairs) * cell.controlled), (n_queries,),
    ]  # fmt: skip
    if halvings == DRAWN:
        shapes = [(2,), (n_pairs,), (n_pairs,), (n_pairs,), (n,), (n_pairs,), (), (), (), (n_statistics,)]
    return np.dtype([(str(place), "<f8", shape) for place, shape in enumerate(shapes)])


def size_of(cell: Cell, count: int, halvings: int) -> int:
    """Return the bytes of an entry of ``count`` batches without failures."""
    return _HEAD.size + _layout(cell, count, halvings).itemsize


def unpack(payload: bytes, entry: Entry, cell: Cell) -> Moments | Draw | None:
    """Return the moments in a payload; None if batches of the cell cannot have these counts or sums."""
    drawn, size = entry.halvings == DRAWN, cell.simulation.batch_size
    layout = _layout(cell, entry.n_batches, entry.halvings)
    layout = np.dtype(layout.descr[:1]) if drawn and payload[8:16] == bytes(8) else layout  # no replicate is defined
    n = layout.itemsize
    if len(payload) < n or len(payload) % 8 or (drawn and not (cell.population and entry.n_batches == 1)):
        return None
    fields, failed = [*np.frombuffer(payload[:n], layout)[0]], np.frombuffer(payload[n:], "<i8")
    inside = failed - entry.first * size
    if not (np.all(np.diff(inside) > 0) and np.all((inside >= 0) & (inside < entry.n_batches * size))):
        return None
    if drawn:
        n_defined = fields[0][0]
        whole = n_defined + len(failed) == size
        return Draw(int(n_defined), tuple(fields[1:]) if fields[1:] else None, failed) if whole else None
    counted: Any = fields[0].view("<i8")
    length = max(1, size // N_BLOCKS) << entry.halvings
    replicates = np.clip(entry.n_batches * size - length * np.arange(len(counted)), 0, length)
    lost = np.bincount((failed - entry.first * size) // length, minlength=len(counted))
    small = all((np.abs(each) <= LARGEST_SUM).all() for each in (*fields[1:3], *fields[4:]))
    if not (small and np.array_equal(counted + lost, replicates)):
        return None
    return Moments._make([counted, *fields[1:], failed])


class Owner(Record):
    """Process that holds a lock, or held it when it was killed."""

    pid: Annotated[int, Field(ge=1, lt=2**31)]
    host: str
    started: Instant

    @property
    def alive(self) -> bool | None:
        """True if the process still runs; None if it is on another machine, where this is unknown."""
        import psutil

        if self.host != platform.node():
            return None
        try:
            # A later process with the same number is younger than the lock.
            return psutil.Process(self.pid).create_time() < self.started + 1.0
        except psutil.Error:
            return False


class Finished(Record):
    """Record of a finished cell: the numbers of batches at its looks, and measures if no moments are stored."""

    looks: Annotated[tuple[Annotated[int, Field(gt=0)], ...], Field(min_length=1)]  # Numbers of batches
    measures: Kept | None  # Fields of `Performance`, and replicates that failed


SUMMARY = TypeAdapter(dict[str, Finished])


class Store:
    """Folder of one study under one profile, for a run or for a share of a run, such as ``3-of-8``."""

    def __init__(self, folder: Path | Folder, share: str = "") -> None:
        self.files = folder if isinstance(folder, Folder) else Folder(folder)
        self._lock, self._own = (f"batches/{share}.lock", f"batches/{share}") if share else (".lock", RUN)
        # Paths of the folder and of the file of batches, for messages and readers.
        self.folder, self.place = self.files.path, self.files.path / self._own
        self._index: Index | None = None
        self._flush_due = time.monotonic() + FLUSH_SECONDS
        self._append: Callable[[bytes], int] | None = None
        self._opened = contextlib.ExitStack()
        self._unflushed = False
        self._holder: Owner | None = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for writing, and remove incomplete files of a killed writer."""
        own = Owner(pid=os.getpid(), host=platform.node(), started=time.time())
        self.files.require_own_files()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self.files.locked(self._lock, own.model_dump_json().encode()))
            except LockHeld:
                holder, remedy = "another process", "wait for it, or choose another --output"
                if owner := self._owner(self._lock):
                    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner.started))
                    holder = f"process {owner.pid} on {owner.host} since {since}"
                raise UserError(f"{self.folder}: in use by {holder}; {remedy}") from None
            if self._own == RUN:
                for name in self.files.at(PARTIAL).names():
                    self.files.delete(f"{PARTIAL}/{name}")
            self._append = self._index = None  # read again, under the lock
            stack.callback(self._close)
            self._holder = own
            yield
            self.flush()

    def _close(self) -> None:
        self._opened.close()
        self._append = self._index = None

    def _owner(self, lock: str) -> Owner | None:
        with contextlib.suppress(Missing, ValueError):
            return Owner.model_validate_json(self.files.read(lock, MAX_JSON_BYTES))
        return None

    def owner(self) -> Owner | None:
        """Return the process that holds a lock of the study, or held it when it was killed; None without one."""
        shares = (f"batches/{name}" for name in self.files.at("batches").names() if name.endswith(".lock"))
        return next(filter(None, map(self._owner, (self._lock, ".lock", *shares))), None)

    @property
    def index(self) -> Index:
        """Stored entries by cell: those in files at the first use, and all written by this store since."""
        if self._index is None:
            names = [f"batches/{name}" for name in self.files.at("batches").names() if not name.endswith(".lock")]
            # The own file comes last, so that its entries replace equal ones.
            self._index = index_of(self.files, sorted(names, key=lambda name: (name == self._own, name)))
        return self._index

    def stored(self, identity: str) -> Stored:
        """Return the stored entries of a cell."""
        return self.index.get(identity) or Stored()

    def write_batch(self, identity: str, batch: int, moments: Moments | Draw) -> None:
        """Append one batch; it is flushed to disk after `FLUSH_SECONDS`, or by `flush`."""
        payload, index = pack(moments), self.index
        entry = entry_of(identity, DRAWN if isinstance(moments, Draw) else 0, batch, 1, payload)
        if self._append is None:
            own = (each for stored in index.values() for each in stored.values() if each.file == self._own)
            # An incomplete entry that a killed process left is truncated.
            appending = self.files.appending(self._own, max((each.stop for each in own), default=0))
            self._append = self._opened.enter_context(appending)
        stop = self._append(entry.head() + payload)
        self._unflushed = True
        index[identity][entry.key] = entry._replace(start=stop - entry.size, file=self._own)
        if time.monotonic() >= self._flush_due:
            self.flush()

    def flush(self) -> None:
        """Wait until batches and the name of their file are on disk; UserError if that fails or the lock is lost."""
        began, holder = time.monotonic(), self._owner(self._lock) if self._holder else None
        if holder not in (None, self._holder):  # network file systems may lose a lock
            remedy = "wait for it, and run again: finished batches are stored"
            raise UserError(f"{self.folder}: the lock is lost to process {holder.pid} on {holder.host}; {remedy}")
        if self._unflushed:
            self._unflushed = False
            self.files.flush(self._own)
        self._flush_due = due(began, FLUSH_SECONDS, DISK_SHARE)

    def read_batches(self, identity: str, keys: Iterable[int | str], cell: Cell) -> dict[int | str, Any]:
        """Return moments by key, a number of a batch or ``folded``, without missing, damaged and invalid entries."""
        stored = self.stored(identity)
        found = payloads(self.files, (stored[key] for key in keys if key in stored))
        return {entry.key: moments for entry, payload in found if (moments := unpack(payload, entry, cell)) is not None}

    def summary(self, identity: str) -> dict[str, Finished]:
        """Return records of finished cells by name; empty if they are missing or damaged."""
        with contextlib.suppress(ValueError, TypeError, StopIteration, KeyError):
            return SUMMARY.validate_json(next(payloads(self.files, [self.stored(identity)["summary"]]))[1])
        return {}

    def is_whole(self) -> bool:
        """Return true if no payload in the index is damaged."""
        entries = [each for stored in self.index.values() for each in stored.values()]
        return sum(1 for _ in payloads(self.files, entries)) == len(entries)

    def digest(self, device: str) -> str:
        """Return a digest of results by a device and of all stored entries; empty if a file of results is missing."""
        heads = sorted(entry.head() for each in self.index.values() for entry in each.values())
        digest = hashlib.sha256(f"{device} {hashlib.sha256(b''.join(heads)).hexdigest()}".encode())
        with contextlib.suppress(Missing):
            for name in (RESULTS_FILE, DETAILS_FILE, PROVENANCE_FILE):
                digest.update(hashlib.sha256(self.files.read(name, MAX_RESULTS_BYTES)).digest())
            return digest.hexdigest()
        return ""

    def replace(self, cells: Collection[str], made: Iterable[tuple[Entry, bytes]]) -> None:
        """Replace all entries of some cells and write one file; files of shares that run now are kept."""
        self.flush()
        with contextlib.ExitStack() as stack:
            taken = []
            for name in {each.file for stored in self.index.values() for each in stored.values()} - {RUN}:
                with contextlib.suppress(LockHeld):
                    stack.enter_context(self.files.locked(f"{name}.lock", b""))
                    taken.append(name)
            others = (stored.values() for identity, stored in self.index.items() if identity not in cells)
            whole = payloads(self.files, (e for each in others for e in each if e.file in (RUN, *taken)))
            self.files.write(RUN, (part for entry, payload in chain(made, whole) for part in (entry.head(), payload)))
            for name in taken:
                self.files.delete(name)
        self._close()

    def write_dataset(self, name: str, dataset: xr.Dataset | xr.DataTree) -> Path:
        """Write labelled data as netCDF with a digest appended, and return the path."""
        # Imported here and below, as the import takes half a second, and batches do not need it.
        import netCDF4
        import xarray as xr
        from xarray.backends import NetCDF4DataStore
        from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

        tree = dataset if isinstance(dataset, xr.DataTree) else xr.DataTree(dataset)
        with NETCDF4_PYTHON_LOCK:
            # In memory, so that a full disk raises the usual error.  Name and size are required and have no effect.
            target = netCDF4.Dataset("results.nc", "w", memory=1)
            # All variables are defined before any is written: each change between the two takes time for all variables.
            writes: list[tuple[Any, Any]] = []
            later = SimpleNamespace(add=lambda *pair: writes.append(pair))
            for node in tree.subtree:
                part = node.to_dataset(inherit=False).copy()
                for variable in part.variables.values():
                    # Texts are stored as characters, as netCDF cannot compress texts of any length.
                    text = {"dtype": "S1"} if variable.dtype.kind in "OTU" else {}
                    variable.encoding = _COMPRESSED | text if variable.nbytes >= _COMPRESSED_BYTES else text
                # The lock is held: netCDF is not safe for threads.
                part.dump_to_store(NetCDF4DataStore(target, group=node.path, mode="a", lock=False), writer=later)
            for source, variable in writes:
                variable[...] = source
            content: Any = target.close()
        return self.files.write(name, (content, hashlib.sha256(content).hexdigest().encode()))

    def write_json(self, name: str, content: Any) -> Path:
        """Store plain data as JSON and return the path."""
        return self.files.write(name, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file; empty if it is missing or invalid."""
        with contextlib.suppress(Missing, ValueError):
            return TypeAdapter(dict[str, Any]).validate_json(self.files.read(name, MAX_JSON_BYTES))
        return {}


def store_of(design: Design, output: str | Path = DEFAULT_OUTPUT, share: str = "") -> Store:
    """Return the store of a design: ``<output>/<study>/<profile>``, or ``confirmed/<digest>`` in it."""
    folder = Folder(Path(output), (design.study.name, design.profile))
    return Store(folder.at("confirmed", design.confirmation.digest) if design.confirmation else folder, share)


def read_tree(path: Path, folder: Folder | None = None) -> xr.DataTree:
    """Return results with their groups, loaded into memory; ``folder`` is by default the folder of the path."""
    import netCDF4
    import xarray as xr
    from xarray.backends import NetCDF4DataStore
    from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

    try:
        content = (folder or Folder(path.parent)).read(path.name, MAX_RESULTS_BYTES)
    except Missing:
        raise Missing(f"{path}: no results can be read (no such file); run the study first") from None
    bare = content[:-DIGEST_LENGTH]
    if hashlib.sha256(bare).hexdigest().encode() != content[-DIGEST_LENGTH:]:
        raise UserError(f"{path}: damaged, or not the results of a study; run the study again, or use open_datatree")
    try:
        # xarray's `open_datatree` is not safe for threads.
        with NETCDF4_PYTHON_LOCK, netCDF4.Dataset("results.nc", memory=bare) as file:
            groups = [file]
            for group in groups:
                groups += group.groups.values()
            opened = {group.path: xr.open_dataset(NetCDF4DataStore(group, lock=False)) for group in groups}
            # Encodings of the file would damage data that are changed and saved again.
            found = xr.DataTree.from_dict({name: each.load().drop_encoding() for name, each in opened.items()})
    except Exception as error:  # a damaged file may raise any error
        raise UserError(f"{path}: no results can be read ({error}); run the study first") from None
    # An absolute path, to find the details of the same run from any current folder.
    found.encoding = {"source": str(path.absolute())}
    return found
