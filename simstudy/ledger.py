"""Which batches are done, which are wanted next, and what each cell's measures are so far.

Imports NumPy, design, cells, combinations, batch, moments, performance, problems, provenance, replication,
schedule (its `Task`) and store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from simstudy.batch import shares_data
from simstudy.cells import Cell
from simstudy.combinations import combine_heads
from simstudy.design import Design, PlannedCell
from simstudy.moments import Moments, stack
from simstudy.performance import Performance, performance
from simstudy.problems import UserError
from simstudy.provenance import engine
from simstudy.replication import Shortfall, first_target, needed, next_target, shortfall
from simstudy.schedule import Task
from simstudy.store import Store

CELLS_PER_TASK = 8
"""Cells that one task evaluates on shared data: more would save little drawing and make tasks long."""


@dataclass
class Account:
    """Where one planned cell stands.

    Attributes
    ----------
    planned
        The cell and the precision it is to be run to.
    identity
        Name under which its batches are stored.
    target
        Batches wanted so far.
    done
        Batches folded at the last look; equal to ``target`` once the stopping rule wants no more.
    performance
        Measures at the last look; None before the first, or if fewer than two blocks have a defined replicate.
    failed
        Numbers of the replicates without a defined estimate at the last look.
    damaged
        Stored batches that turned out damaged and have to be computed again.
    """

    planned: PlannedCell
    identity: str
    target: int
    done: int = 0
    performance: Performance | None = None
    failed: tuple[int, ...] = ()
    missing: set[int] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)

    @property
    def finished(self) -> bool:
        """Whether the stopping rule wants no further batch."""
        return self.done == self.target

    @property
    def expected(self) -> int:
        """Batches that the precision will take in all, as far as the last look can tell."""
        if self.performance is None:
            return self.target
        return max(self.target, needed(self.done, self.performance, self.planned.precision, self.batch_size))

    @property
    def n_failed(self) -> int:
        """Number of replicates without a defined estimate at the last look."""
        return len(self.failed)

    @property
    def shortfall(self) -> Shortfall | None:
        """The MCSE at the last look that is furthest from the MCSE wanted; None without measures."""
        return None if self.performance is None else shortfall(self.performance, self.planned.precision)

    @property
    def reached(self) -> bool:
        """Whether the precision wanted was reached."""
        return self.shortfall is not None and self.shortfall.ratio <= 1.0

    @property
    def batch_size(self) -> int:
        """Replicates in one batch."""
        return self.planned.cell.simulation.batch_size


class Ledger:
    """Accounts of all cells of a design, kept up to date as batches arrive."""

    def __init__(self, design: Design, store: Store, device: str = "cpu") -> None:
        self._store = store
        # Batches of different devices differ in their last bits, and are never mixed.
        self._engine = engine(device)
        self.accounts = []
        self._sharers: dict[str, list[Account]] = defaultdict(list)
        for planned in design.cells:
            identity = planned.cell.identity(self._engine)
            account = Account(planned, identity, first_target(planned.precision, planned.cell.simulation.batch_size))
            self.accounts.append(account)
            self._sharers[identity].append(account)
        self._stored = {identity: set(store.stored_batches(identity)) for identity in self._sharers}
        self._queued: set[tuple[str, int]] = set()
        self._written: set[tuple[str, int]] = set()

    def first_tasks(self) -> list[Task]:
        """Look at what is stored and return the tasks that are missing for the next look at each cell."""
        for account in self.accounts:
            self._advance(account)
        return self._tasks(self.accounts)

    def pilot_tasks(self, n_batches: int) -> list[Task]:
        """Look at what is stored and return tasks for the first missing batches of each cell, so many at most."""
        for account in self.accounts:
            self._advance(account)
        shortened = [replace(a, missing=set(sorted(a.missing)[:n_batches])) for a in self.accounts]
        return self._tasks(shortened)

    def identities(self, task: Task) -> list[str]:
        """Return under which names the batches of a task are stored."""
        return [cell.identity(self._engine) for cell in task.cells]

    def record(self, task: Task, batches: list[Moments]) -> list[Task]:
        """Store the moments of a task and return the further tasks that they call for."""
        touched = []
        for identity, moments in zip(self.identities(task), batches, strict=True):
            self._store.write_batch(identity, task.batch, moments)
            self._written.add((identity, task.batch))
            self._stored[identity].add(task.batch)
            self._queued.discard((identity, task.batch))
            for account in self._sharers[identity]:
                account.missing.discard(task.batch)
                if not account.missing and not account.finished:
                    self._advance(account)
                    touched.append(account)
        return self._tasks(touched)

    @property
    def work_done(self) -> float:
        """Estimated cost of the batches that are stored and wanted."""
        return sum((a.target - len(a.missing)) * cost(a.planned.cell) for a in self.accounts)

    @property
    def work_expected(self) -> float:
        """Estimated cost of the batches that the precision will take; every look corrects it."""
        return sum(a.expected * cost(a.planned.cell) for a in self.accounts)

    def tally(self) -> dict[str, int]:
        """Return how many batches this run computed, and how many it found damaged and found whole."""
        wanted = {(a.identity, batch) for a in self.accounts for batch in range(a.done)}
        return {
            "batches_computed": len(self._written),
            "batches_damaged": len({(a.identity, batch) for a in self.accounts for batch in a.damaged}),
            "batches_reused": len(wanted - self._written),
        }

    def preview(self, account: Account) -> Account:
        """Return the account of a cell as of the batches stored so far, be they fewer than its next look wants.

        For those who wait: the stopping rule itself looks at all batches or none.
        """
        read = [self._store.read_batch(account.identity, batch) for batch in range(account.target)]
        whole = [moments for moments in read if moments is not None]
        seen = replace(account, done=len(whole), performance=None, failed=())
        if whole:
            self._measure(seen, whole)
        return seen

    def _advance(self, account: Account) -> None:
        """Look at a cell as long as everything for its next look is stored."""
        stored = self._stored[account.identity]
        while True:
            account.missing = set(range(account.target)) - stored
            if account.missing or account.finished:
                return
            batches = [(batch, self._store.read_batch(account.identity, batch)) for batch in range(account.target)]
            whole = [moments for _, moments in batches if moments is not None]
            if len(whole) == account.target:
                self._look(account, whole)
            else:
                self._discard(account, {batch for batch, moments in batches if moments is None})

    def _discard(self, account: Account, damaged: set[int]) -> None:
        """Forget damaged batches, so that they are computed again; but not twice."""
        for batch in damaged:
            if (account.identity, batch) in self._written:
                path = self._store.batch_path(account.identity, batch)
                raise UserError(f"{path}: cannot be read back; check the disk of the outputs, and run again")
        account.damaged |= damaged
        self._stored[account.identity] -= damaged

    def _look(self, account: Account, batches: list[Moments]) -> None:
        account.done = account.target
        self._measure(account, batches)
        if account.performance is not None:
            account.target = next_target(
                account.done, account.performance, account.planned.precision, account.batch_size
            )

    def _measure(self, account: Account, batches: list[Moments]) -> None:
        blocks = stack(batches)
        account.failed = tuple(blocks.failed.tolist())
        # With too few defined estimates there is no Monte Carlo error, and more replicates of the same would not
        # help before the ceiling: the cell stops, its failures counted.
        if np.count_nonzero(blocks.n_defined) >= 2:
            account.performance = performance(blocks, combine_heads(account.planned.cell))

    def _tasks(self, accounts: Iterable[Account]) -> list[Task]:
        """Group missing batches into tasks: cells that share data are evaluated together."""
        groups: dict[tuple, dict[str, Cell]] = defaultdict(dict)
        for account in accounts:
            for batch in sorted(account.missing):
                if (account.identity, batch) not in self._queued:
                    self._queued.add((account.identity, batch))
                    groups[(batch, *shares_data(account.planned.cell))][account.identity] = account.planned.cell
        tasks = []
        for (batch, *_), members in groups.items():
            cells = list(members.values())
            tasks += [
                Task(tuple(cells[start : start + CELLS_PER_TASK]), batch)
                for start in range(0, len(cells), CELLS_PER_TASK)
            ]
        return tasks


def cost(cell: Cell) -> float:
    """Return the estimated cost of a batch of a cell, in arbitrary units: normals drawn and weights evaluated."""
    data, heads = cell.data, cell.heads
    per_key = data.n_features * (1 + heads.n_heads * heads.head_dim / 8)
    per_weight = 1 + heads.head_dim / 8 + heads.n_heads / 8
    weights = cell.n_queries * heads.n_heads * per_weight
    return cell.simulation.batch_size * data.n_keys * (per_key + weights)
