"""The figure of a whole study, which no design declares: all cells against theory."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing
from scipy.special import ndtri

from simstudy.design.measures import MEASURES, THEORIES
from simstudy.report.figures.shared import NEUTRAL, canvas, label_y, legends, looks_of, own_style
from simstudy.report.labels import THEORY_NAMES, measure_name
from simstudy.shown import by_source

FURTHEST = 8.0
"""z-scores beyond are drawn at the edge."""
ROUNDING = 1e-12
"""An error of so small a part of the estimate is rounding, in which a z-score means nothing."""


@own_style()
def draw_z_scores(results: xr.Dataset, *measures: str) -> Drawing | None:
    """Draw a panel for each measure, a colour for each theory: by chance points would follow the line; None without."""
    compared = (name for name in MEASURES if any(len(_known(results, name, source)) for source in THEORIES))
    if not (measures := measures or (*compared,)):
        return None
    drawing, grid = canvas(len(measures), 3.0)
    known = {(name, source): _known(results, name, source) for name in measures for source in THEORIES}
    told = [source for source in THEORIES if any(len(known[name, source]) for name in measures)]
    looks = looks_of(THEORIES)
    beyond = 0
    for axes, measure in zip(grid.flat, measures, strict=False):
        axes.plot([-FURTHEST, FURTHEST], [-FURTHEST, FURTHEST], color=NEUTRAL, linewidth=0.8, label="by chance")
        for source in told:
            found, look = np.sort(known[measure, source]), looks[source]
            # Median ranks (Blom 1958).
            expected = ndtri((np.arange(len(found)) + 0.625) / (len(found) + 0.25))
            beyond += int((np.abs(found) > FURTHEST).sum())
            style = {"color": look.colour, "markersize": 4, "markerfacecolor": "white", "label": source}
            axes.plot(expected, np.clip(found, -FURTHEST, FURTHEST), look.marker, **style)
        axes.set(xlim=(-3.6, 3.6), ylim=(-1.08 * FURTHEST, 1.08 * FURTHEST), xlabel="normal quantile")
        axes.set_title(measure_name(measure), loc="left")
    label_y(grid.flat[: len(measures)], "z-score")
    words = ["z: (Monte Carlo − theory) / error, a point for each cell; line: where chance would put independent cells",
             "cells that share data move together",
             "leading order is theory for many keys: far from the line, its own error shows"]  # fmt: skip
    words += [f"drawn at the edge: {beyond} beyond ±{FURTHEST:g}"] if beyond else []
    legends(drawing, {THEORY_NAMES[source]: looks[source] for source in told}, [*words])
    return drawing


def _known(results: xr.Dataset, measure: str, source: str) -> np.ndarray:
    """Return z-scores (Monte Carlo − theory) / error, numerical errors included, of cells that have one."""
    mcse, estimate = results[f"{measure}_mcse"].values, by_source(results, measure, "empirical")
    exact = source == "exact" and f"{measure}_numerical_error" in results
    errors = np.hypot(mcse, np.nan_to_num(results[f"{measure}_numerical_error"].values)) if exact else mcse
    found = (estimate - by_source(results, measure, source)) / np.where(errors > 0, errors, np.nan)
    return found[np.isfinite(found) & (mcse > ROUNDING * np.abs(estimate))]
