"""Zip plots: intervals of single replicates, ordered by how far they are from the truth."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Drawing

from simstudy.report.figures.marks import COLOURS, COVERAGE
from simstudy.report.figures.panels import canvas

INTERVAL = ("lower", "upper", "truth")
"""What is drawn of each replicate."""


def draw_zip(rows: np.ndarray, replicates: int) -> Drawing:
    """Draw intervals less the truth, from a row of `INTERVAL` for each of the replicates that have not failed."""
    lower, upper, truth = rows.T
    lower, upper = lower - truth, upper - truth
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.abs(lower + upper) / (upper - lower)
    order = np.argsort(np.nan_to_num(far, nan=np.inf), kind="stable")
    lower, upper, covers = lower[order], upper[order], ((lower <= 0) & (upper >= 0))[order]
    n, share = len(covers), covers.mean()
    height = 100.0 * (np.arange(n) + 0.5) / n
    drawing, grid = canvas(1, 4.8)
    axes = grid[0, 0]
    for part, colour, label in ((covers, COLOURS[0], "covers the truth"), (~covers, COLOURS[1], "does not")):
        axes.hlines(height[part], lower[part], upper[part], color=colour, linewidth=min(2.0, 300.0 / n), label=label)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set(xlabel="interval less the truth", ylabel="centile of distance over half length", ylim=(0, 100))
    error = COVERAGE * float(np.sqrt(share * (1 - share) / n))
    axes.set_title(
        f"{n} replicates cover in {100 * share:.3g} ± {100 * error:.2g} %; {replicates - n} failed", loc="left"
    )
    axes.legend(loc="lower right")
    return drawing
