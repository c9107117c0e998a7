"""Run a study: compute what is missing, join theory, judge the claims, write the results."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr
from threadpoolctl import threadpool_limits

from simstudy.design.document import ZIPPED, Design, ZipFigure
from simstudy.design.load import name_of, read_design
from simstudy.design.measures import labelled
from simstudy.design.settings.cell import Cell, selected
from simstudy.design.settings.choices import GradientBoostingLearner, RandomForestLearner
from simstudy.errors import UserError, require_extra
from simstudy.execution.provenance import provenance
from simstudy.execution.shares import part_of, require_same_engine
from simstudy.execution.status import FILE as STATUS_FILE
from simstudy.execution.status import Status, StatusWriter, is_done, read_status
from simstudy.execution.store import DEFAULT_OUTPUT, DETAILS_FILE, PROVENANCE_FILE, RESULTS_FILE, store_of
from simstudy.replicates.allocation import sized
from simstudy.results import read_cells, tree_of

# What computes and judges is imported where it is needed: it takes a second, for which a finished study need not wait.
Observer = Callable[..., Any]
"""Takes the state of a run, and once all is simulated how many cells have their theory."""
INTERVAL = ("lower", "upper", "truth")


class Completed(NamedTuple):
    """A study that is done: its results, where its cells stand, and what to tell of how that went."""

    results: xr.Dataset
    status: Status
    notes: list[str]


def complete(
    design: Design,
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: Any = "threads",
    workers: int | None = None,
    observer: Observer | None = None,
) -> Completed:
    """Run a study as `simstudy.run` says, and also return where its cells stand."""
    require_trust(planned.cell for planned in design.cells)
    store = store_of(design, output)
    names = store.files.names()
    if names and design.path is not None and (other := store.design_file) is not None and other.is_file():
        name = ""
        with contextlib.suppress(UserError):  # it is no design any more
            name = name_of(read_design(other).tables)
        if name == design.study.name and not os.path.samefile(other, design.path):
            remedy = "give one of them another name, or choose another --output"
            raise UserError(f"{store.folder}: holds the results of {other}, whose study has the same name; {remedy}")
    if STATUS_FILE in names:  # there is nothing to do if all that a run would write lies there
        with store.locked():
            status = read_status(design, store)
            if status is not None and is_done(status, store, "cuda" if executor == "cuda" else "cpu"):
                return Completed(read_cells(store), status, [])
    from simstudy.execution.executors import Jobs, Meter, open_executor
    from simstudy.execution.state import RunState, require_memory
    from simstudy.verdicts.assemble import assemble
    from simstudy.verdicts.judge import judge

    tell = observer or (lambda *_: None)
    with contextlib.ExitStack() as held:

        def claim(memory: float, workers: int) -> None:
            require_memory(design.cells, memory, workers)
            held.enter_context(store.locked())

        # The executor comes first: if it cannot be used, no folder is made.  It also ends first: the theory of all
        # cells may take minutes, in which jobs of a cluster would idle.
        with open_executor(executor, workers, claim) as opened:
            design, meter = sized(design), Meter()
            theories: dict[int, Any] = {}
            rules, writer = rules_of(design, theories), StatusWriter(store, design)
            state = RunState(design, store, opened.device, **rules)
            state.run(opened, meter, writer, tell, budget=design.budget)
            writer.write(state)
            by = str(executor) if isinstance(executor, str | Jobs) else type(executor).__name__
            how: dict[str, Any] = {"executor": by, "workers": opened.workers()}
        store.flush()  # a disk that took no batch takes no results
        how |= {**state.tally(), **meter.read()}
        with threadpool_limits(limits=1):
            joined, details = assemble(design, state.accounts, partial(tell, state), opened.device, theories)
            judged = judge(design, state.accounts, theories)
        results = xr.merge([joined, judged, *_zipped(design)], combine_attrs="override")
        machine = provenance(opened.device, [planned.cell for planned in design.cells])
        how |= {name: machine[name] for name in ("device", "processor", "system")}
        results.attrs["run"] = json.dumps(how)
        store.write_dataset(DETAILS_FILE, details)
        store.write_dataset(RESULTS_FILE, tree_of(results))
        file = None if design.path is None else os.path.relpath(design.path, store.folder)
        store.write_json(PROVENANCE_FILE, {**results.attrs, **machine, "run": how, "design_file": file})
        state.fold()
        damaged = f"{how['batches_damaged']} stored batches were damaged and have been computed again; check the disk"
        notes = [*opened.aside, *([damaged] if how["batches_damaged"] else [])]
        # As they will be read ever after: reports are the same bytes whoever writes them, and when.
        return Completed(read_cells(store), writer.write(state, opened.device), notes)


def require_trust(cells: Iterable[Cell]) -> None:
    """Refuse to compute cells with functions that the user did not say may run, or that need what is not installed."""
    for cell in cells:
        if cell.estimator.reference.startswith("torch"):
            otherwise = ", or choose a profile that compares with multi_head_attention"
            require_extra(f'reference = "{cell.estimator.reference}"', "torch", "models", otherwise)
        if isinstance(cell.estimator.learner, RandomForestLearner | GradientBoostingLearner):
            require_extra("estimator.learner", "sklearn", "learners")
        for _, piece in cell.own:
            if piece.code is not None:
                piece.code.require_trust()


def _zipped(design: Design) -> Iterator[xr.Dataset]:
    """Yield the intervals of single replicates, if a figure shows any."""
    figures = [figure for figure in design.figures.values() if isinstance(figure, ZipFigure)]
    if not figures:
        return
    import numpy as np

    from simstudy.attention.functions import results_of

    intervals = np.full((len(design.cells), ZIPPED, len(INTERVAL)), np.nan)
    for number, (grid, cell) in enumerate((planned.grid, planned.cell) for planned in design.cells):
        if any(figure.grid == grid and selected(cell.coordinates, figure.where) for figure in figures):
            parameters = getattr(cell.functions, "parameters", {})
            found = [parameters | results for results, _ in results_of(cell, 0, ZIPPED)]
            intervals[number] = [[results.get(end, np.nan) for end in INTERVAL] for results in found]
    yield labelled({"interval": intervals}, {"drawn": np.arange(ZIPPED), "end": list(INTERVAL)}, {})


def run_share(
    design: Design,
    share: str,
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: str = "threads",
    workers: int | None = None,
    observer: Observer | None = None,
) -> tuple[int, Path]:
    """Compute what is missing of the cells of a share, by its precision alone; return how many, and their file."""
    if executor == "cuda":
        raise UserError("executor = 'cuda': shares are computed on CPUs only; leave out --share, or choose another")
    require_trust(planned.cell for planned in design.cells)
    design = sized(design)
    part, store = part_of(design, share), store_of(design, output, share.replace("/", "-of-"))
    if not part.cells:
        return 0, store.place
    from simstudy.execution.executors import Meter, open_executor
    from simstudy.execution.state import RunState, require_memory

    claim = partial(require_memory, part.cells)
    with open_executor(executor, workers, claim) as opened, store.locked():
        require_same_engine(design, store)
        RunState(part, store).run(opened, Meter(), *([observer] if observer else []), budget=part.budget)
    return len(part.cells), store.place


def rules_of(design: Design, theories: dict[int, Any] | None = None) -> dict[str, Any]:
    """Return the rule of its claims and the control variate over query points, if any, for the state of a run."""
    given: dict[str, Any] = {}
    if any(planned.precision.stop != "precision" for planned in design.cells):
        from simstudy.verdicts.judge import wanted_by_claims

        given["rule"] = partial(wanted_by_claims, design, {} if theories is None else theories)
    if any("queries" in planned.cell.population for planned in design.cells):
        from simstudy.verdicts.query_control import QueryControl

        given["control"] = QueryControl(design.cells)
    return given
