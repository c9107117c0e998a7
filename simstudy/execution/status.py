"""How far each cell of a study is: as a run last wrote it beside its batches, or else how many of these there are.

A run writes every second where it stands, for those who read it without kernels and theory.  Batches that have come
since are counted.  What it wrote last also tells whether results still are those of what is stored.
"""

from __future__ import annotations

import time

from pydantic import ValidationError

from simstudy.design.document import Design
from simstudy.design.settings.records import Record
from simstudy.execution.folder import Missing
from simstudy.execution.provenance import identity_of, origin_of
from simstudy.execution.store import MAX_RESULTS_BYTES, Store
from simstudy.replicates.allocation import SIZES, states_size

FILE = ".status.json"


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
    return store.is_whole() and status.results == store.digest(device)
