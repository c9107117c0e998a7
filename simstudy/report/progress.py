"""Plan and progress of a run, as text and tables for users and as plain data for programs."""

from __future__ import annotations

import json
import math
import time
from heapq import nlargest
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from simstudy.design.answerable import level
from simstudy.design.document import Design, PlannedCell
from simstudy.execution.folder import due
from simstudy.execution.provenance import CellStatus, Status
from simstudy.execution.store import Store
from simstudy.report import labels
from simstudy.report.terminal import bar, counted, entry, is_watched, say

if TYPE_CHECKING:
    # Imported for types alone, as these modules are slow to import.
    import xarray as xr

    from simstudy.execution.state import Plan, RunState

LOG_SECONDS = 10.0
"""Least time between two lines without a terminal."""
SHOW_SECONDS = 0.1
"""Least time between two updates of the display."""
_UNKNOWN = "time left unknown"
MOST_ROWS = 100
"""Most cells of a grid in the table of `status`; 20 000 would take half a minute."""


class ProgressDisplay:
    """Observer of a run and context manager around it; if ``quiet``, it keeps the last state without showing it."""

    state: RunState

    def __init__(self, quiet: bool = False) -> None:
        self._logged = time.monotonic()
        self._quiet = quiet
        self._due = 0.0
        self._unseen = False
        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
        self._bar = bar(*columns, TextColumn("left"), quiet=quiet)
        self._task = self._bar.add_task("simulating", total=None)

    def __enter__(self) -> ProgressDisplay:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._unseen:
            self._show()
        self._bar.stop()

    def __call__(self, state: RunState, predicted: int | None = None) -> None:
        """Show the state of the run if `SHOW_SECONDS` have passed; at the end, the last state in any case."""
        self.state, self._predicted = state, predicted
        began = time.monotonic()
        self._unseen = began < self._due
        if not self._unseen:
            self._show()
            self._due = due(began, SHOW_SECONDS)

    def _show(self) -> None:
        """Show cells, largest ratio of error to target, and time left by the estimated cost of remaining batches."""
        state, predicted, now = self.state, self._predicted, time.monotonic()
        done, expected, finished = state.work
        text = f"{finished}/{len(state.cells)} cells"
        if predicted is not None:
            text += f", theory computed for {predicted}"
        elif ratios := [each.shortfall.ratio for each in state.cells if each.shortfall and each.shortfall.ratio]:
            met = state.work_known and max(ratios) <= 1.0 and finished < len(state.cells)
            worst = labels.number(max(ratios), 2)
            text += ", targets reached, more replicates for claims" if met else f", error at most {worst} of the target"
        self._bar.update(self._task, total=expected if state.work_known else None, completed=done, description=text)
        if not self._quiet and not is_watched() and now - self._logged >= LOG_SECONDS:
            self._logged = now
            left = _UNKNOWN
            # Known from the first batch on; before it, workers start and kernels are compiled.
            if speed := self._bar.tasks[self._task].speed:
                wait = duration((expected - done) / speed)
                left = f"{done / expected:.0%} of the work, {wait} left"
                if not state.work_known:  # only the replicates for first estimates are known
                    left = f"first estimates of all cells in {wait}"
            say(text + (f", {left}" if predicted is None else ""))


def duration(seconds: float) -> str:
    """Return a duration as text, to about two digits: "40 s", "3 min", "2.5 h"."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.{0 if seconds >= 10 * length else 1}f} {unit}"
    return f"{math.ceil(seconds)} s"


def place(planned: PlannedCell, design: Design) -> str:
    """Return the levels of a cell's factors: "angle = 45, bandwidth = 0.5"."""
    return ", ".join(f"{name} = {level(planned.cell.coordinates, name)}" for name in design.factors[planned.grid])


def status_table(status: Status, design: Design) -> Table:
    """Return the progress of each cell as a table; in grids with many cells, of those furthest from their target."""

    def distance(row: tuple[int, CellStatus, PlannedCell]) -> tuple[bool, float]:
        cell = row[1]
        return not cell.finished, cell.mcse / cell.wanted if cell.mcse is not None and cell.wanted else math.inf

    table = Table(box=SIMPLE_HEAD, title="MCSE: the one furthest from its target", title_justify="left")
    for name in ("cell", "levels", "replicates", "failed", "MCSE / target", "state"):
        table.add_column(name, no_wrap=name == "MCSE / target", overflow="fold")
    cells = zip(range(len(status.cells)), status.cells, design.cells, strict=True)
    for grid, inside in groupby(cells, lambda row: row[2].grid):
        seen = list(inside)
        table.add_section()
        table.add_row("", entry((grid, "bold")))
        for number, cell, planned in sorted(nlargest(MOST_ROWS, seen, distance), key=itemgetter(0)):
            errors = entry(f"{cell.mcse:.2g} / {cell.wanted:.2g}", cell.measure) if cell.measure else ""
            failed = f"{cell.failed} (first {cell.first_failed})" if cell.failed else "0"
            row = place(planned, design), f"{cell.stored * cell.batch_size:,}", failed, errors, _state(cell)
            table.add_row(str(number), *row)
        if (left_out := len(seen) - MOST_ROWS) > 0:
            table.add_row("", f"{counted(left_out, 'cell')} nearer to their target: see --json")
    return table


def _state(cell: CellStatus) -> str:
    if cell.cut:
        return "budget spent"
    if not cell.finished:
        return f"{cell.stored}{'' if cell.stored == cell.expected else f' of about {cell.expected}'} batches"
    if not cell.defined:
        return "stopped: estimates undefined"
    return "done" if cell.reached else "short of the target"


def status_line(status: Status, store: Store) -> str:
    """Return the number of finished cells, the process that computes the others, and the time left, as text."""
    text = f"{status.finished} of {len(status.cells)} cells finished"
    if not status.origin:
        stored = any(cell.stored for cell in status.cells)
        text = "batches are counted, simstudy run examines them" if stored else f"{store.folder} holds no batches"
    if status.finished < len(status.cells):
        text += f", as of {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(status.as_of))}"
    if (owner := store.owner()) is None or owner.alive is False:
        return text if status.finished == len(status.cells) else f"{text}; no process runs it: simstudy run continues"
    text += f"; process {owner.pid} on {owner.host} runs it" + ("" if owner.alive else ", unless it was killed")
    seconds = status.seconds_left
    return f"{text}, {_UNKNOWN}" if seconds is None else f"{text}, about {duration(seconds)} left"


def missed_line(status: Status, design: Design) -> str:
    """Return text on cells that missed their target: number, worst cell, and how to continue; empty if none."""
    if not (missed := [pair for pair in zip(status.cells, design.cells, strict=True) if not pair[0].reached]):
        return ""
    cell, planned = max(missed, key=lambda pair: (pair[0].mcse or 0.0) / pair[0].wanted if pair[0].wanted else math.inf)
    reason = f"MCSE of {cell.measure} {cell.mcse:.2g}, target {cell.wanted:.2g}, " if cell.measure else ""
    if cell.cut:
        reason += f"budget of {design.budget.wall_seconds:g} s spent; run again to go on"
    elif not cell.defined:
        reason = "undefined estimates; see failed replicates by simstudy replay, or simstudy.estimates after simulate"
    else:
        reason += f"ceiling of {planned.precision.max_replicates:,} replicates; raise max_replicates to go on"
    others = f", furthest {planned.grid}" if len(missed) > 1 else f", {planned.grid}"
    return f"{counted(len(missed), 'cell')} short of the target{others}: {place(planned, design)}: {reason}"


def undecided_line(results: xr.Dataset, design: Design) -> str:
    """Return text on claims that are unexpectedly undecided and how to decide them; empty if there are none."""
    if not design.claims:
        return ""
    names, remedies = [], []
    undecided = (results.verdict == "undecided") & (results.expected_verdict != "undecided")
    known = results.claim[undecided & np.isfinite(results.verdict_estimate)].values.tolist()
    for grid, precision in {planned.grid: planned.precision for planned in design.cells}.items():
        inside = results.isel(cell=np.flatnonzero(results.grid.values == grid))
        at_ceiling = (inside.n_replicates + inside.n_failed).values >= precision.max_replicates
        remedy = ""
        if precision.stop == "precision" and (~at_ceiling & (inside.precision_reached.values == 1.0)).any():
            remedy = f'cells of {grid} stopped at the precision asked for; state grids.{grid}.precision.stop = "both"'
        elif at_ceiling.any():
            remedy = f"cells of {grid} stopped at max_replicates = {precision.max_replicates:,}; raise it"
        # The error of a mean over settings is from their variance, which more replicates do not lower.
        for holds, said in (("everywhere", remedy), ("on_average", f"too few settings; raise grids.{grid}.cells")):
            of_grid = (name for name in known if design.claims[name].grid == grid)
            if said and (claims := [name for name in of_grid if design.claims[name].holds == holds]):
                names += claims
                remedies.append(said)
    return f"undecided, not as expected: {', '.join(names)}: {'; '.join(remedies)} to go on" if names else ""


def plan_table(plan: Plan, workers: int | None) -> tuple[Table | str, ...]:
    """Return a table of replicates, time and disk of each grid, and the totals as text."""
    table = Table("grid", "cells", "replicates", "batches left", "CPU time left", "disk")
    for grid in plan.grids:
        left = f"{grid.batches:,}", duration(grid.cpu_seconds), f"{grid.bytes / 2**20:.1f} MiB"
        table.add_row(grid.grid, str(grid.cells), f"{grid.replicates:,}", *left)
    disk, replicates = sum(each.bytes for each in plan.grids) / 2**20, sum(each.replicates for each in plan.grids)
    here = f"{duration(plan.seconds(1))} of processor time on {plan.workers} workers"
    return (
        table,
        f"{replicates:,} replicates, {disk:.0f} MiB on disk, {plan.peak_MiB:.0f} MiB of memory in the largest process",
        f"about {duration(plan.seconds(plan.workers))} left on this machine ({here})",
        *(() if workers is None else (f"about {duration(plan.seconds(workers))} left on {workers} such workers",)),
    )


def status_record(status: Status, design: Design, store: Store) -> dict[str, Any]:
    """Return the progress of each cell, its time, the process that computes, and the seconds left if known."""
    owner, cells = store.owner(), []
    for number, (cell, planned) in enumerate(zip(status.cells, design.cells, strict=True)):
        stated = cell.model_dump_json(include={"failed", "finished", "reached", "measure", "mcse", "wanted"})
        counts = {"replicates": cell.stored * cell.batch_size, "expected_replicates": cell.expected * cell.batch_size}
        levels = {name: level(planned.cell.coordinates, name) for name in design.factors[planned.grid]}
        levels = {name: str(each) if each in (math.inf, -math.inf) else each for name, each in levels.items()}
        cells.append({"cell": number, "grid": planned.grid} | json.loads(stated) | counts | {"levels": levels})
    return {
        "study": design.study.name,
        "profile": design.profile,
        "folder": str(store.folder),
        "process": owner and {"pid": owner.pid, "host": owner.host, "alive": owner.alive},
        "as_of": status.as_of,
        "seconds_left": owner and status.seconds_left,
        "cells": cells,
    }
