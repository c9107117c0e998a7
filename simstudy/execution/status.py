"""How far each cell of a study is: as a run last wrote it beside its batches, or else how many of these there are.

A run writes every second where it stands, for those who read it without kernels and theory.  Batches that have come
since are counted.  What it wrote last also tells whether results still are those of what is stored.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from simstudy.design.document import Design
from simstudy.design.settings.cell import contents
from simstudy.design.settings.records import Record
from simstudy.execution.folder import Missing, due
from simstudy.execution.provenance import PACKAGE, identity_of, installation
from simstudy.execution.store import DETAILS_FILE, MAX_RESULTS_BYTES, PROVENANCE_FILE, RESULTS_FILE, Store
from simstudy.replicates.allocation import SIZES, states_size

if TYPE_CHECKING:
    from simstudy.execution.state import RunState

FILE = ".status.json"
TELL_SECONDS, TELL_SHARE = 1.0, 0.02
"""Time after which a run writes where it stands again, and the share of its time that this may take."""
_SETTINGS = ("NUMBA_", "NPY_", "OPENBLAS_CORETYPE", "CUDA_VISIBLE_DEVICES")
"""Beginnings of the names of environment variables that decide last bits."""


class CellStatus(Record):
    """Where one cell stands."""

    identity: str  # Name under which its batches are stored
    batch_size: int  # Replicates in each of them
    stored: int  # Batches that are stored of those wanted so far
    target: int  # How many are wanted so far
    expected: int  # How many the precision will take
    looked: bool = False
    finished: bool = False  # It wants nothing more
    reached: bool = False  # It has its precision
    cut: bool = False  # The budget stopped it
    defined: bool = False  # It has estimates
    failed: int = 0  # Replicates without a defined estimate
    first_failed: int | None = None
    measure: str | None = None  # Whose Monte Carlo error is furthest from the one wanted; None before a look
    mcse: float | None = None
    wanted: float | None = None


class Status(Record):
    """Where all cells of a study stand, in the order of the design."""

    origin: str  # Digest of the design, code and installation; empty where batches are counted, not looked at
    as_of: float  # When that was written, in seconds of `time.time`
    seconds_left: float | None = None  # How long the run would still take; None while it could not be told
    cells: tuple[CellStatus, ...]  # Each cell
    results: str = ""  # Digest of what results rest on and of the results; empty before they are written

    @property
    def finished(self) -> int:
        """Number of cells that want nothing more."""
        return sum(cell.finished for cell in self.cells)


class StatusWriter:
    """Writes down where a run stands, now and then."""

    def __init__(self, store: Store, design: Design) -> None:
        self._store, self._origin = store, origin_of(design)
        self._due, self._began = -math.inf, time.monotonic()
        self._found: float | None = None  # Work that was done already

    def __call__(self, state: RunState) -> None:
        """Write down where each cell stands as of the last look at it, if it is time to."""
        began = time.monotonic()
        if began >= self._due:
            self.write(state)
            self._due = due(began, TELL_SECONDS, TELL_SHARE)

    def write(self, state: RunState, device: str = "") -> Status:
        """Write down, and return, where each cell stands; with a device also what the results rest on, once written."""
        status = status_of(state, self._origin)
        known, (done, expected, *_) = state.work_known, state.standing
        self._found = done if self._found is None else self._found
        changes: dict[str, Any] = {"results": _digest_of_results(self._store, device) if device else ""}
        if known and done > self._found:
            changes["seconds_left"] = (expected - done) * (time.monotonic() - self._began) / (done - self._found)
        status = status.model_copy(update=changes)
        self._store.files.write(FILE, status.model_dump_json().encode(), flush=False)
        return status


def read_status(design: Design, store: Store) -> Status | None:
    """Return where a study stands as the last run wrote it; None if it was of another design, code or batches."""
    try:
        status = Status.model_validate_json(store.files.read(FILE, MAX_RESULTS_BYTES))
    except (Missing, ValidationError):
        return None
    if len(status.cells) != len(design.cells) or status.origin != origin_of(design):
        return None
    now = [store.stored(cell.identity).count(cell.target) for cell in status.cells]
    cells = tuple(cell.model_copy(update={"stored": n}) for cell, n in zip(status.cells, now, strict=True))
    gone = any(n < cell.stored for cell, n in zip(status.cells, now, strict=True))
    return None if gone else status.model_copy(update={"cells": cells})


def counted(design: Design, store: Store) -> Status:
    """Return how many batches are stored of each cell, without what a look at them would tell."""
    cells = []
    for cell in (planned.cell for planned in design.cells):
        # Of what the first run chooses, by a pilot that takes its time, that of which there are batches.
        free = [{}, {"control": "none"}] if states_size(cell) else [{"batch_size": size} for size in SIZES.tolist()]
        sized = [cell.with_simulation(**each) for each in free]
        rows = ((store.stored(name := identity_of(each)).count(), each.simulation.batch_size, name) for each in sized)
        n, size, identity = max(rows)
        cells.append(CellStatus(identity=identity, batch_size=size, stored=n, target=n, expected=n))
    return Status(origin="", as_of=time.time(), cells=tuple(cells))


def is_done(status: Status | None, store: Store, device: str) -> bool:
    """True if a run would compute and judge nothing, and write what is there already."""
    if status is None or not status.results or any(cell.cut or not cell.finished for cell in status.cells):
        return False
    return store.is_whole() and status.results == _digest_of_results(store, device)


def _digest_of_results(store: Store, device: str) -> str:
    digest = hashlib.sha256(f"{device} {store.digest()}".encode())
    for name in (RESULTS_FILE, DETAILS_FILE, PROVENANCE_FILE):
        try:
            digest.update(hashlib.sha256(store.files.read(name, MAX_RESULTS_BYTES)).digest())
        except Missing:
            return ""
    return digest.hexdigest()


def origin_of(design: Design) -> str:
    """Return a digest of all that results rest on but the batches: design, its files, code, installation."""
    # The engine is not asked for, as to compile takes longer than to read all sources, on which it depends.
    read = contents([planned.cell for planned in design.cells]), installation()
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith(_SETTINGS))
    stated = repr((design.text, design.profile, design.confirmation, design.claims, read, settings))
    files = (path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    return hashlib.sha256(b"".join([stated.encode(), *(path.read_bytes() for path in files)])).hexdigest()


def status_of(state: RunState, origin: str) -> Status:
    """Return where a study stands, as of the last look at each cell."""
    cells = []
    for account in state.accounts:
        entries = {name: getattr(account, name) for name in ("identity", "batch_size", "target", "expected", "cut")}
        if worst := account.shortfall:
            entries |= {name: getattr(worst, name) for name in ("measure", "mcse", "wanted")}
        entries |= {
            "stored": account.target - account.missing,
            "looked": account.done > 0,
            "finished": account.finished and not account.cut,
            "reached": account.finished and account.reached,
            "defined": account.performance is not None,
            "failed": len(account.failed),
            "first_failed": account.failed[0] if account.failed else None,
        }
        cells.append(CellStatus(**entries))
    return Status(origin=origin, as_of=time.time(), cells=tuple(cells))
