"""State of a run: batches that are done, batches that are required, and the measures of each cell so far."""

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
"""Batches of a cell that are held in memory at once, or more if a block consists of more."""
STATUS_SECONDS = 1.0
"""Seconds between writes of the status of a run."""
LARGE, CHEAP = 1 << 18, 1000.0
"""Bytes of moments that are always kept; cost per byte below which larger moments are computed again (0.5 s per MB)."""


@dataclass
class CellProgress:
    """Progress of a planned cell: ``target`` batches are required, ``done`` were evaluated at the last look."""

    planned: PlannedCell
    batch_size: int  # Replicates in one batch
    identity: str
    stored: set[int]  # Numbers of the batches on disk, also beyond the target; shared by cells of one identity
    name: str  # Name of the cell among those that share its batches
    first: int  # Number of batches at the first look
    cost: float  # Cost of a batch
    sharing: Any  # Equal in cells that may share random numbers of a task
    target: int
    done: int = 0
    performance: Performance | None = None
    failed: tuple[int, ...] = ()
    missing: int = 0
    looks: list[int] = field(default_factory=list)
    cut: bool = False

    @property
    def finished(self) -> bool:
        """True if no further batch is required."""
        return self.done == self.target

    def count_missing(self) -> None:
        """Count required batches that are not stored; 0 for a finished cell, whose moments need not be kept."""
        self.missing = 0 if self.finished else self.target - sum(batch < self.target for batch in self.stored)

    def missing_after(self, count: int) -> int:
        """Return the number of the missing batch after ``count`` other missing ones; the target if there are fewer."""
        return next(islice((n for n in range(self.target) if n not in self.stored), count, None), self.target)

    @property
    def expected(self) -> int:
        """Total number of batches that the target precision will need, estimated at the last look."""
        least = max(self.target, self.first)
        if self.performance is None:
            return least
        return max(least, needed(self.done, self.performance, self.planned.precision, self.batch_size))

    @property
    def shortfall(self) -> Shortfall | None:
        """The MCSE at the last look that is furthest from its target; None without measures."""
        return None if self.performance is None else shortfall(self.performance, self.planned.precision)

    @property
    def reached(self) -> bool:
        """True if the target precision is reached and the time limit did not stop the cell before."""
        return not self.cut and self.shortfall is not None and self.shortfall.ratio <= 1.0

    @property
    def status(self) -> CellStatus:
        """Status of the cell at the last look."""
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
    """Work of one grid: total replicates and bytes, and remaining batches and processor seconds."""

    grid: str
    cells: int
    replicates: int
    bytes: int
    batches: int
    cpu_seconds: float


class Plan(NamedTuple):
    """Prediction for the rest of a study; peak memory is that of the largest process."""

    grids: list[GridPlan]
    workers: int
    peak_MiB: float

    def seconds(self, workers: int) -> float:
        """Return the wall time with this number of workers, each as fast as those of the pilot."""
        return sum(grid.cpu_seconds for grid in self.grids) / workers


class RunState:
    """Progress of all cells of a design, updated as batches arrive.

    ``rule`` returns the number of batches of each cell that claims require, once the precision requires no more.
    ``control`` returns the performance of a cell with reduced errors.
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
        self.cells: list[CellProgress] = []
        self._sharers: dict[str, list[CellProgress]] = defaultdict(list)
        for planned in design.cells:
            cell, identity = planned.cell, identity_of(planned.cell, device)
            name = f"{planned.grid} {cell.estimator.combination.model_dump_json()}"
            known, sharers = store.summary(identity).get(name), self._sharers[identity]
            stored = sharers[0].stored if sharers else store.stored(identity).numbers
            size = cell.simulation.batch_size
            first = first_target(planned.precision, size, population=bool(cell.population))
            costs, sharing = cost(cell), shares_data(cell, device)
            progress = CellProgress(planned, size, identity, stored, name, first, costs, sharing, target=first)
            # Folded batches are evaluated together, and cells of undecided claims as at their last look.
            if known:
                progress.looks, progress.target = [*known.looks], max(first, known.looks[-1])
                if kept := _kept(known, planned):
                    progress.done, (progress.performance, progress.failed) = known.looks[-1], kept
                    target = next_target(progress.done, progress.performance, planned.precision, size)
                    progress.target = max(first, target)
            sharers.append(progress)
            self.cells.append(progress)
        self._queued, self._written, self._damaged = (set[tuple[str, int]]() for _ in range(3))

    def run(self, executor: Executor, *observers: Callable[[Self], Any]) -> None:
        """Compute until no batch is required or time is up; observers are called at the start and after each task."""
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
        """Compute the first missing batches of unfinished cells, and predict the rest; ``track`` shows progress."""
        seconds = defaultdict[str, list[float]](list)
        tasks = list(self.first_tasks(4))  # 64 blocks of each cell, from which an MCSE is known to about 10 %
        for task, outcome in track(run_tasks(executor, deque([iter(tasks)])), len(tasks)):
            self.record(task, outcome)
            costs = [cost(cell) for cell in task.cells]
            for identity, share in zip(task.identities, costs, strict=True):
                seconds[identity].append(outcome.cpu_seconds * share / sum(costs))
        rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        planned: dict[str, int] = defaultdict(int)
        if tasks:
            self.write_status()
        self.cut()  # evaluates all cells
        for progress in self.cells:
            cell, n = progress.planned.cell, progress.expected
            drawn = 0 if cell.controlled else DRAWN
            size = n * size_of(cell, 1, drawn) if cell.population else size_of(cell, n, halvings_of(n))
            size, first = 0 if progress.identity in planned else size, planned[progress.identity]
            last = planned[progress.identity] = max(first, n) if progress.cut else first
            missing = last - first - sum(first <= batch < last for batch in progress.stored)
            # The first batch of a worker includes compilation, which the median leaves out.
            left = missing * float(np.median(seconds.get(progress.identity, 0.0)))
            rows[progress.planned.grid].append((1, n * progress.batch_size, size, missing, left))
        grids = [GridPlan(grid, *map(sum, zip(*each, strict=True))) for grid, each in rows.items()]
        return Plan(grids, min(executor.workers(), cores()), self._meter.read()["peak_memory_MiB"])

    def first_tasks(self, most: int | None = None) -> Iterator[Task]:
        """Evaluate stored batches; return tasks for at most ``most`` missing batches of each cell."""
        for progress in self.cells:
            self._advance(progress)
        self._apply_stopping_rule()
        self._found = self.work[0]
        return self._tasks(self.cells, most)

    def record(self, task: Task, outcome: Outcome) -> Iterator[Task]:
        """Store the moments of a task and return further tasks."""
        self._meter.add(outcome)
        touched = []
        for identity, moments in zip(task.identities, outcome.batches, strict=True):
            self._store.write_batch(identity, task.batch, moments)
            self._written.add((identity, task.batch))
            self._queued.discard((identity, task.batch))
            for progress in self._sharers[identity]:
                progress.stored.add(task.batch)
                if not progress.finished:
                    progress.missing -= task.batch < progress.target
                    if not progress.missing:
                        self._advance(progress)
                        touched.append(progress)
        return self._tasks([*touched, *self._apply_stopping_rule()])

    @property
    def work(self) -> tuple[float, float, int]:
        """Work done and expected, as estimated at the last looks, and the number of finished cells."""
        done = sum((each.target - each.missing) * each.cost for each in self.cells)
        expected = sum(each.expected * each.cost for each in self.cells)
        return done, expected, sum(each.finished for each in self.cells)

    @property
    def work_known(self) -> bool:
        """True if every cell has been evaluated; until then the number of required batches is unknown."""
        return all(progress.done for progress in self.cells)

    def tally(self) -> dict[str, float]:
        """Return the numbers of computed and damaged batches, and time and memory of this run."""
        return {"batches_computed": len(self._written), "batches_damaged": len(self._damaged)} | self._meter.read()

    def write_status(self, device: str = "") -> Status:
        """Write and return the status of all cells; with a device also the digest of the written results."""
        (done, expected, *_), left = self.work, None
        if self.work_known and done > self._found:
            left = (expected - done) * (time.monotonic() - self._began) / (done - self._found)
        cells = tuple(progress.status for progress in self.cells)
        results = self._store.digest(device) if device else ""
        status = Status(origin=self._origin, as_of=time.time(), seconds_left=left, cells=cells, results=results)
        self._store.files.write(STATUS_FILE, status.model_dump_json().encode(), flush=False)
        return status

    def write_status_if_due(self) -> None:
        """Write the status if it is due."""
        if (began := time.monotonic()) >= self._due:
            self.write_status()
            self._due = due(began, STATUS_SECONDS)

    def _advance(self, progress: CellProgress) -> None:
        """Evaluate a cell as long as all batches for its next look are stored."""
        progress.count_missing()
        while not progress.missing and not progress.finished:
            self._look(progress)

    def cut(self) -> None:
        """Stop all unfinished cells at the batches that are stored without a gap."""
        for progress in self.cells:
            progress.cut = not progress.finished
            while not progress.finished:
                progress.target = max(progress.done, progress.missing_after(0))
                if not progress.finished and self._look(progress):
                    required = max(progress.first, progress.target)
                    progress.cut = progress.done < required or progress.planned.precision.stop != "precision"
                    progress.target = progress.done
            progress.missing = 0

    def _apply_stopping_rule(self) -> list[CellProgress]:
        """Apply the rule once no cell requires a batch; return the cells for which it requires more."""
        raised: list[CellProgress] = []
        while self._rule is not None and all(progress.finished for progress in self.cells):
            required = self._rule(self.cells)
            further = [(a, min(n, GROWTH * a.done)) for a, n in zip(self.cells, required, strict=True) if n > a.target]
            if not further:
                break
            for progress, target in further:
                progress.target = target
                self._advance(progress)
            raised += [progress for progress, _ in further]
        return raised

    def _read(self, progress: CellProgress, count: int) -> tuple[list[Any], set[int]]:
        """Return the first batches, folded or one by one for a population, and the numbers of damaged batches."""
        cell, identity = progress.planned.cell, progress.identity
        halvings = 0 if cell.population else halvings_of(count)
        folded = self._store.stored(identity).get("folded")
        parts, damaged, first, within = list[Any](), set[int](), 0, halvings
        # Continue after the batches folded before; each piece holds whole blocks.
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

    def _look(self, progress: CellProgress) -> bool:
        """Evaluate all required batches of a cell; return False if some are damaged and must be computed again."""
        whole, damaged = self._read(progress, progress.target)
        named = {(progress.identity, batch) for batch in damaged}
        if named & self._written:
            raise UserError(f"{self._store.place}: cannot be read back; check the disk of the outputs, and run again")
        if damaged:
            self._damaged |= named
            progress.stored -= damaged
            for sharer in self._sharers[progress.identity]:
                sharer.count_missing()
            return False
        progress.done = progress.target
        progress.failed = tuple(int(replicate) for batch in whole for replicate in batch.failed)
        # Without a Monte Carlo error, for lack of defined estimates, more replicates would hardly help: the cell stops,
        # and its failures are counted.
        planned = progress.planned
        performance = measured(planned.cell, whole, block_lengths(progress.done), by_query=planned.by_query)
        progress.performance = performance and self._control(planned.cell, performance.with_events(planned.counted))
        progress.looks += [progress.done] * (progress.done not in progress.looks)
        if progress.performance is not None:
            progress.target = next_target(progress.done, progress.performance, planned.precision, progress.batch_size)
        progress.count_missing()
        return True

    def fold(self) -> None:
        """Store finished cells in less space: folded, or as measures if their batches are cheap to compute again."""
        found = ((identity, self._folded(identity, sharers)) for identity, sharers in self._sharers.items())
        if made := {identity: entries for identity, entries in found if entries is not None}:
            self._store.replace(made.keys(), chain.from_iterable(made.values()))

    def _folded(self, identity: str, sharers: list[CellProgress]) -> Iterator[tuple[Entry, bytes]] | None:
        """Return new entries that replace the entries of a cell; None if these stay."""
        first, cell, stored = sharers[0], sharers[0].planned.cell, self._store.stored(identity)
        if any(each.cut or not each.finished for each in sharers):
            return None
        separate = cell.population or any(each.looks != first.looks for each in sharers)
        halvings, n = 0 if separate else halvings_of(first.done), first.done
        known = cell.estimator.learner.kind == "nadaraya_watson" and not (cell.controlled or separate)
        as_measures = known and size_of(cell, n, halvings) > max(LARGE, cost(cell) * n / CHEAP)
        as_measures = as_measures and all(each.performance for each in sharers)
        if not (stored.numbers if as_measures else halvings or self._rule):
            return None
        before = {} if as_measures else {name: [*each.looks] for name, each in self._store.summary(identity).items()}
        if before == {each.name: each.looks for each in sharers}:
            return None

        def entries() -> Iterator[tuple[Entry, bytes]]:
            rows = ((each, [*(each.performance or ()), each.failed] if as_measures else None) for each in sharers)
            records = {each.name: {"looks": each.looks, "measures": measures} for each, measures in rows}
            summary = json.dumps(records, default=np.ndarray.tolist).encode()
            yield entry_of(identity, 0, n * as_measures, 0, summary), summary
            if as_measures:
                return
            (moments, damaged), whole = self._read(first, n) if halvings else ([], {0}), 0
            if not damaged:
                whole = whole_batches(n)
                sums = (each[: whole * N_BLOCKS >> halvings] for each in moments[0][:5])
                failed = moments[0].failed[moments[0].failed < whole * first.batch_size]
                payload = pack(Moments._make([*sums, moments[0].target, failed]))
                yield entry_of(identity, halvings, 0, whole, payload), payload
            rest = (each for each in stored.values() if each.n_batches and each.first >= whole)
            yield from payloads(self._store.files, rest)  # after the last whole block

        return entries()

    def _tasks(self, cells: Iterable[CellProgress], most: int | None = None) -> Iterator[Task]:
        """Yield tasks of missing batches, together for cells that share data; there may be millions."""
        sharing: dict[Any, list[CellProgress]] = defaultdict(list)
        for progress in cells:
            if not progress.finished:
                sharing[progress.sharing].append(progress)

        def made() -> Iterator[Task]:
            for sharers in sharing.values():
                stops = [each.target if most is None else each.missing_after(most) for each in sharers]
                for batch in range(max(stops)):
                    required = (each for each, stop in zip(sharers, stops, strict=True) if batch < stop)
                    cell_of = {each.identity: each.planned.cell for each in required if batch not in each.stored}
                    fresh = [pair for pair in cell_of.items() if (pair[0], batch) not in self._queued]
                    self._queued.update((identity, batch) for identity, _ in fresh)
                    for start in range(0, len(fresh), CELLS_PER_TASK):
                        identities, cells = zip(*fresh[start : start + CELLS_PER_TASK], strict=True)
                        yield Task(cells, batch, identities)

        return made()


def _kept(known: Finished, planned: PlannedCell) -> tuple[Performance, tuple[int, ...]] | None:
    """Return performance and failures of a finished cell; None if they are not stored or lack a measure."""
    if known.measures is None:
        return None
    found, failed = Performance._make(known.measures[:-1]), known.measures[-1]
    names = {*MEASURES, *HEAD_MEASURES, *PAIR_MEASURES, *planned.cell.statistics, "hdi", "failure_rate"} - {ATTENDED}
    names |= {f"{name}_by_query" for name in MEASURES if planned.by_query}
    whole = all(names <= table.keys() for table in (found.estimate, found.mcse, found.widening or {}))
    whole &= {len(block_lengths(known.looks[-1]))} == {*map(len, found.contribution.values())}
    return (found, failed) if whole else None


def part_of(design: Design, share: str) -> Design:
    """Return the design with the cells of a share such as "3/8", which may be none.

    Cells of one task stay together if there are at least as many tasks as shares.
    """
    number, total = map(int, match.groups()) if (match := re.fullmatch(r"(\d{1,9})/(\d{1,9})", share, re.A)) else (0, 0)
    if not 1 <= number <= total:
        raise UserError(f"share = {share!r}: must be number/total, such as 3/8, from 1/8 to 8/8")
    by_identity: dict[str, list[PlannedCell]] = defaultdict(list)
    for planned in design.cells:
        by_identity[identity_of(planned.cell)].append(planned)
    sharing: dict[Any, list[list[PlannedCell]]] = defaultdict(list)
    for cells in by_identity.values():
        sharing[shares_data(cells[0].cell)].append(cells)
    starts = ((group, start) for group in sharing.values() for start in range(0, len(group), CELLS_PER_TASK))
    units = [[*chain(*group[start : start + CELLS_PER_TASK])] for group, start in starts]
    if len(units) < total:
        units = list(by_identity.values())
    return design.model_copy(update={"cells": tuple(chain.from_iterable(units[number - 1 :: total]))})


def require_same_engine(design: Design, store: Store) -> None:
    """Raise a UserError if another share has batches of another engine, which a run would compute again."""
    own = {identity_of(planned.cell) for planned in design.cells}
    for name in filter(re.compile("[0-9]+-of-[0-9]+").fullmatch, store.files.at("batches").names()):
        if (found := index_of(store.files, [f"batches/{name}"])) and not own & found.keys():
            fault = f"computed for another design or by another engine than {engine()}"
            remedy = "use nodes of one processor type and one installation, or move the file"
            raise UserError(f"{store.folder / 'batches' / name}: {fault}; {remedy}")
