"""Whether stored batches are what the program computes: a random share of them is computed again, bit by bit.

Writes nothing.

A digest shows that a batch is whole, and its counts that it could be a batch.  That its numbers are those of
its cell shows only the computation: the one defence against a forged or foreign merge.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simstudy.design.own_code import require_word, texts_of, with_word
from simstudy.errors import UserError
from simstudy.execution.batch_files import same
from simstudy.execution.provenance import engine
from simstudy.execution.queue import Task, open_queue
from simstudy.execution.store import Store


class Verification(NamedTuple):
    """What a sample of the batches of a folder shows; damaged ones count as compared, foreign ones are cells."""

    compared: int
    stored: int
    different: list[str]
    damaged: list[str]
    foreign: dict[str, int]
    seed: int

    @property
    def lines(self) -> list[str]:
        """The same for people."""
        wrong = len(self.different) + len(self.damaged)
        return [
            *(
                f"different {place}: delete the file, distrust where it came from, and run again"
                for place in self.different
            ),
            *(f"damaged   {place}: simstudy run computes it again" for place in self.damaged),
            *(f"skipped   {cells} cells of engine {name}" for name, cells in self.foreign.items()),
            f"{self.compared - wrong} of {self.compared} batches are as computed here (--seed {self.seed}), "
            f"of {self.stored} stored",
        ]


def verify(
    folder: str | Path,
    share: float = 0.01,
    seed: int | None = None,
    *,
    executor: str = "threads",
    track: Callable[[Iterable[Any], int], Iterable[Any]] = lambda tasks, _: tasks,
    trust: Iterable[str | Path] = (),
) -> Verification:
    """Compute a random share of the stored batches of each cell again, one at least, and compare."""
    if not 0 < share <= 1:
        raise UserError(f"share = {share}: must be above 0 and at most 1, such as 0.1")
    seed = secrets.randbits(32) if seed is None else seed
    store = Store(Path(folder))
    tasks, stored, foreign = _sample(store, share, np.random.default_rng(seed))
    if not tasks:
        others = "; ".join(f"{cells} cells of engine {name}" for name, cells in foreign.items()) or "none stored"
        raise UserError(
            f"{store.folder}: no batches of this engine, {engine()}, to verify ({others}); give a folder such as "
            "outputs/STUDY/PROFILE, on a machine and installation like those that computed it"
        )
    trusted = texts_of(trust)
    tasks = [Task((with_word(task.cells[0], trusted),), task.batch) for task in tasks]
    require_word(cell for task in tasks for cell in task.cells)
    different, damaged = [], []
    with open_queue(executor) as queue:
        queue.add(tasks)
        for task, outcome in track(queue, len(tasks)):
            (cell,), (computed,) = task.cells, outcome.batches
            identity = cell.identity(engine(cells=[cell]))
            found = store.read_batches(identity, [task.batch], cell)
            if not found:
                damaged.append(store.place(identity, task.batch))
            elif not same(found[task.batch], computed):
                different.append(store.place(identity, task.batch))
    return Verification(len(tasks), stored, sorted(different), sorted(damaged), foreign, seed)


def _sample(store: Store, share: float, rng: np.random.Generator) -> tuple[list[Task], int, dict[str, int]]:
    """Choose batches; also return of how many, and how many cells of other engines there are."""
    tasks: list[Task] = []
    total, foreign = 0, Counter[str]()
    for identity in store.stored_cells():
        stored, statement = sorted(store.stored_batches(identity)), store.read_statement(identity)
        if not stored:
            continue
        if statement is None or statement.engine != engine(cells=[statement.cell]):
            foreign[statement.engine if statement else "unknown"] += 1
            continue
        total += len(stored)
        chosen = rng.choice(stored, max(1, round(share * len(stored))), replace=False)
        tasks += [Task((statement.cell,), int(batch)) for batch in sorted(chosen)]
    return tasks, total, dict(foreign)
