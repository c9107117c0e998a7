"""Run a study: compute what is missing, join theory, judge the claims, write the results."""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from simstudy.design.document import Budget, Design
from simstudy.design.figures import ZIPPED, ZipFigure
from simstudy.design.load import load_design
from simstudy.design.measures import labelled
from simstudy.design.own_code import require_trust
from simstudy.design.settings.levels import selected
from simstudy.design.written import Source, name_of, read_design
from simstudy.errors import UserError
from simstudy.execution.clients import Jobs
from simstudy.execution.folder import require_writable
from simstudy.execution.ledger import Ledger
from simstudy.execution.plan import Plan, pilot
from simstudy.execution.provenance import provenance
from simstudy.execution.queue import Meter, Queue, open_queue
from simstudy.execution.shares import Share, open_share, with_shares
from simstudy.execution.status import Teller
from simstudy.execution.store import DEFAULT_OUTPUT, DETAILS_FILE, PROVENANCE_FILE, Store, store_of
from simstudy.results import RESULTS_FILE, read_cells, tree_of

Observer = Callable[..., Any]
"""Takes the ledger, and once all is simulated how many cells have their theory."""


def run(
    design: Design | Source,
    profile: str = "quick",
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: str | Jobs = "threads",
    workers: int | None = None,
    trust_network: bool = False,
    observer: Observer | None = None,
    trust: Iterable[str | Path] = (),
    confirm: str | None = None,
) -> xr.Dataset:
    """Run a study to the precision of its design and return its results.

    Stored batches are not computed again; interrupt at any time and call again to continue.  Results are written to
    ``<output>/<study>/<profile>/``.  They are the same to the bit for any executor, workers and interruptions.

    Parameters
    ----------
    design
        Path of a design file, name of a shipped design, a `simstudy.Study`, a dict as TOML parses it, or what
        `simstudy.check` returned.
    profile
        Profile of the design file; ignored if a `Design` is given.
    output
        Folder of all studies.
    executor
        ``serial``, ``threads``, ``processes``, ``cuda`` (a process for each GPU), the address of a Dask scheduler, or
        jobs to submit.
    workers
        Threads or processes, at least 1; all cores by default.
    trust_network
        Use a Dask scheduler on another host without TLS: anybody on that network can then run code as you.
    observer
        Called at the start, after each task, and before the theory of each cell.
    trust
        Python files of your own that the design names and whose code may run; ignored if a `Design` is given.
    confirm
        Text from which, with the design and its functions, other random numbers follow; the results are then written
        to ``<output>/<study>/<profile>/confirmed/<digest>/``.

    Returns
    -------
    xarray.DataTree
        The contents of ``results.nc``, as of `simstudy.open_results`; `simstudy.details` gives those of ``details.nc``.

    Warns
    -----
    PrecisionWarning
        Of `simstudy.errors`: a budget or ``max_replicates`` ends a cell before its precision, or leaves a claim open.

    Raises
    ------
    DesignError
        If the design has mistakes.
    UserError
        If the output cannot be written, the executor cannot be used, PyTorch is wanted but not installed, or the text
        cannot be shown in one line.
    """
    if not isinstance(design, Design):
        design = load_design(design, profile, trust, confirm)
    elif confirm is not None:
        raise UserError("confirm: stated with a loaded design; load the design with it")
    require_trust(planned.cell for planned in design.cells)
    store = store_of(design, output)
    require_writable(store.folder)
    store = with_shares(store)
    _require_own_folder(design, store)
    meter = Meter()
    tell = observer or (lambda *_: None)
    with contextlib.ExitStack() as held:
        # The executor comes first: if it cannot be used, no folder is made.  It also ends first: the theory of all
        # cells may take minutes, in which jobs of a cluster would idle.
        with open_queue(executor, workers, trust_network, lambda: held.enter_context(store.locked())) as queue:
            told: dict[int, Any] = {}
            ledger = open_ledger(design, store, queue.device, told)
            teller = Teller(store, design)
            simulate(ledger, queue, meter, teller, tell, budget=design.budget)
            teller(ledger, last=True)
            how: dict[str, Any] = {"executor": str(executor), "workers": queue.workers()}
        store.flush()  # a disk that took no batch takes no results
        how |= {**ledger.tally(), **meter.read()}
        results, details = _judged(ledger, design, lambda predicted: tell(ledger, predicted), queue.device, told)
        machine = provenance(queue.device, [planned.cell for planned in design.cells])
        how |= {name: machine[name] for name in ("device", "processor", "system")}
        results.attrs["run"] = json.dumps(how)
        store.write_dataset(DETAILS_FILE, details)
        store.write_dataset(RESULTS_FILE, tree_of(results))
        file = None if design.path is None else os.path.relpath(design.path, store.folder)
        store.write_json(PROVENANCE_FILE, {**results.attrs, **machine, "run": how, "design_file": file})
    # As they will be read ever after: reports are the same bytes whoever writes them, and when.
    return read_cells(store)


@threadpool_limits.wrap(limits=1)
def _judged(
    ledger: Ledger, design: Design, tell: Callable[[int], None], device: str, told: dict[int, Any]
) -> tuple[xr.Dataset, xr.Dataset]:
    # Imported here: with the theory they take a second, which a command that only looks need not wait for.
    from simstudy.verdicts.assemble import assemble
    from simstudy.verdicts.judge import judge

    joined, details = assemble(design, ledger.accounts, tell, device, told)
    found = [joined, judge(design, ledger.accounts, told), *_zipped(design)]
    return xr.merge(found, combine_attrs="override"), details


def _zipped(design: Design) -> Iterator[xr.Dataset]:
    """Yield the intervals of single replicates, if a figure shows any."""
    figures = [figure for figure in design.figures.values() if isinstance(figure, ZipFigure)]
    if not figures:
        return
    from simstudy.replicates.replay import INTERVAL, intervals_of

    intervals = np.full((len(design.cells), ZIPPED, len(INTERVAL)), np.nan)
    for number, (grid, cell) in enumerate((planned.grid, planned.cell) for planned in design.cells):
        if any(figure.grid == grid and selected(cell.coordinates, figure.where) for figure in figures):
            intervals[number] = intervals_of(cell, ZIPPED)
    yield labelled({"interval": intervals}, {"drawn": np.arange(ZIPPED), "end": list(INTERVAL)}, {})


def run_share(
    design: Design,
    share: Share,
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: str = "threads",
    workers: int | None = None,
    trust_network: bool = False,
    observer: Observer | None = None,
) -> Store:
    """Compute what is missing of the cells of a share, by its precision alone; return the folder that has it."""
    if executor == "cuda":
        raise UserError("executor = 'cuda': shares are computed on CPUs only; leave out --share, or choose another")
    require_trust(planned.cell for planned in design.cells)
    part, store = share.of(design), store_of(design, output)
    require_writable(store.folder)
    store = share.store(with_shares(store))
    with open_queue(executor, workers, trust_network) as queue, store.locked():
        open_share(store)
        simulate(Ledger(part, store), queue, Meter(), observer or (lambda *_: None), budget=part.budget)
    return store


def open_ledger(design: Design, store: Store, device: str = "cpu", told: dict[int, Any] | None = None) -> Ledger:
    """Return the ledger of a design with the rule of its claims and the control variate over query points, if any."""
    given: dict[str, Any] = {}
    if any(planned.precision.stop != "precision" for planned in design.cells):
        from simstudy.verdicts.judge import wanted_by_claims

        given["rule"] = partial(wanted_by_claims, design, {} if told is None else told)
    if any("queries" in planned.cell.population for planned in design.cells):
        from simstudy.verdicts.query_control import QueryControl

        given["control"] = QueryControl(design.cells)
    return Ledger(design, store, device, **given)


def simulate(ledger: Ledger, queue: Queue, meter: Meter, *observers: Callable[[Ledger], Any], budget: Budget) -> None:
    """Compute batches until the stopping rule wants no more of any cell, or the budget is spent.

    Observers are called after each task.
    """
    ledger.state_cells()
    queue.add(ledger.first_tasks())
    for observer in observers:
        observer(ledger)
    for task, outcome in queue:
        meter.add(outcome)
        queue.add(ledger.record(task, outcome.batches))
        if spent := budget.spent(meter.cpu_seconds, meter.wall_seconds):
            ledger.cut()
        for observer in observers:
            observer(ledger)
        if spent:
            break


def plan(
    design: Design,
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: str = "threads",
    track: Callable[[Iterable[Any], int], Iterable[Any]] = lambda tasks, _: tasks,
) -> Plan:
    """Run a `pilot` of a study, by the rule and the control that the run will have."""
    require_trust(planned.cell for planned in design.cells)
    store = store_of(design, output)
    require_writable(store.folder)
    store = with_shares(store)
    with open_queue(executor) as queue, store.locked():
        return pilot(open_ledger(design, store, queue.device), store, queue, track)


def _require_own_folder(design: Design, store: Store) -> None:
    """Refuse to write over the results of another file that states a design of the same name."""
    other = store.design_file
    if design.path is None or other is None or not other.is_file():
        return
    try:
        name = name_of(read_design(other).tables)
    except UserError:  # it is no design any more
        return
    if name == design.study.name and not os.path.samefile(other, design.path):
        remedy = "give one of them another name, or choose another --output"
        raise UserError(f"{store.folder}: holds the results of {other}, whose study has the same name; {remedy}")
