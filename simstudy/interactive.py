"""Functions for Python users: runs and plans that show how far they are, and results that show what they found.

The results of a study are an `xarray.DataTree` and stay one; what is particular to a study is behind their accessor
``simstudy``, as xarray advises: a class of our own would be lost with the first selection, or break what analysts know.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import xarray as xr

from simstudy.design.document import Design
from simstudy.design.load import Source, declared, load_design
from simstudy.design.settings.records import hint
from simstudy.errors import PrecisionWarning, UserError
from simstudy.execution.store import DEFAULT_OUTPUT, store_of
from simstudy.replicates.allocation import sized
from simstudy.report.progress import ProgressDisplay, missed_line, undecided_line
from simstudy.report.tables import cell_frame, count_verdicts, verdict_frame, verdict_lines
from simstudy.report.terminal import counted, is_watched, track
from simstudy.results import cells_of, open_results, tree_of
from simstudy.study import Observer, complete, require_trust, rules_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simstudy.execution.plan import Plan

__all__ = ["Findings", "Plot", "open_results", "plan", "run"]


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
    ``<output>/<study>/<profile>/``, and nothing is done where they are those of the design, code and batches.  They are
    the same to the bit for any executor, workers and interruptions.

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
        ``serial``, ``threads``, ``processes``, ``cuda`` (a process for each GPU), the name of a joblib backend, the
        address of a Dask scheduler; or an object: a `dask.distributed.Client`, a cluster of Dask (local, SSH,
        Kubernetes, Gateway, Coiled), or any executor of `concurrent.futures`, which stay open.
    workers
        Threads or processes, at least 1; all cores by default.
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
    # New processes import a script, and would make its call of this function again.
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__.py")  # which is not run again
    once = script.name == "__main__.py" or not script.is_file() or b"__name__" in script.read_bytes()
    if executor in ("processes", "cuda") and not once:
        remedy = "write the call below if __name__ == '__main__':"
        raise UserError(f"executor: processes import your script, and would call again; {remedy}")
    if isinstance(design, Design) and confirm is not None:
        raise UserError("confirm: stated with a loaded design; load the design with it")
    loaded = design if isinstance(design, Design) else load_design(design, profile, trust, confirm)
    with contextlib.nullcontext(observer) if observer else ProgressDisplay(quiet=not is_watched()) as told:
        cells, status, notes = complete(loaded, output=output, observer=told, executor=executor, workers=workers)
    lines = [missed_line(status, loaded), undecided_line(cells, loaded) if loaded.claims else ""]
    for kind, texts in ((PrecisionWarning, lines), (UserWarning, notes)):
        if text := "\n".join(filter(None, texts)):
            warnings.warn(text, kind, stacklevel=2)
    results = tree_of(cells)
    results.encoding = dict(cells.encoding)
    return results


def plan(
    design: Design | Source,
    profile: str = "quick",
    *,
    output: str | Path = DEFAULT_OUTPUT,
    executor: Any = "threads",
    trust: Iterable[str | Path] = (),
) -> Plan:
    """Predict time, memory and disk of a study from a few batches of each cell, which `run` uses later.

    Parameters
    ----------
    design, profile, output, executor, trust
        As for `simstudy.run`.

    Returns
    -------
    Plan
        Of each of ``grids`` replicates, bytes, batches and processor seconds; ``peak_MiB``; ``seconds(workers)``.

    Raises
    ------
    DesignError
        If the design has mistakes.
    UserError
        If the output cannot be written.
    """
    from simstudy.execution.executors import open_executor
    from simstudy.execution.plan import pilot
    from simstudy.execution.state import RunState, require_memory
    from simstudy.execution.status import StatusWriter

    loaded = design if isinstance(design, Design) else load_design(design, profile, trust)
    require_trust(planned.cell for planned in loaded.cells)
    store = store_of(loaded, output)
    with open_executor(executor, claim=partial(require_memory, loaded.cells)) as opened, store.locked():
        loaded = sized(loaded)
        state = RunState(loaded, store, opened.device, **rules_of(loaded))
        return pilot(state, opened, track, StatusWriter(store, loaded).write)


class Plot(NamedTuple):
    """A figure of a study, which a notebook shows; ``drawing`` is Matplotlib's."""

    drawing: Figure

    def _repr_png_(self) -> bytes:
        from simstudy.report.figures import image

        return image(self.drawing)


@xr.register_datatree_accessor("simstudy")
class Findings:
    """Results in words and plots: ``results.simstudy`` of what `simstudy.run` and `simstudy.open_results` return."""

    def __init__(self, results: xr.DataTree) -> None:
        self._results = cells_of(results)

    @property
    def verdicts(self) -> pd.DataFrame:
        """One row for each claim: its verdict, the estimate that decides it, and what was claimed."""
        return verdict_frame(self._results).set_index("claim") if "claim" in self._results else pd.DataFrame()

    @property
    def cells(self) -> pd.DataFrame:
        """One row for each cell: settings, counts, and each measure with its Monte Carlo error and theory."""
        return cell_frame(self._results)

    @property
    def figures(self) -> dict[str, Any]:
        """Figures that the design declares, by name, or the one that shows its first claim or measure."""
        from simstudy.report.page import figures_of

        return figures_of(declared(self._results.attrs["design"], self._results.attrs["profile"]), self._results)

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
            raise UserError(f"figure = {name!r}: not declared by the design; {hint(name, list(figures))}")
        return Plot(draw(figures[name], name, self._results))

    def __repr__(self) -> str:
        return "\n".join([*self._summary(), *([self._brief().to_string()] if "claim" in self._results else [])])

    def _repr_html_(self) -> str:
        from html import escape

        lines = "<br>".join(map(escape, self._summary()))
        return f"<p>{lines}</p>{self._brief().to_html() if 'claim' in self._results else ''}"

    def _summary(self) -> list[str]:
        results, run = self._results, json.loads(self._results.attrs["run"])
        replicates, failed = (int(results[name].sum()) for name in ("n_replicates", "n_failed"))
        size = f"{counted(results.sizes['cell'], 'cell')}, {replicates:,} replicates, {failed:,} failed"
        counts = [count_verdicts(verdict_lines(results))] if "claim" in results else []
        short = int((~results.precision_reached.astype(bool)).sum())
        missed = f"{counted(short, 'cell')} short of the target; raise max_replicates or the budget, and run again"
        title = f"{results.attrs['title']} ({results.attrs['profile']})"
        return [title, f"{size}, by {run['device']}", *([missed] if short else []), *counts]

    def _brief(self) -> pd.DataFrame:
        columns = ["claim", "verdict", "expected", "statistic", "estimate", "claimed"]
        return pd.DataFrame(map(vars, verdict_lines(self._results)))[columns].set_index("claim")
