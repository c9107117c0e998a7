"""All figures of a study as files, drawn side by side by processes of their own where that is worth their start."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import xarray as xr

from simstudy.design.document import Design
from simstudy.execution.store import Store
from simstudy.report.labels import ALL_CLAIMS, Z_SCORES
from simstudy.report.tables import VerdictLine

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Files = dict[str, bytes]
"""A figure in each format, by the ending of its file; without any if there is nothing to draw."""
_FORMATS = "png", "svg"
_WORTH_A_PROCESS = 7
"""Figures that take longer to draw than a process takes to start, which is as long as six take."""


class Shown(NamedTuple):
    """What the figures of a study show.

    Attributes
    ----------
    results, design
        Labelled results with the cells and figures of the design.
    lines
        Its verdicts.
    folder
        Of the study: theory between levels is read there, or computed and stored.
    """

    results: xr.Dataset
    design: Design
    lines: Sequence[VerdictLine]
    folder: Path


def figure_files(shown: Shown, workers: int) -> dict[str, Files]:
    """Return all figures of a study by name: those that the design declares, cells against theory, and claims.

    Parameters
    ----------
    shown
        What they show.
    workers
        Processes to draw in at most, this one among them.  The bytes are the same for any number of them.
    """
    names = [*shown.design.figures, Z_SCORES, ALL_CLAIMS]
    workers = min(workers, len(names) // _WORTH_A_PROCESS)
    if workers < 2:
        return {name: _files(shown, name) for name in names}
    # Not forked from this process, whose threads may hold locks that a copy would wait for; nor from a server, which
    # would listen on a socket.
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(workers - 1, multiprocessing.get_context("spawn"), _begin, (shown,))
    try:
        with _interruptions_held():
            elsewhere = {name: pool.submit(_files_there, name) for name in names}
        # What no other process has begun, from the last on; they begin with the first.
        here = {name: _files(shown, name) for name in reversed(names) if elsewhere[name].cancel()}
        files = {name: here[name] if name in here else elsewhere[name].result() for name in names}
    except BaseException:
        # Nobody wants what they are drawing.  Without the first line the pool would complain of what was taken back.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()).difference(others):
            process.terminate()
        raise
    pool.shutdown()
    return files


@contextlib.contextmanager
def _interruptions_held() -> Iterator[None]:
    """Begin processes that no interruption reaches: the one that waits for them ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(shown: Shown) -> None:
    """Prepare a process that draws: it ends with the one that waits for it, however that ends."""
    global _shown
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _shown = shown


def _end_with_parent() -> None:
    # Killed, it could not tell: its workers would wait for ever.
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


_shown: Shown


def _files_there(name: str) -> Files:
    return _files(_shown, name)


def _files(shown: Shown, name: str) -> Files:
    # Imported here: with Matplotlib it takes half a second, and other processes begin meanwhile.
    from simstudy.report.figures import image, lay_out

    drawing = _drawing(shown, name)
    if drawing is None:
        return {}
    lay_out(drawing)
    return {suffix: image(drawing, suffix) for suffix in _FORMATS}


def _drawing(shown: Shown, name: str) -> Drawing | None:
    from simstudy.report.between import between_of
    from simstudy.report.figures import draw, draw_claims, draw_z_scores

    if name == Z_SCORES:
        return draw_z_scores(shown.results)
    if name == ALL_CLAIMS:
        return draw_claims(shown.lines) if shown.lines else None
    figure = shown.design.figures[name]
    between = between_of(figure, name, shown.results, shown.design, Store(shown.folder))
    return draw(figure, name, shown.results, between)
