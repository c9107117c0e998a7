"""Figures of a whole study, which no design declares: all claims, and all cells against theory."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing
from scipy.special import ndtri

from simstudy.design.measures import MEASURES, THEORIES
from simstudy.report.figures.shared import COLOURS, NEUTRAL, canvas, label_y, legends, looks_of, own_style, short
from simstudy.report.labels import THEORY_NAMES, measure_name
from simstudy.report.tables import VerdictLine
from simstudy.verdicts.figure_data import by_source, z_scores

COLOUR_OF = {"supported": COLOURS[2], "contradicted": COLOURS[0], "undecided": NEUTRAL}
UNEXPECTED = COLOURS[1]
"""Colour of claims that did not come out as expected, whatever their verdict."""
ROW_HEIGHT, WIDTH = 0.5, 11.0
"""Inches."""
CHARACTERS = 96
"""Of a line beside the picture."""
MAX_CLAIMS = 200
"""Rows that are drawn: a picture with more can be neither rendered nor read."""


@own_style()
def draw_claims(lines: Sequence[VerdictLine]) -> Drawing:
    """Draw a row for each claim, on its own scale: decisive estimate, interval claimed, interval of the truth."""
    shown = lines[:MAX_CLAIMS]
    drawing = Drawing(figsize=(WIDTH, ROW_HEIGHT * len(shown) + 0.9), layout="constrained")
    words, axes = drawing.subplots(1, 2, sharey=True, width_ratios=(6, 5))
    for row, line in enumerate(shown):
        colour = COLOUR_OF[line.verdict] if line.outcome == "expected" else UNEXPECTED
        text = short(line.statistic, CHARACTERS)
        outcome = line.verdict + ("" if line.outcome == "expected" else f", not as expected ({line.expected})")
        words.text(
            0,
            row,
            f"{line.claim}: {outcome}\n{text}\n{line.estimate}; claimed {line.claimed}",
            va="center",
            fontsize=8,
            color=colour,
        )
        if line.picture:
            claimed, (mark,) = line.picture.claimed, line.picture.marks
            axes.barh(row, claimed[1] - claimed[0], left=claimed[0], height=0.6, color=colour, alpha=0.18)
            if mark:
                axes.plot(mark.confidence, (row, row), color=colour, linewidth=1.0)
                axes.plot(mark.error, (row, row), color=colour, linewidth=3.0, solid_capstyle="butt")
                axes.plot(mark.estimate, row, "o", color=colour)
    words.set(ylim=(len(shown) - 0.5, -0.5), xlim=(0, 1))
    words.axis("off")
    axes.set(xlim=(0, 1), xticks=[])
    text = f"band: claimed; dot: estimate ± 1.96 MCSE; line: {shown[0].level} interval, "
    text += "at any number of looks\n"
    text += "green: supported, blue: contradicted, as expected; orange: not as expected"
    drawing.supxlabel(text, fontsize=8)
    axes.tick_params(left=False, labelleft=False)
    axes.grid(visible=False)
    if len(lines) > len(shown):
        drawing.suptitle(f"the first {len(shown)} of {len(lines)} claims")
    return drawing


FURTHEST = 8.0
"""z-scores beyond are drawn at the edge."""
ROUNDING = 1e-12
"""An error of so small a part of the estimate is rounding, in which a z-score means nothing."""


def compared_measures(results: xr.Dataset) -> list[str]:
    """Return the measures of ensembles of which some cell has an error and a value by some theory."""
    return [name for name in MEASURES if any(len(_known(results, name, source)) for source in THEORIES)]


@own_style()
def draw_z_scores(results: xr.Dataset, *measures: str) -> Drawing | None:
    """Draw a panel for each measure, a colour for each theory: by chance points would follow the line; None without."""
    if not (measures := measures or tuple(compared_measures(results))):
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
            axes.plot(
                expected,
                np.clip(found, -FURTHEST, FURTHEST),
                look.marker,
                color=look.colour,
                markersize=4,
                markerfacecolor="white",
                label=source,
            )
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
    found = z_scores(results, measure, source)
    estimate = np.abs(by_source(results, measure, "empirical"))
    return found[np.isfinite(found) & (results[f"{measure}_mcse"].values > ROUNDING * estimate)]
