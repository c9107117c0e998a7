"""All figures of a study as files."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import xarray as xr

from simstudy.design.document import Design
from simstudy.report.labels import ALL_CLAIMS, Z_SCORES
from simstudy.report.tables import VerdictLine


def figure_files(results: xr.Dataset, design: Design, lines: Sequence[VerdictLine]) -> dict[str, dict[str, bytes]]:
    """Return all figures of a study by name and ending of the file: declared ones, cells against theory, and claims."""
    with contextlib.chdir(Path(__file__).parent):
        # Matplotlib reads a file of settings in the current folder when it is imported, which takes half a second.
        from simstudy.report.figures import draw, draw_claims, draw_z_scores, image, lay_out

    files: dict[str, dict[str, bytes]] = {}
    for name in (*design.figures, Z_SCORES, ALL_CLAIMS):
        if name == Z_SCORES:
            drawing = draw_z_scores(results)
        elif name == ALL_CLAIMS:
            drawing = draw_claims(lines) if lines else None
        else:
            drawing = draw(design.figures[name], name, results)
        if drawing is not None:
            lay_out(drawing)
        files[name] = {} if drawing is None else {suffix: image(drawing, suffix) for suffix in ("png", "svg")}
    return files
