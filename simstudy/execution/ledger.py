"""Which batches are done, which are wanted next, and what each cell's measures are so far.

A design may want ten million batches of a cell.  So what is wanted is a number, and tasks are made as they are needed:
memory and time follow what is stored and what is in flight.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from simstudy.design.document import Design, PlannedCell
from simstudy.design.settings.cell import Cell
from simstudy.errors import UserError
from simstudy.execution.batch_files import Statement, by_segment
from simstudy.execution.provenance import engine
from simstudy.execution.queue import Task
from simstudy.execution.store import Store
from simstudy.replicates.batch import shares_data
from simstudy.replicates.moments import Moments
from simstudy.replicates.performance import Performance, block_lengths, fold, whole_blocks
from simstudy.replicates.population import measured
from simstudy.replicates.stopping import GROWTH, Shortfall, first_target, needed, next_target, shortfall

T = TypeVar("T")

CELLS_PER_TASK = 8
"""Cells that one task evaluates on shared data: more would save little drawing and make tasks long."""


@dataclass
class Account:
    """Where one planned cell stands: ``target`` batches are wanted, ``done`` were folded at the last look."""

    planned: PlannedCell
    identity: str
    target: int
    stored: set[int]  # Numbers of the batches on disk, also beyond the target; shared by accounts of one identity
    done: int = 0
    performance: Performance | None = None
    failed: tuple[int, ...] = ()
    missing: int = 0
    damaged: set[int] = field(default_factory=set)
    looks: list[int] = field(default_factory=list)
    cut: bool = False

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
    def shortfall(self) -> Shortfall | None:
        """The MCSE at the last look that is furthest from the MCSE wanted; None without measures."""
        return None if self.performance is None else shortfall(self.performance, self.planned.precision)

    @property
    def reached(self) -> bool:
        """Whether the precision wanted was reached, and no budget came before what else was wanted."""
        return not self.cut and self.shortfall is not None and self.shortfall.ratio <= 1.0

    @property
    def batch_size(self) -> int:
        """Replicates in one batch."""
        return self.planned.cell.simulation.batch_size


def cost(cell: Cell) -> float:
    """Return the estimated cost of a batch of a cell, in arbitrary units: normals drawn and weights evaluated."""
    data, heads = cell.data, cell.heads
    per_key = data.n_features * (1 + heads.n_heads * heads.head_dim / 8)
    per_weight = 1 + heads.head_dim / 8 + heads.n_heads / 8
    # Functions are taken for attention of every key to all.
    weights = (cell.n_queries or data.n_keys) * heads.n_heads * per_weight
    return cell.simulation.batch_size * data.n_keys * (per_key + weights)


class Ledger:
    """Accounts of all cells of a design, kept up to date as batches arrive.

    ``rule``: from the accounts of all cells, none of which wants a batch for itself, to how many are wanted for the
    whole; ``control``: from a cell and its performance to one with smaller errors.
    """

    def __init__(
        self,
        design: Design,
        store: Store,
        device: str = "cpu",
        rule: Callable[[Sequence[Account]], Sequence[int]] | None = None,
        control: Callable[[Cell, Performance], Performance] = lambda _, performance: performance,
    ) -> None:
        self._store = store
        self._rule = rule
        self._control = control
        # Batches of different devices differ in their last bits, and are never mixed.
        self._device = device
        self.accounts: list[Account] = []
        self._identities: dict[int, str] = {}
        self._sharers: dict[str, list[Account]] = defaultdict(list)
        for planned in design.cells:
            cell = planned.cell
            identity = self._identities[id(cell)] = cell.identity(engine(device, [cell]))
            sharers = self._sharers[identity]
            stored = sharers[0].stored if sharers else set(store.stored_batches(identity))
            target = first_target(planned.precision, cell.simulation.batch_size, population=bool(cell.population))
            sharers.append(Account(planned, identity, target, stored))
            self.accounts.append(sharers[-1])
        self._queued: set[tuple[str, int]] = set()
        self._written: set[tuple[str, int]] = set()

    def state_cells(self) -> None:
        """Write down beside the batches of each cell what it is, for those who compute them again."""
        for identity, sharers in self._sharers.items():
            cell = sharers[0].planned.cell
            self._store.state_cell(identity, Statement(engine=engine(self._device, [cell]), cell=cell))

    def first_tasks(self) -> Iterator[Task]:
        """Look at what is stored and return the tasks to begin with, made as they are asked for."""
        for account in self.accounts:
            self._advance(account)
        self._look_at_all()
        return self._tasks(self.accounts)

    def pilot_tasks(self, n_batches: int) -> list[Task]:
        """Look at what is stored and return tasks for the first missing batches of each cell, so many at most."""
        for account in self.accounts:
            self._advance(account)

        def stop(account: Account) -> int:
            missing = (batch for batch in range(account.target) if batch not in account.stored)
            return next(islice(missing, n_batches, None), account.target)

        return list(self._tasks(self.accounts, stop))

    def identities(self, task: Task) -> list[str]:
        """Return under which names the batches of a task are stored."""
        # By the object that the account holds: to digest its settings again would take longer than a short batch.
        return [self._identities[id(cell)] for cell in task.cells]

    def record(self, task: Task, batches: list[Moments]) -> Iterator[Task]:
        """Store the moments of a task and return further tasks, made as they are asked for."""
        touched = []
        for cell, identity, moments in zip(task.cells, self.identities(task), batches, strict=True):
            self._store.write_batch(identity, task.batch, moments, cell)
            self._written.add((identity, task.batch))
            self._queued.discard((identity, task.batch))
            for account in self._sharers[identity]:
                account.stored.add(task.batch)
                account.missing -= task.batch < account.target
                if not account.missing and not account.finished:
                    self._advance(account)
                    touched.append(account)
        return self._tasks([*touched, *self._look_at_all()])

    @property
    def standing(self) -> tuple[float, float, int, int]:
        """Work done and expected, as far as the last looks can tell, replicates, and finished cells, over all cells."""
        rows = []
        for account in self.accounts:
            each, stored = cost(account.planned.cell), account.target - account.missing
            rows.append((stored * each, account.expected * each, stored * account.batch_size, account.finished))
        done, expected, replicates, finished = map(sum, zip(*rows, strict=True))
        return done, expected, replicates, finished

    @property
    def work_known(self) -> bool:
        """Whether every cell has been looked at: before, nobody can tell how many batches its precision will take."""
        return all(account.done for account in self.accounts)

    def tally(self) -> dict[str, int]:
        """Return how many batches this run computed, and how many it found damaged and found whole."""
        done = {identity: max(account.done for account in sharers) for identity, sharers in self._sharers.items()}
        return {
            "batches_computed": len(self._written),
            "batches_damaged": len({(a.identity, batch) for a in self.accounts for batch in a.damaged}),
            "batches_reused": sum(done.values()) - sum(batch < done[identity] for identity, batch in self._written),
        }

    def preview(self, account: Account) -> Account:
        """Return the account of a cell as of the batches stored so far, for those who wait."""
        stored = _stored_of(account)
        whole, damaged = self._read(account, stored)
        seen = replace(account, done=len(stored) - len(damaged), performance=None, failed=())
        if whole:
            self._measure(seen, whole)
        return seen

    def _advance(self, account: Account) -> None:
        """Look at a cell as long as everything for its next look is stored."""
        _count(account)
        while not account.missing and not account.finished:
            self._look(account)

    def cut(self) -> None:
        """Want no more: a cell that is not finished stops at the batches that are stored from its first on."""
        for account in self.accounts:
            account.cut = not account.finished
            while not account.finished:
                stored = _stored_of(account)
                account.target = next((place for place, batch in enumerate(stored) if place != batch), len(stored))
                if not account.finished and self._look(account):
                    account.cut = account.target != account.done or account.planned.precision.stop != "precision"
                    account.target = account.done
            account.missing = 0

    def _look_at_all(self) -> list[Account]:
        """Ask the rule when no cell wants more, whatever the order of batches; return those that it wants more of."""
        raised: list[Account] = []
        while self._rule is not None and all(account.finished for account in self.accounts):
            wanted = self._rule(self.accounts)
            further = [(a, min(n, GROWTH * a.done)) for a, n in zip(self.accounts, wanted, strict=True) if n > a.target]
            if not further:
                break
            for account, target in further:
                account.target = target
                self._advance(account)
            raised += [account for account, _ in further]
        return raised

    def _read(self, account: Account, batches: Sequence[int]) -> tuple[list[Moments], set[int]]:
        """Return what these batches of a cell, in order, fold to as they are read, and which of them are damaged."""
        cell, done = account.planned.cell, 0
        parts: list[Moments] = []
        unfolded: list[Moments] = []
        damaged: set[int] = set()
        for _, numbers in by_segment(batches):
            read = self._store.read_batches(account.identity, numbers, cell)
            damaged.update(number for number in numbers if number not in read)
            unfolded += [read[number] for number in numbers if number in read]
            whole = done if cell.population else whole_blocks(done + len(unfolded))
            if whole > done:
                parts.append(fold(unfolded[: whole - done], done))
                unfolded, done = unfolded[whole - done :], whole
        if unfolded and not cell.population:
            return [*parts, fold(unfolded, done)], damaged
        return parts or unfolded, damaged

    def _look(self, account: Account) -> bool:
        """Measure all that is wanted of a cell; return False if damaged batches, now missing, have to come first."""
        whole, damaged = self._read(account, range(account.target))
        for batch in damaged:
            if (account.identity, batch) in self._written:
                place = self._store.place(account.identity, batch)
                raise UserError(f"{place}: cannot be read back; check the disk of the outputs, and run again")
        if damaged:
            account.damaged |= damaged
            account.stored -= damaged
            for sharer in self._sharers[account.identity]:
                _count(sharer)
            return False
        account.done = account.target
        account.looks.append(account.done)
        self._measure(account, whole)
        if account.performance is not None:
            precision = account.planned.precision
            account.target = next_target(account.done, account.performance, precision, account.batch_size)
        _count(account)
        return True

    def _measure(self, account: Account, batches: list[Moments]) -> None:
        account.failed = tuple(int(replicate) for batch in batches for replicate in batch.failed)
        # With too few defined estimates there is no Monte Carlo error, and more replicates of the same would not
        # help before the ceiling: the cell stops, its failures counted.
        cell = account.planned.cell
        performance = measured(cell, batches, block_lengths(account.done))
        account.performance = performance and self._control(cell, performance)

    def _tasks(
        self, accounts: Iterable[Account], stop: Callable[[Account], int] = lambda account: account.target
    ) -> Iterator[Task]:
        """Yield missing batches, those of a cell below a number: cells that share data are evaluated together."""
        for sharers in sharing_data(accounts, lambda account: account.planned.cell, self._device):
            stops = list(map(stop, sharers))
            for batch in range(max(stops)):
                wanted = [account for account, stop in zip(sharers, stops, strict=True) if batch < stop]
                cells = [account.planned.cell for account in wanted if self._claim(account, batch)]
                yield from (Task(tuple(together), batch) for together in of_one_task(cells))

    def _claim(self, account: Account, batch: int) -> bool:
        """Take a batch to be computed, unless it is stored or in flight."""
        address = (account.identity, batch)
        if batch in account.stored or address in self._queued:
            return False
        self._queued.add(address)
        return True


def _stored_of(account: Account) -> list[int]:
    """Return the numbers of the batches that are wanted and stored, in order."""
    return sorted(batch for batch in account.stored if batch < account.target)


def _count(account: Account) -> None:
    account.missing = account.target - len(_stored_of(account))


def sharing_data(entries: Iterable[T], cell_of: Callable[[T], Cell], device: str = "cpu") -> list[list[T]]:
    """Return the entries in groups whose cells draw the same data on a device."""
    groups: dict[tuple, list[T]] = defaultdict(list)
    for entry in entries:
        groups[shares_data(cell_of(entry), device)].append(entry)
    return list(groups.values())


def of_one_task(sharers: list[T]) -> Iterator[list[T]]:
    """Yield what one task evaluates of cells that share data, or of anything that stands for one."""
    return (sharers[start : start + CELLS_PER_TASK] for start in range(0, len(sharers), CELLS_PER_TASK))
