"""Batches and results on disk: what lies where in the folder of a study.

Layout of a study folder::

    batches/<cell identity>/0000.records  .index  batches 0 to 4095 of a cell, and what each of them is
    batches/<cell identity>/cell.json             settings and engine, of which the identity is a digest
    results.nc  details.nc  report.html  figures/  verdicts.csv  comparisons.csv  cells.csv  provenance.json
    .lock  .owner.json  .status.json  .partial/  who writes here, how far that is, and what is not whole yet
    confirmed/<digest>/                          the same with other random numbers (run --confirm)

A file is written beside its place and renamed into it: a killed process leaves the whole file or none.  Batches are
appended instead, each of them whole or not stored.  Their folder is named by what decides their contents, so a changed
design or engine looks elsewhere instead of reusing what no longer holds.  They are flushed to disk a second's worth at
a time, or more if that takes long, as flushing each takes longer than computing it: what a loss of power spoils of it
its digest tells, and it is computed again.  Whoever writes holds the lock of the folder; whoever reads, never.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from simstudy.design.document import Design
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.records import Record
from simstudy.errors import UserError
from simstudy.execution.batch_files import (
    DIGEST_LENGTH,
    LENGTH,
    Segment,
    Statement,
    by_segment,
    pack,
    segments,
    with_digest,
)
from simstudy.execution.folder import ASIDE, Folder, Held, Missing, refused
from simstudy.replicates.moments import Moments

if TYPE_CHECKING:
    import netCDF4
    import xarray as xr
    from xarray.backends import NetCDF4DataStore

_STATEMENT = "cell.json"
DETAILS_FILE, PROVENANCE_FILE = "details.nc", "provenance.json"
MAX_JSON_BYTES = 1 << 20
"""Largest record that is read: of an owner, of a share."""
MAX_STATEMENT_BYTES = 1 << 28
"""Largest statement of a cell that is read: it may hold the heads of a file, number by number."""
GATHER_SECONDS = 0.05
"""Time for which batches may wait for others that are written with them: the work that a kill may cost."""
FLUSH_SECONDS = 1.0
"""Time after which written batches are flushed to disk: the work that a loss of power may cost."""
DISK_SHARE = 0.05
"""Share of its time that a run spends on either at most: files of hundreds of cells take longer than those times."""
FLUSHED_AT_ONCE = 16
"""Files flushed at the same time: the disk then takes a tenth of the time for each."""
_Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
"""Seconds of `time.time`, up to the year 5138."""
MAX_RESULTS_BYTES = 1 << 34
"""Largest file of results that is read: it is held in memory."""
_COMPRESSED: dict[str, Any] = {"zlib": True, "complevel": 4, "shuffle": True}
"""Every reader of netCDF 4 undoes it, and no digit is lost."""
_WORTH_BYTES = 2048
"""Size from which compressing an array saves more than what netCDF then keeps of its chunks."""
DEFAULT_OUTPUT = Path("outputs")


def due(began: float, seconds: float, share: float) -> float:
    """Return when to do again what began then: in so many seconds, or in more, for it to take a share of the time."""
    ended = time.monotonic()
    return ended + max(seconds, (ended - began) / share)


class Owner(Record):
    """The process that last held the lock of a folder."""

    pid: Annotated[int, Field(ge=1, lt=2**31)]
    host: str
    born: _Moment
    started: _Moment

    @property
    def alive(self) -> bool | None:
        """Whether the process still runs; None if it is on another machine, where this cannot be told."""
        import psutil

        if self.host != platform.node():
            return None
        try:
            # The system gives the number of a dead process to another; not its time of birth.
            return abs(psutil.Process(self.pid).create_time() - self.born) < 1.0
        except psutil.Error:
            return False


class Store:
    """Folder of one study under one profile; batches of the ``known`` stores, which are only read, count as stored."""

    def __init__(self, folder: Path | Folder, known: tuple[Store, ...] = ()) -> None:
        self.files = folder if isinstance(folder, Folder) else Folder(folder)
        self.known = known
        self._waiting: dict[Segment, dict[int, bytes]] = defaultdict(dict)
        self._gathers = False
        self._write_due, self._flush_due = 0.0, time.monotonic() + FLUSH_SECONDS
        self._unflushed: set[tuple[Folder, str]] = set()

    @property
    def folder(self) -> Path:
        """Path of the folder, for people and programs that read it."""
        return self.files.path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other writers, and remove what a killed one left half written."""
        import psutil

        with contextlib.ExitStack() as held:
            self.files.require_ours()
            try:
                held.enter_context(self.files.locked(".lock"))
            except Held:
                holder, remedy = "another process", "wait for it, or choose another --output"
                with contextlib.suppress(ValueError):
                    owner = Owner.model_validate(self.read_json(".owner.json"))
                    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner.started))
                    holder = f"process {owner.pid} on {owner.host} since {since}"
                raise UserError(f"{self.folder}: in use by {holder}; {remedy}") from None
            try:
                for name in self.files.at(ASIDE).names():
                    self.files.delete(f"{ASIDE}/{name}")
                born = psutil.Process().create_time()
                owner = Owner(pid=os.getpid(), host=platform.node(), born=born, started=time.time())
                self.write_json(".owner.json", owner.model_dump())
                self._gathers = True
                self._write_due = max(self._write_due, time.monotonic() + GATHER_SECONDS)
                yield
                self.flush()
            finally:
                self._gathers = False
                try:
                    self._write()
                finally:
                    self.files.delete(".owner.json")

    def owner(self) -> Owner | None:
        """Return who holds the lock, or held it when killed, here or else in a known folder; None if all ended well."""
        with contextlib.suppress(ValueError):
            return Owner.model_validate(self.read_json(".owner.json"))
        return next(filter(None, (store.owner() for store in self.known)), None)

    def _cell(self, identity: str) -> Folder:
        return self.files.at("batches", identity)

    def place(self, identity: str, batch: int) -> str:
        """Return where a batch is stored, for people."""
        return f"{Segment(self._cell(identity), batch // LENGTH).path('records')}, batch {batch}"

    def stored_batches(self, identity: str) -> frozenset[int]:
        """Return the numbers of the batches on disk, whole or damaged."""
        self._write()
        own = (segment.batches() for segment in segments(self._cell(identity)))
        return frozenset().union(*own, *(store.stored_batches(identity) for store in self.known))

    def batches_since(self, identity: str, moment: float) -> int:
        """Return how many batches of a cell were stored after a moment, in seconds of `time.time`."""
        stored = (segment for store in (self, *self.known) for segment in segments(store._cell(identity)))
        return sum(int((segment.entries()["stored"] > moment).sum()) for segment in stored)

    def write_batch(self, identity: str, batch: int, moments: Moments, cell: Cell) -> None:
        """Store one batch, whole or not at all, and durably soon, by `FLUSH_SECONDS`, or at the next `flush`."""
        self._waiting[Segment(self._cell(identity), batch // LENGTH)][batch] = pack(batch, moments, cell)
        now = time.monotonic()
        if now >= self._flush_due:
            self.flush()
        elif not self._gathers or now >= self._write_due:
            self._write()

    def _write(self) -> None:
        """Write what waits, the batches of a segment together."""
        began = time.monotonic()
        waiting, self._waiting = self._waiting, defaultdict(dict)
        for segment, records in waiting.items():
            try:
                segment.append(records)
            except OSError as error:
                raise refused(segment.path("records"), error, "written") from error
            self._unflushed |= {(segment.folder, segment.name(kind)) for kind in ("index", "records")}
        self._write_due = due(began, GATHER_SECONDS, DISK_SHARE)

    def flush(self) -> None:
        """Wait until the batches so far, and the names of their files, are on disk; UserError if it fails."""
        began = time.monotonic()
        self._write()
        written, self._unflushed = self._unflushed, set()
        if written:
            with ThreadPool(FLUSHED_AT_ONCE) as pool:
                # Reversed, records come before the index that tells of them.
                for name in sorted({name for _, name in written}, reverse=True):
                    pool.map(partial(Folder.flush, name=name), [cell for cell, each in written if each == name])
                pool.map(Folder.flush, {cell for cell, _ in written})
            self.files.at("batches").flush()
        self._flush_due = due(began, FLUSH_SECONDS, DISK_SHARE)

    def read_batches(self, identity: str, batches: Collection[int], cell: Cell) -> dict[int, Moments]:
        """Return of these batches, by number, all but what is missing, damaged, another's or impossible."""
        self._write()
        found: dict[int, Moments] = {}
        for number, numbers in by_segment(sorted(set(batches))):
            found |= Segment(self._cell(identity), number).read(numbers, cell)
        for store in self.known:
            found |= store.read_batches(identity, set(batches) - found.keys(), cell)
        return found

    def state_cell(self, identity: str, statement: Statement) -> None:
        """Write down what a cell is, unless that stands there already."""
        content = statement.model_dump_json().encode() + b"\n"
        with contextlib.suppress(Missing):
            if self._cell(identity).read(_STATEMENT, MAX_STATEMENT_BYTES) == content:
                return
        self._write()
        self.files.write(f"batches/{identity}/{_STATEMENT}", content, flush=False)
        self._unflushed.add((self._cell(identity), _STATEMENT))

    def write_dataset(self, name: str, dataset: xr.Dataset | xr.DataTree) -> Path:
        """Store a labelled data set as netCDF, its digest behind the end that netCDF knows, and return its path."""
        return self.files.write(name, with_digest(netcdf(dataset)))

    def write_text(self, name: str, text: str, flush: bool = True) -> Path:
        """Store a text file of the study and return its path; not flushed, a loss of power may spoil it."""
        return self.files.write(name, text.encode(), flush)

    def write_json(self, name: str, content: Any) -> Path:
        """Store plain data as JSON and return the path."""
        return self.write_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """Return what a JSON file holds; nothing if it is missing or no such file."""
        try:
            content = json.loads(self.files.read(name, MAX_JSON_BYTES))
        except (Missing, ValueError, RecursionError):  # the last: nested beyond what the parser bears
            return {}
        return content if isinstance(content, dict) else {}

    @property
    def design_file(self) -> Path | None:
        """Where the design lies whose results the folder holds: stated from there, as both may have moved."""
        stated = self.read_json(PROVENANCE_FILE).get("design_file")
        return Path(os.path.normpath(self.folder.absolute() / stated)) if isinstance(stated, str) else None


def store_of(design: Design, output: str | Path = DEFAULT_OUTPUT) -> Store:
    """Return the store of a design: ``<output>/<study>/<profile>``, or ``confirmed/<digest>`` in it."""
    folder = Folder(Path(output), (design.study.name, design.profile))
    return Store(folder.at("confirmed", design.confirmation.digest) if design.confirmation else folder)


def netcdf(data: xr.Dataset | xr.DataTree) -> bytes:
    """Return data as the bytes of a netCDF file: written by us, so that a full disk raises what we expect."""
    # Imported here and below: they take half a second, which who looks at batches alone need not wait for.
    import netCDF4
    import xarray as xr
    from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

    tree = data if isinstance(data, xr.DataTree) else xr.DataTree(data)
    with NETCDF4_PYTHON_LOCK:
        # Both arguments are required for a file in memory, but name no file and no size.
        target = netCDF4.Dataset("results.nc", "w", memory=1)
        for node in tree.subtree:
            dataset = node.to_dataset(inherit=False).copy()
            for variable in dataset.variables.values():
                # Texts become characters, as text of any length cannot be compressed.
                text = {"dtype": "S1"} if variable.dtype.kind in "OTU" else {}
                variable.encoding = _COMPRESSED | text if variable.nbytes >= _WORTH_BYTES else text
            dataset.dump_to_store(_unlocked(target, node.path))
        return bytes(target.close())


def _unlocked(file: netCDF4.Dataset, group: str) -> NetCDF4DataStore:
    """Return what xarray reads from and writes to, while its lock is held: netCDF is not safe for threads."""
    from xarray.backends import NetCDF4DataStore
    from xarray.backends.file_manager import DummyFileManager

    return NetCDF4DataStore(DummyFileManager(file), group=group, mode="a", lock=False)


def read_results(path: Path, folder: Folder | None = None) -> xr.Dataset:
    """Load a labelled data set into memory, from its folder, by default the one that the path names."""
    found = read_tree(path, folder)
    dataset = found.to_dataset()
    dataset.encoding = dict(found.encoding)
    return dataset


def read_tree(path: Path, folder: Folder | None = None) -> xr.DataTree:
    """Load results with their groups into memory, without an encoding, which would spoil what is saved again."""
    # Imported here, as above.
    import netCDF4
    import xarray as xr
    from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

    try:
        content = (folder or Folder(path.parent)).read(path.name, MAX_RESULTS_BYTES)
    except Missing:
        raise Missing(f"{path}: no results can be read (no such file); run the study first") from None
    bare = content[:-DIGEST_LENGTH]
    if hashlib.sha256(bare).hexdigest().encode() != content[-DIGEST_LENGTH:]:
        raise UserError(f"{path}: damaged, or not the results of a study; run the study again")
    try:
        with NETCDF4_PYTHON_LOCK, netCDF4.Dataset("results.nc", memory=bare) as file:
            groups = [file]
            for group in groups:
                groups += group.groups.values()
            opened = {group.path: xr.open_dataset(_unlocked(file, group.path)) for group in groups}
            found = xr.DataTree.from_dict({name: each.load().drop_encoding() for name, each in opened.items()})
    except Exception as error:  # a damaged file may raise whatever the libraries meet in it
        raise UserError(f"{path}: no results can be read ({error}); run the study first") from None
    # Where the details of the same run are looked for, from any working directory.
    found.encoding = {"source": str(path.absolute())}
    return found
