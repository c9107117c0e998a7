"""The state of a run: which batches are done, which are wanted next, and what each cell's measures are so far."""

import json
import math
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple, Self

import numpy as np

from simstudy.design.document import Design, PlannedCell
from simstudy.design.measures import HEAD_MEASURES, MEASURES, PAIR_MEASURES
from simstudy.design.settings.cell import ATTENDED, N_BLOCKS, Cell
from simstudy.errors import UserError
from simstudy.execution.executors import CELLS_PER_TASK, Executor, Meter, Outcome, Task, cores, run_tasks
from simstudy.execution.folder import due
from simstudy.execution.provenance import STATUS_FILE, CellStatus, Status, engine, identity_of, origin_of
from simstudy.execution.store import DRAWN, Entry, Finished, Store, entry_of, index_of, pack, payloads, size_of
from simstudy.replicates.allocation import GROWTH, Shortfall, cost, first_target, needed, next_target, shortfall
from simstudy.replicates.batch import shares_data
from simstudy.replicates.moments import Moments, stack
from simstudy.replicates.performance import Performance, block_lengths, halved, halvings_of, whole_batches
from simstudy.replicates.population import measured

PIECE = 64
"""Batches of a cell that are held at once, or as many as one block is made of."""
TELL_SECONDS = 1.0
"""Time after which a run writes where it stands again."""
LARGE, CHEAP = 1 << 18, 1000.0
"""Bytes of moments that are kept in any case, and cost of a byte, half a second for a MB, of those computed again."""


@dataclass
class CellProgress:
    """Where one planned cell stands: ``target`` batches are wanted, ``done`` were there at the last look."""

    planned: PlannedCell
    batch_size: int  # Replicates in one batch
    identity: str
    stored: set[int]  # Numbers of the batches on disk, also beyond the target; shared by accounts of one identity
    name: str  # Among the cells that share its batches
    first: int  # Batches before the first look
    cost: float  # Of a batch
    sharing: Any  # What cells have in common that may share one drawing
    target: int
    done: int = 0
    performance: Performance | None = None
    failed: tuple[int, ...] = ()
    missing: int = 0
    looks: list[int] = field(default_factory=list)
    cut: bool = False

    @property
    def finished(self) -> bool:
        """True if the stopping rule wants no further batch."""
        return self.done == self.target

    def count_missing(self) -> None:
        """Count what is wanted and not stored: nothing once it was looked at, of which moments need not be left."""
        self.missing = 0 if self.finished else self.target - sum(batch < self.target for batch in self.stored)

    def missing_after(self, count: int) -> int:
        """Number of the batch that is missing after so many others; the target if fewer are."""
        return next(islice((n for n in range(self.target) if n not in self.stored), count, None), self.target)

    @property
    def expected(self) -> int:
        """Batches that the precision will take in all, as far as the last look can tell."""
        least = max(self.target, self.first)
        if self.performance is None:
            return least
        return max(least, needed(self.done, self.performance, self.planned.precision, self.batch_size))

    @property
    def shortfall(self) -> Shortfall | None:
        """The MCSE at the last look that is furthest from the MCSE wanted; None without measures."""
        return None if self.performance is None else shortfall(self.performance, self.planned.precision)

    @property
    def reached(self) -> bool:
        """True if the precision wanted was reached, and no budget came before what else was wanted."""
        return not self.cut and self.shortfall is not None and self.shortfall.ratio <= 1.0

    @property
    def status(self) -> CellStatus:
        """Where the cell stands, as of the last look."""
        names, worst = ("identity", "batch_size", "target", "expected", "cut"), self.shortfall
        return CellStatus(
            **{name: getattr(self, name) for name in names},
            **({name: getattr(worst, name) for name in ("measure", "mcse", "wanted")} if worst else {}),
            stored=self.target - self.missing,
            finished=self.finished and not self.cut,
            reached=self.finished and self.reached,
            defined=self.performance is not None,
            failed=len(self.failed),
            first_failed=self.failed[0] if self.failed else None,
        )


class GridPlan(NamedTuple):
    """Work of one grid: replicates and bytes in the end, batches and processor seconds still to be computed."""

    grid: str
    cells: int
    replicates: int
    bytes: int
    batches: int
    cpu_seconds: float


class Plan(NamedTuple):
    """Prediction for the rest of a study: workers run at once here, and the peak is that of the largest process."""

    grids: list[GridPlan]
    workers: int
    peak_MiB: float

    def seconds(self, workers: int) -> float:
        """Return the time to wait with so many workers, each as fast as those of the pilot."""
        return sum(grid.cpu_seconds for grid in self.grids) / workers


class RunState:
    """Progress of all cells of a design, kept up to date as batches arrive.

    ``rule``: from the progress of all cells, none of which wants a batch for itself, to how many are wanted for the
    whole; ``control``: from a cell and its performance to one with smaller errors.
    """

    def __init__(
        self,
        design: Design,
        store: Store,
        device: str = "cpu",
        rule: Callable[[Sequence[CellProgress]], Sequence[int]] | None = None,
        control: Callable[[Cell, Performance], Performance] = lambda _, performance: performance,
    ) -> None:
        self._store, self._rule, self._control = store, rule, control
        self._origin, self._due, self._began, self._found = origin_of(design), -math.inf, time.monotonic(), 0.0
        self._meter, self._budget = Meter(), design.budget.wall_seconds or math.inf
        self.accounts: list[CellProgress] = []
        self._sharers: dict[str, list[CellProgress]] = defaultdict(list)
        for planned in design.cells:
            cell, identity = planned.cell, identity_of(planned.cell, device)
            name = f"{planned.grid} {cell.estimator.combination.model_dump_json()}"
            known, sharers = store.summary(identity).get(name), self._sharers[identity]
            stored = sharers[0].stored if sharers else store.stored(identity).numbers
            size = cell.simulation.batch_size
            first = first_target(planned.precision, size, population=bool(cell.population))
            of_batches = cost(cell), shares_data(cell, device)
            account = CellProgress(planned, size, identity, stored, name, first, *of_batches, target=first)
            # Batches that were folded together are looked at together, and cells of open claims as at the end.
            if known:
                account.looks, account.target = [*known.looks], max(first, known.looks[-1])
                if kept := _kept(known, planned):
                    account.done, (account.performance, account.failed) = known.looks[-1], kept
                    target = next_target(account.done, account.performance, planned.precision, size)
                    account.target = max(first, target)
            sharers.append(account)
            self.accounts.append(account)
        self._queued, self._written, self._damaged = (set[tuple[str, int]]() for _ in range(3))

    def run(self, executor: Executor, *observers: Callable[[Self], Any]) -> None:
        """Compute until the rule wants no more, or the budget is spent; observers see the start, then each task."""
        streams = deque([self.first_tasks()])
        for observer in observers:
            observer(self)
        for task, outcome in run_tasks(executor, streams):
            streams.append(self.record(task, outcome))
            if spent := self._meter.read()["wall_seconds"] >= self._budget:
                self.cut()
            for observer in observers:
                observer(self)
            if spent:
                break

    def pilot(self, executor: Executor, track: Callable[[Iterable[Any], int], Iterable[Any]]) -> Plan:
        """Compute the first missing batches of unfinished cells, through ``track``, and predict what the rest takes."""
        seconds = defaultdict[str, list[float]](list)
        tasks = list(self.first_tasks(4))  # 64 blocks of each cell, from which an MCSE is known to a tenth or so
        for task, outcome in track(run_tasks(executor, deque([iter(tasks)])), len(tasks)):
            self.record(task, outcome)
            costs = [cost(cell) for cell in task.cells]
            for identity, share in zip(task.identities, costs, strict=True):
                seconds[identity].append(outcome.cpu_seconds * share / sum(costs))
        rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        planned: dict[str, int] = defaultdict(int)
        if tasks:
            self.write_status()
        self.cut()  # which looks at each cell as it stands
        for account in self.accounts:
            cell, n = account.planned.cell, account.expected
            drawn = 0 if cell.controlled else DRAWN
            size = n * size_of(cell, 1, drawn) if cell.population else size_of(cell, n, halvings_of(n))
            size, first = 0 if account.identity in planned else size, planned[account.identity]
            last = planned[account.identity] = max(first, n) if account.cut else first
            missing = last - first - sum(first <= batch < last for batch in account.stored)
            # The first batch on a worker waits for the compiler: the median does not.
            left = missing * float(np.median(seconds.get(account.identity, 0.0)))
            rows[account.planned.grid].append((1, n * account.batch_size, size, missing, left))
        grids = [GridPlan(grid, *map(sum, zip(*each, strict=True))) for grid, each in rows.items()]
        return Plan(grids, min(executor.workers(), cores()), self._meter.read()["peak_memory_MiB"])

    def first_tasks(self, most: int | None = None) -> Iterator[Task]:
        """Look at what is stored and return the tasks to begin with, of each cell for ``most`` missing batches."""
        for account in self.accounts:
            self._advance(account)
        self._apply_stopping_rule()
        self._found = self.standing[0]
        return self._tasks(self.accounts, most)

    def record(self, task: Task, outcome: Outcome) -> Iterator[Task]:
        """Store the moments of a task and return further tasks, made as they are asked for."""
        self._meter.add(outcome)
        touched = []
        for identity, moments in zip(task.identities, outcome.batches, strict=True):
            self._store.write_batch(identity, task.batch, moments)
            self._written.add((identity, task.batch))
            self._queued.discard((identity, task.batch))
            for account in self._sharers[identity]:
                account.stored.add(task.batch)
                if not account.finished:
                    account.missing -= task.batch < account.target
                    if not account.missing:
                        self._advance(account)
                        touched.append(account)
        return self._tasks([*touched, *self._apply_stopping_rule()])

    @property
    def standing(self) -> tuple[float, float, int]:
        """Work done and expected, as far as the last looks can tell, and finished cells, over all cells."""
        done = sum((each.target - each.missing) * each.cost for each in self.accounts)
        expected = sum(each.expected * each.cost for each in self.accounts)
        return done, expected, sum(each.finished for each in self.accounts)

    @property
    def work_known(self) -> bool:
        """True if every cell has been looked at: before, nobody can tell how many batches its precision will take."""
        return all(account.done for account in self.accounts)

    def tally(self) -> dict[str, float]:
        """Return how many batches this run computed, how many it found damaged, and what it took."""
        return {"batches_computed": len(self._written), "batches_damaged": len(self._damaged)} | self._meter.read()

    def write_status(self, device: str = "") -> Status:
        """Write down, and return, where each cell stands; with a device also what the results rest on, once written."""
        (done, expected, *_), left = self.standing, None
        if self.work_known and done > self._found:
            left = (expected - done) * (time.monotonic() - self._began) / (done - self._found)
        cells = tuple(account.status for account in self.accounts)
        results = self._store.digest(device) if device else ""
        status = Status(origin=self._origin, as_of=time.time(), seconds_left=left, cells=cells, results=results)
        self._store.files.write(STATUS_FILE, status.model_dump_json().encode(), flush=False)
        return status

    def tell(self) -> None:
        """Write down where each cell stands, if it is time to."""
        if (began := time.monotonic()) >= self._due:
            self.write_status()
            self._due = due(began, TELL_SECONDS)

    def _advance(self, account: CellProgress) -> None:
        """Look at a cell as long as everything for its next look is stored."""
        account.count_missing()
        while not account.missing and not account.finished:
            self._look(account)

    def cut(self) -> None:
        """Want no more: a cell that is not finished stops at the batches that are stored from its first on."""
        for account in self.accounts:
            account.cut = not account.finished
            while not account.finished:
                account.target = max(account.done, account.missing_after(0))
                if not account.finished and self._look(account):
                    wanted = max(account.first, account.target)
                    account.cut = account.done < wanted or account.planned.precision.stop != "precision"
                    account.target = account.done
            account.missing = 0

    def _apply_stopping_rule(self) -> list[CellProgress]:
        """Ask the rule when no cell wants more, whatever the order of batches; return those that it wants more of."""
        raised: list[CellProgress] = []
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

    def _read(self, account: CellProgress, count: int) -> tuple[list[Any], set[int]]:
        """Return the first batches folded together, or what each tells of a population; and which are damaged."""
        cell, identity = account.planned.cell, account.identity
        halvings = 0 if cell.population else halvings_of(count)
        folded = self._store.stored(identity).get("folded")
        parts, damaged, first, within = list[Any](), set[int](), 0, halvings
        # What was folded before goes on where it ended; else each piece holds whole blocks.
        if folded and folded.n_batches <= count:
            parts = [*self._store.read_batches(identity, ["folded"], cell).values()]
            first, within = (folded.n_batches, folded.halvings) if parts else (0, halvings)
        step = max(PIECE, (1 << within) // N_BLOCKS)
        for start in range(first, count, step):
            piece = range(start, min(start + step, count))
            read = self._store.read_batches(identity, piece, cell)
            damaged |= set(piece) - read.keys()
            found: list[Any] = [read[number] for number in piece if number in read]
            parts += found if cell.population or not found else [halved(stack(found), within)]
        return parts if cell.population or not parts else [halved(stack(parts), halvings - within)], damaged

    def _look(self, account: CellProgress) -> bool:
        """Measure all that is wanted of a cell; return False if damaged batches, now missing, have to come first."""
        whole, damaged = self._read(account, account.target)
        named = {(account.identity, batch) for batch in damaged}
        if named & self._written:
            raise UserError(f"{self._store.place}: cannot be read back; check the disk of the outputs, and run again")
        if damaged:
            self._damaged |= named
            account.stored -= damaged
            for sharer in self._sharers[account.identity]:
                sharer.count_missing()
            return False
        account.done = account.target
        account.failed = tuple(int(replicate) for batch in whole for replicate in batch.failed)
        # With too few defined estimates there is no Monte Carlo error, and more replicates of the same would not
        # help before the ceiling: the cell stops, its failures counted.
        planned = account.planned
        performance = measured(planned.cell, whole, block_lengths(account.done), by_query=planned.by_query)
        account.performance = performance and self._control(planned.cell, performance.with_events(planned.counted))
        account.looks += [account.done] * (account.done not in account.looks)
        if account.performance is not None:
            account.target = next_target(account.done, account.performance, planned.precision, account.batch_size)
        account.count_missing()
        return True

    def fold(self) -> None:
        """Let finished cells take less room: as they were folded, or as measures if they are soon computed again."""
        found = ((identity, self._folded(identity, sharers)) for identity, sharers in self._sharers.items())
        if made := {identity: entries for identity, entries in found if entries is not None}:
            self._store.replace(made.keys(), chain.from_iterable(made.values()))

    def _folded(self, identity: str, sharers: list[CellProgress]) -> Iterator[tuple[Entry, bytes]] | None:
        """Content to store of a cell in the place of what is there; None if that stays."""
        first, cell, stored = sharers[0], sharers[0].planned.cell, self._store.stored(identity)
        if any(each.cut or not each.finished for each in sharers):
            return None
        apart = cell.population or any(each.looks != first.looks for each in sharers)
        halvings, n = 0 if apart else halvings_of(first.done), first.done
        known = cell.estimator.learner.kind == "nadaraya_watson" and not (cell.controlled or apart)
        alone = known and size_of(cell, n, halvings) > max(LARGE, cost(cell) * n / CHEAP)
        alone = alone and all(each.performance for each in sharers)
        if not (stored.numbers if alone else halvings or self._rule):
            return None
        before = {} if alone else {name: [*each.looks] for name, each in self._store.summary(identity).items()}
        if before == {each.name: each.looks for each in sharers}:
            return None

        def entries() -> Iterator[tuple[Entry, bytes]]:
            rows = ((each, [*(each.performance or ()), each.failed] if alone else None) for each in sharers)
            records = {each.name: {"looks": each.looks, "measures": measures} for each, measures in rows}
            summary = json.dumps(records, default=np.ndarray.tolist).encode()
            yield entry_of(identity, 0, n * alone, 0, summary), summary
            if alone:
                return
            (moments, damaged), whole = self._read(first, n) if halvings else ([], {0}), 0
            if not damaged:
                whole = whole_batches(n)
                sums = (each[: whole * N_BLOCKS >> halvings] for each in moments[0][:5])
                failed = moments[0].failed[moments[0].failed < whole * first.batch_size]
                payload = pack(Moments._make([*sums, moments[0].target, failed]))
                yield entry_of(identity, halvings, 0, whole, payload), payload
            rest = (each for each in stored.values() if each.n_batches and each.first >= whole)
            yield from payloads(self._store.files, rest)  # behind the last whole block

        return entries()

    def _tasks(self, accounts: Iterable[CellProgress], most: int | None = None) -> Iterator[Task]:
        """Return missing batches, made as they are asked for, as there may be millions; with cells that share data."""
        sharing: dict[Any, list[CellProgress]] = defaultdict(list)
        for account in accounts:
            if not account.finished:
                sharing[account.sharing].append(account)

        def made() -> Iterator[Task]:
            for sharers in sharing.values():
                stops = [each.target if most is None else each.missing_after(most) for each in sharers]
                for batch in range(max(stops)):
                    wanted = (each for each, stop in zip(sharers, stops, strict=True) if batch < stop)
                    cell_of = {each.identity: each.planned.cell for each in wanted if batch not in each.stored}
                    fresh = [pair for pair in cell_of.items() if (pair[0], batch) not in self._queued]
                    self._queued.update((identity, batch) for identity, _ in fresh)
                    for start in range(0, len(fresh), CELLS_PER_TASK):
                        identities, cells = zip(*fresh[start : start + CELLS_PER_TASK], strict=True)
                        yield Task(cells, batch, identities)

        return made()


def _kept(known: Finished, planned: PlannedCell) -> tuple[Performance, tuple[int, ...]] | None:
    """Performance and failures of a finished cell; None without, or if a measure is not there."""
    if known.measures is None:
        return None
    found, failed = Performance._make(known.measures[:-1]), known.measures[-1]
    names = {*MEASURES, *HEAD_MEASURES, *PAIR_MEASURES, *planned.cell.statistics, "hdi", "failure_rate"} - {ATTENDED}
    names |= {f"{name}_by_query" for name in MEASURES if planned.by_query}
    whole = all(names <= table.keys() for table in (found.estimate, found.mcse, found.widening or {}))
    whole &= {len(block_lengths(known.looks[-1]))} == {*map(len, found.contribution.values())}
    return (found, failed) if whole else None


def part_of(design: Design, share: str) -> Design:
    """Return the design with the cells of a share such as "3/8" only: none, if there are more shares than cells.

    Cells that would make up one task stay together as long as there are enough of these for all shares.
    """
    number, total = map(int, match.groups()) if (match := re.fullmatch(r"(\d{1,9})/(\d{1,9})", share, re.A)) else (0, 0)
    if not 1 <= number <= total:
        raise UserError(f"share = {share!r}: must be number/total, such as 3/8, from 1/8 to 8/8")
    alike: dict[str, list[PlannedCell]] = defaultdict(list)
    for planned in design.cells:
        alike[identity_of(planned.cell)].append(planned)
    sharing: dict[Any, list[list[PlannedCell]]] = defaultdict(list)
    for cells in alike.values():
        sharing[shares_data(cells[0].cell)].append(cells)
    starts = ((group, start) for group in sharing.values() for start in range(0, len(group), CELLS_PER_TASK))
    units = [[*chain(*group[start : start + CELLS_PER_TASK])] for group, start in starts]
    if len(units) < total:
        units = list(alike.values())
    return design.model_copy(update={"cells": tuple(chain.from_iterable(units[number - 1 :: total]))})


def require_same_engine(design: Design, store: Store) -> None:
    """Refuse to compute a share beside another whose batches have other bits: a run would compute all of it again."""
    own = {identity_of(planned.cell) for planned in design.cells}
    for name in filter(re.compile("[0-9]+-of-[0-9]+").fullmatch, store.files.at("batches").names()):
        if (found := index_of(store.files, [f"batches/{name}"])) and not own & found.keys():
            said = f"computed for another design or by another engine than {engine()}"
            remedy = "use nodes of one processor type and one installation, or move the file"
            raise UserError(f"{store.folder / 'batches' / name}: {said}; {remedy}")
