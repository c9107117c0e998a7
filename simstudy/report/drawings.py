"""All figures of a study as files."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import xarray as xr

from simstudy.design.document import Design
from simstudy.report.labels import ALL_CLAIMS, Z_SCORES
from simstudy.report.tables import VerdictLine


def figure_files(
    results: xr.Dataset, design: Design, lines: Sequence[VerdictLine] = (), suffix: str = "png"
) -> dict[str, bytes]:  # fmt: skip
    """Return the figures of a study by name: declared ones, cells against theory, and the claims of ``lines``."""
    with contextlib.chdir(Path(__file__).parent):
        # Matplotlib reads a file of settings in the current folder when it is imported, which takes half a second.
        from simstudy.report.figures import draw, draw_claims, draw_z_scores, image

    files = {name: image(draw(figure, name, results), suffix) for name, figure in design.figures.items()}
    if (drawing := draw_z_scores(results)) is not None:
        files[Z_SCORES] = image(drawing, suffix)
    return files | ({ALL_CLAIMS: image(draw_claims(lines), suffix)} if lines else {})
