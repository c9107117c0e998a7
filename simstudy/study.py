"""Run and plan studies: compute missing batches, add theory, judge the claims, write and show the results.

The results of a study are an `xarray.DataTree`.  Methods that only a study has are in its accessor ``simstudy``, as
xarray advises: a selection from a subclass would lose them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from threadpoolctl import threadpool_limits

from simstudy.design.answerable import selected
from simstudy.design.document import ZIPPED, Design, ZipFigure
from simstudy.design.load import Source, declared, load_design, name_of, read_design
from simstudy.design.measures import labelled
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import GradientBoostingLearner, RandomForestLearner
from simstudy.design.settings.records import hint
from simstudy.errors import PrecisionWarning, UserError, require_extra
from simstudy.execution.provenance import Status, is_done, provenance, read_status
from simstudy.execution.store import DEFAULT_OUTPUT, DETAILS_FILE, PROVENANCE_FILE, RESULTS_FILE, store_of
from simstudy.replicates.allocation import sized
from simstudy.report.progress import ProgressDisplay, missed_line, undecided_line
from simstudy.report.tables import cell_frame, count_verdicts, verdict_frame, verdict_lines
from simstudy.report.terminal import counted, is_watched, track
from simstudy.results import cells_of, read_results, tree_of
from simstudy.results import open_results as open_results  # whose accessor is below

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simstudy.execution.state import CellProgress, Plan

# Modules that compute and judge take a second to import, and are imported where needed: a finished study needs none.
Observer = Callable[..., Any]  # takes the state of a run and, after the simulation, the number of cells with theory
INTERVAL = ("lower", "upper", "truth")


def run(
    design: Design | Source,
    profile: str = "quick",
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: Any = "threads",
    workers: int | None = None,
    observer: Observer | None = None,
    trust: Iterable[str | Path] = (),
    confirm: str | None = None,
) -> xr.DataTree:
    """Run a study to the precision of its design and return its results.

    Stored batches are not computed again; interrupt at any time and call again to continue.  Results are written to
    ``<output>/<study>/<profile>/``, and nothing is done if design, code and batches have not changed since.  They are
    bitwise the same for any executor, workers and interruptions.

    Parameters
    ----------
    design
        Path of a design file, name of a shipped design, a `simstudy.Study`, a dict as TOML parses it, or a
        `Design` from `simstudy.check`.
    profile
        Profile of the design file; ignored if a `Design` is given.
    output
        Folder of all studies.
    executor
        ``serial``, ``threads``, ``processes``, ``cuda`` (a process for each GPU), the name of a joblib backend, the
        address of a Dask scheduler; or an object: a `dask.distributed.Client`, a cluster of Dask (local, SSH,
        Kubernetes, Gateway, Coiled), or any executor of `concurrent.futures`, which stay open.
    workers
        Threads or processes, at least 1; all cores by default.
    observer
        Called at the start, after each task, and before the theory of each cell.
    trust
        Python files of the design whose code may run; ignored if a `Design` is given.
    confirm
        Text from which, with the design and its functions, other random numbers are derived; results are then written
        to ``<output>/<study>/<profile>/confirmed/<digest>/``.

    Returns
    -------
    xarray.DataTree
        Contents of ``results.nc``, as from `simstudy.open_results`; `simstudy.details` returns those of ``details.nc``.

    Warns
    -----
    PrecisionWarning
        From `simstudy.errors`: budget or ``max_replicates`` ended a cell before its precision, or left a claim open.

    Raises
    ------
    DesignError
        If the design has mistakes.
    UserError
        If the output cannot be written, the executor cannot be used, PyTorch is needed but not installed, or the text
        ``confirm`` cannot be shown in one line.
    """
    if isinstance(design, Design) and confirm is not None:
        raise UserError("confirm: stated with a loaded design; load the design with it")
    loaded = design if isinstance(design, Design) else load_design(design, profile, trust, confirm)
    return run_loaded(loaded, output=output, executor=executor, workers=workers, observer=observer)


def run_loaded(design: Design, *, observer: Any = None, executor: Any = "threads", **how: Any) -> xr.DataTree:
    """Run a study and warn the caller of `run` or `simulate`; further arguments as of `complete`."""
    # New processes import the script, which would call this function again.
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__.py")  # `__main__.py` is not imported
    once = script.name == "__main__.py" or not script.is_file() or b"__name__" in script.read_bytes()
    if executor in ("processes", "cuda") and not once:
        remedy = "write the call below if __name__ == '__main__':"
        raise UserError(f"executor: processes import your script, which would repeat the call; {remedy}")
    with contextlib.nullcontext(observer) if observer else ProgressDisplay(quiet=not is_watched()) as display:
        results, status, notes = complete(design, observer=display, executor=executor, **how)
    lines = [missed_line(status, design), undecided_line(cells_of(results), design)]
    for kind, texts in ((PrecisionWarning, lines), (UserWarning, notes)):
        if text := "\n".join(filter(None, texts)):
            warnings.warn(text, kind, stacklevel=3)
    return results


def folder_of(output: Any) -> Path:
    """Return the folder of all studies; UserError if it is not a path."""
    if isinstance(output, str | os.PathLike):
        return Path(output)
    raise UserError(f"output = {output!r:.60}: give the path of a folder")


def plan(
    design: Design | Source,
    profile: str = "quick",
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: Any = "threads",
    trust: Iterable[str | Path] = (),
) -> Plan:
    """Predict time, memory and disk of a study from a few batches of each cell, which `run` does not repeat.

    Parameters
    ----------
    design, profile, output, executor, trust
        As for `simstudy.run`.

    Returns
    -------
    Plan
        ``grids``: replicates, bytes, batches and processor seconds of each grid; ``peak_MiB``; ``seconds(workers)``.

    Raises
    ------
    DesignError
        If the design has mistakes.
    UserError
        If the output cannot be written.
    """
    from simstudy.execution.executors import open_executor, require_memory
    from simstudy.execution.state import RunState

    loaded = design if isinstance(design, Design) else load_design(design, profile, trust)
    require_trust(planned.cell for planned in loaded.cells)
    store = store_of(loaded, folder_of(output))
    with open_executor(executor, reserve=partial(require_memory, loaded.cells)) as opened, store.locked():
        loaded = sized(loaded, rules_of(loaded).get("control"))
        return RunState(loaded, store, opened.device, **rules_of(loaded)).pilot(opened, track)


def complete(
    design: Design,
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: Any = "threads",
    workers: int | None = None,
    observer: Observer = lambda *_: None,
    prepare: Callable[[], None] = lambda: None,
) -> tuple[xr.DataTree, Status, list[str]]:
    """Run a study as `simstudy.run` does; also return the status of its cells and notes on the run."""
    require_trust(planned.cell for planned in design.cells)
    store = store_of(design, folder_of(output))
    if os.path.isdir(store.folder):
        with store.locked():
            stated, name = store.read_json(PROVENANCE_FILE).get("design_file"), ""
            if design.path is not None and isinstance(stated, str):
                other = Path(os.path.normpath(store.folder.absolute() / stated))  # relative: both may have moved
                with contextlib.suppress(UserError):  # the file may be deleted, or no longer a design
                    name = name_of(read_design(other).tables)
                if name == design.study.name and not (design.path.exists() and os.path.samefile(other, design.path)):
                    fault = f"{store.folder}: holds the results of {other}, whose study has the same name"
                    raise UserError(f"{fault}; give one of them another name, or choose another --output")
            # A finished study needs no computation.
            status = read_status(design, store)
            if status and is_done(status, store, "cuda" if executor == "cuda" else "cpu"):
                prepare()
                return read_results(store), status, []
    from simstudy.execution.executors import Jobs, open_executor, require_memory
    from simstudy.execution.state import RunState
    from simstudy.verdicts.assemble import assemble
    from simstudy.verdicts.judge import judge

    with contextlib.ExitStack() as stack:

        def reserve(memory: float, workers: int) -> None:
            require_memory(design.cells, memory, workers)
            stack.enter_context(store.locked())
            prepare()  # writes files, as the arguments are accepted now

        # The executor is opened first: if that fails, no folder is made.  It is closed before theory is computed, which
        # may take minutes, so that jobs of a cluster are not idle.
        with open_executor(executor, workers, reserve) as opened:
            design, theories = sized(design, rules_of(design).get("control")), dict[int, Any]()
            state = RunState(design, store, opened.device, **rules_of(design, theories))
            state.run(opened, RunState.write_status_if_due, observer)
            state.write_status()
            by = str(executor) if isinstance(executor, str | Jobs) else type(executor).__name__
            machine = provenance(opened.device, [planned.cell for planned in design.cells])
            how: dict[str, Any] = {"executor": by, "workers": opened.workers(), **state.tally()}
        how |= {name: machine[name] for name in ("device", "processor", "system")}
        store.flush()  # fails if the disk did not take all batches
        with threadpool_limits(limits=1):
            joined, details = assemble(design, state.cells, partial(observer, state), opened.device, theories)
            judged = judge(design, state.cells, theories)
        results = xr.merge([joined, judged, *_first_intervals(design, state.cells)], combine_attrs="override")
        results.attrs["run"] = json.dumps(how)
        store.write_dataset(DETAILS_FILE, details)
        path = store.write_dataset(RESULTS_FILE, tree := tree_of(results))
        tree.encoding = {"source": str(path.absolute())}  # to find the details of the same run
        file = None if design.path is None else os.path.relpath(design.path, store.folder)
        store.write_json(PROVENANCE_FILE, {**results.attrs, **machine, "run": how, "design_file": file})
        state.fold()
        if damaged := how["batches_damaged"]:
            opened.notes.append(f"{damaged} stored batches were damaged and have been computed again; check the disk")
        return tree, state.write_status(opened.device), opened.notes


def require_trust(cells: Iterable[Cell]) -> None:
    """Raise a UserError for cells with untrusted functions, or that need packages that are not installed."""
    for cell in cells:
        if cell.estimator.reference.startswith("torch"):
            otherwise = ", or choose a profile that compares with multi_head_attention"
            require_extra(f'reference = "{cell.estimator.reference}"', "torch", "models", otherwise)
        if isinstance(cell.estimator.learner, RandomForestLearner | GradientBoostingLearner):
            require_extra("estimator.learner", "sklearn", "learners")
        for _, piece in cell.own:
            piece.code.require_trust()


def _first_intervals(design: Design, cells: Sequence[CellProgress]) -> Iterator[xr.Dataset]:
    """Yield intervals of the first replicates if a figure shows them; NaN for failed replicates."""
    if not (figures := [figure for figure in design.figures.values() if isinstance(figure, ZipFigure)]):
        return
    from simstudy.attention.functions import results_of

    intervals = np.full((len(design.cells), ZIPPED, len(INTERVAL)), np.nan)
    for part, progress in zip(intervals, cells, strict=True):
        grid, cell = progress.planned.grid, progress.planned.cell
        if any(figure.grid == grid and selected(cell.coordinates, figure.where) for figure in figures):
            found = [getattr(cell.functions, "parameters", {}) | results for results, _ in results_of(cell, 0, ZIPPED)]
            part[:] = [[results.get(end, np.nan) for end in INTERVAL] for results in found]
            part[[replicate for replicate in progress.failed if replicate < ZIPPED]] = np.nan
    yield labelled({"interval": intervals}, {"drawn": np.arange(ZIPPED), "end": list(INTERVAL)}, {})


def run_share(
    design: Design,
    share: str,
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: str = "threads",
    workers: int | None = None,
    observer: Observer = lambda *_: None,
) -> tuple[int, Path]:
    """Compute missing batches of a share of the cells; return the number of cells and the file of the batches."""
    if executor == "cuda":
        raise UserError("executor = 'cuda': shares are computed on CPUs only; leave out --share, or choose another")
    require_trust(planned.cell for planned in design.cells)
    from simstudy.execution.executors import open_executor, require_memory
    from simstudy.execution.state import RunState, part_of, require_same_engine

    design = sized(design, rules_of(design).get("control"))
    part, store = part_of(design, share), store_of(design, output, share.replace("/", "-of-"))
    if not part.cells:
        return 0, store.place
    with open_executor(executor, workers, partial(require_memory, part.cells)) as opened, store.locked():
        require_same_engine(design, store)
        RunState(part, store, **rules_of(design) | {"rule": None}).run(opened, observer)  # claims need all cells
    return len(part.cells), store.place


def rules_of(design: Design, theories: dict[int, Any] | None = None) -> dict[str, Any]:
    """Return arguments of `RunState`: stopping rule of the claims and control variate over query points, if any."""
    given: dict[str, Any] = {}
    if any(planned.precision.stop != "precision" for planned in design.cells):
        from simstudy.verdicts.judge import wanted_by_claims

        given["rule"] = partial(wanted_by_claims, design, {} if theories is None else theories)
    if any("queries" in planned.cell.population for planned in design.cells):
        from simstudy.verdicts.query_control import QueryControl

        given["control"] = QueryControl(design.cells)
    return given


class Plot(NamedTuple):
    """A figure that notebooks show; ``drawing`` is the figure of Matplotlib."""

    drawing: Figure

    def _repr_png_(self) -> bytes:
        from simstudy.report.figures import image

        return image(self.drawing)


@xr.register_datatree_accessor("simstudy")
class Findings:
    """Verdicts, tables and plots: ``results.simstudy`` for results of `simstudy.run` or `simstudy.open_results`."""

    def __init__(self, results: xr.DataTree) -> None:
        self._results = cells_of(results)

    @property
    def verdicts(self) -> pd.DataFrame:
        """One row for each claim: its verdict, the estimate that decides it, and the claimed value."""
        return verdict_frame(self._results).set_index("claim") if "claim" in self._results else pd.DataFrame()

    @property
    def cells(self) -> pd.DataFrame:
        """One row for each cell: settings, counts, and each measure with its Monte Carlo error and theory."""
        return cell_frame(self._results)

    @property
    def figures(self) -> dict[str, Any]:
        """Figures of the design, by name; without any, a figure of its first claim or measure."""
        from simstudy.report.page import figures_of

        stated = (self._results.attrs[name] for name in ("design", "profile", "confirmation_digest"))
        return figures_of(declared(*stated), self._results)

    def plot(self, figure: str | None = None) -> Plot:
        """Draw one of the ``figures``, by default the first.

        Raises
        ------
        UserError
            If there is no figure of that name.
        """
        from simstudy.report.figures import draw

        figures = self.figures
        name = next(iter(figures), "") if figure is None else figure
        if name not in figures:
            raise UserError(f"figure = {name!r}: not declared by the design; {hint(str(name), list(figures))}")
        return Plot(draw(figures[name], name, self._results))

    def __repr__(self) -> str:
        return "\n".join([*self._summary(), *([self._verdict_rows().to_string()] if "claim" in self._results else [])])

    def _repr_html_(self) -> str:
        lines = "<br>".join(map(escape, self._summary()))
        return f"<p>{lines}</p>{self._verdict_rows().to_html() if 'claim' in self._results else ''}"

    def _summary(self) -> list[str]:
        results, device = self._results, self._results.attrs["run"].partition('"device": "')[2].partition('"')[0]
        replicates, failed = (int(results[name].sum()) for name in ("n_replicates", "n_failed"))
        size = f"{counted(results.sizes['cell'], 'cell')}, {replicates:,} replicates, {failed:,} failed"
        counts = [count_verdicts(verdict_lines(results))] if "claim" in results else []
        short = int((~results.precision_reached.astype(bool)).sum())
        missed = f"{counted(short, 'cell')} short of the target; raise max_replicates or the budget, and run again"
        title = f"{results.attrs['title']} ({results.attrs['profile']})"
        return [title, f"{size}, by {device or 'an unknown device'}", *([missed] if short else []), *counts]

    def _verdict_rows(self) -> pd.DataFrame:
        columns = ["claim", "verdict", "expected", "statistic", "estimate", "claimed"]
        return pd.DataFrame(map(vars, verdict_lines(self._results)))[columns].set_index("claim")
