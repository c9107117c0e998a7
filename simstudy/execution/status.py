"""How far each cell of a study is: as a run last told it beside its batches, or else how many of these there are.

To look takes all that a run needs, the compiled kernels and often the theory; to read what was told takes neither.
So a run tells every second where it stands.  Batches that have come since are counted in their indices; errors,
failures and what is still to come are those of the last look at each cell.
"""

from __future__ import annotations

import hashlib
import math
import time
from typing import TYPE_CHECKING

from pydantic import ValidationError

from simstudy.design.document import Design
from simstudy.design.settings.records import Record
from simstudy.execution.folder import Missing
from simstudy.execution.provenance import PACKAGE, contents, engine, installation
from simstudy.execution.store import MAX_STATEMENT_BYTES, Store, due

if TYPE_CHECKING:
    from simstudy.execution.ledger import Ledger

FILE = ".status.json"
TELL_SECONDS = 1.0
"""Time between two times that a run tells where it stands."""
TELL_SHARE = 0.02
"""Share of its time that a run spends on that at most: of thousands of cells it takes as long as many batches."""


class CellStatus(Record):
    """Where one cell stands."""

    identity: str  # Name under which its batches are stored
    batch_size: int  # Replicates in each of them
    # stored, target, expected: Batches that are stored of those wanted so far, how many these are, and how many the
    # precision will take
    stored: int
    target: int
    expected: int
    work: float = 0.0  # What a batch costs, in arbitrary units
    # looked, finished, reached, cut, defined: Whether it was looked at, wants nothing more, has its precision, was
    # stopped by the budget, and has estimates
    looked: bool = False
    finished: bool = False
    reached: bool = False
    cut: bool = False
    defined: bool = False
    # failed, first_failed: Replicates without a defined estimate, and the number of the first
    failed: int = 0
    first_failed: int | None = None
    # measure, mcse, wanted: The Monte Carlo error furthest from the one wanted; None where nothing was measured
    measure: str | None = None
    mcse: float | None = None
    wanted: float | None = None


class Status(Record):
    """Where all cells of a study stand, in the order of the design."""

    # Digest of the design, code and installation of the run; empty where batches are counted, not looked at
    origin: str
    as_of: float  # When that was told, in seconds of `time.time`
    cells: tuple[CellStatus, ...]  # Each cell

    @property
    def finished(self) -> int:
        """Number of cells that want nothing more."""
        return sum(cell.finished for cell in self.cells)


class Teller:
    """Who writes down where the ledger of a run stands, now and then."""

    def __init__(self, store: Store, design: Design) -> None:
        self._store = store
        self._origin = _origin(design)
        self._due = -math.inf

    def __call__(self, ledger: Ledger, last: bool = False) -> None:
        """Write down where each cell stands as of the last look at it, if it is time to, or for the last time."""
        began = time.monotonic()
        if last or began >= self._due:
            status = status_of(ledger, self._origin)
            self._store.write_text(FILE, status.model_dump_json(), flush=False)
            self._due = due(began, TELL_SECONDS, TELL_SHARE)


def told(design: Design, store: Store) -> Status | None:
    """Return where a study stands as the last run told it; None if it was of another design, code or batches."""
    try:
        status = Status.model_validate_json(store.files.read(FILE, MAX_STATEMENT_BYTES))
    except (Missing, ValidationError):
        return None
    if status.origin != _origin(design) or len(status.cells) != len(design.cells):
        return None
    numbers = {cell.identity: store.stored_batches(cell.identity) for cell in status.cells}
    stored = [sum(number < cell.target for number in numbers[cell.identity]) for cell in status.cells]
    if any(now < cell.stored for now, cell in zip(stored, status.cells, strict=True)):
        return None
    cells = (cell.model_copy(update={"stored": now}) for now, cell in zip(stored, status.cells, strict=True))
    return status.model_copy(update={"cells": tuple(cells)})


def _origin(design: Design) -> str:
    # The engine is not asked for, as to compile takes longer than to read all sources, on which it depends.
    read = contents([planned.cell for planned in design.cells]), installation()
    stated = repr((design.text, design.profile, design.confirmation, read))
    sources = (path.read_bytes() for path in sorted(PACKAGE.rglob("*.py")))
    return hashlib.sha256(b"".join([stated.encode(), *sources])).hexdigest()


def counted(design: Design, store: Store) -> Status:
    """Return how many batches are stored of each cell, without what a look at them would tell."""
    cells = []
    for cell in (planned.cell for planned in design.cells):
        identity = cell.identity(engine("cpu", [cell]))
        n, size = len(store.stored_batches(identity)), cell.simulation.batch_size
        cells.append(CellStatus(identity=identity, batch_size=size, stored=n, target=n, expected=n))
    return Status(origin="", as_of=time.time(), cells=tuple(cells))


def status_of(ledger: Ledger, origin: str) -> Status:
    """Return where a study stands, as of the last look at each cell."""
    # Imported here: who reads what was told computes nothing.
    from simstudy.execution.ledger import cost

    cells = []
    for account in ledger.accounts:
        worst = account.shortfall
        cells.append(
            CellStatus(
                identity=account.identity,
                work=cost(account.planned.cell),
                batch_size=account.batch_size,
                stored=account.target - account.missing,
                target=account.target,
                expected=account.expected,
                looked=account.done > 0,
                finished=account.finished and not account.cut,
                reached=account.finished and account.reached,
                cut=account.cut,
                defined=account.performance is not None,
                failed=len(account.failed),
                first_failed=account.failed[0] if account.failed else None,
                measure=worst and worst.measure,
                mcse=worst and worst.mcse,
                wanted=worst and worst.wanted,
            )
        )
    return Status(origin=origin, as_of=time.time(), cells=tuple(cells))


def seconds_left(status: Status, store: Store) -> float | None:
    """Return how long the process that runs a study will still take; None while that cannot be told."""
    owner = store.owner()
    if owner is None or not all(cell.looked for cell in status.cells):
        return None
    works = {cell.identity: cell.work for cell in status.cells}
    done = sum(store.batches_since(identity, owner.started) * work for identity, work in works.items())
    elapsed = time.time() - owner.started
    if done == 0 or elapsed <= 0:  # the latter on a clock that was set back
        return None
    return sum((cell.expected - cell.stored) * cell.work for cell in status.cells) * elapsed / done
