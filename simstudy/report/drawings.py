"""All figures of a study as files."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import xarray as xr

from simstudy.design.document import Design
from simstudy.report.labels import ALL_CLAIMS, Z_SCORES
from simstudy.report.tables import VerdictLine

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Files = dict[str, bytes]
"""A figure in each format, by the ending of its file; without any if there is nothing to draw."""
_FORMATS = "png", "svg"


class Shown(NamedTuple):
    """What the figures of a study show: labelled results, the design that gave them, and its verdicts."""

    results: xr.Dataset
    design: Design
    lines: Sequence[VerdictLine]


def figure_files(shown: Shown) -> dict[str, Files]:
    """Return all figures of a study by name: those that the design declares, cells against theory, and claims."""
    with contextlib.chdir(Path(__file__).parent):
        # Matplotlib reads a file of settings in the current folder when it is imported.
        import matplotlib as _  # noqa: F401
    # A drawing leaves little behind, and to look for it through all that is in memory takes a fifth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return {name: _files(shown, name) for name in (*shown.design.figures, Z_SCORES, ALL_CLAIMS)}
    finally:
        if collecting:
            gc.enable()


def _files(shown: Shown, name: str) -> Files:
    # Imported here: with Matplotlib it takes half a second.
    from simstudy.report.figures import image, lay_out

    drawing = _drawing(shown, name)
    if drawing is None:
        return {}
    lay_out(drawing)
    return {suffix: image(drawing, suffix) for suffix in _FORMATS}


def _drawing(shown: Shown, name: str) -> Drawing | None:
    from simstudy.report.figures import draw, draw_claims, draw_z_scores

    if name == Z_SCORES:
        return draw_z_scores(shown.results)
    if name == ALL_CLAIMS:
        return draw_claims(shown.lines) if shown.lines else None
    return draw(shown.design.figures[name], name, shown.results)
