"""All claims of a study in one figure: where each estimate, with its error, lies in the interval claimed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Drawing

from simstudy.report.figures.marks import COLOURS, NEUTRAL
from simstudy.report.tables import VerdictLine

COLOUR_OF = {"supported": COLOURS[2], "contradicted": COLOURS[0], "inconclusive": NEUTRAL}
UNEXPECTED = COLOURS[1]
"""Colour of claims that did not come out as declared, whatever their verdict."""
APART = 0.22
"""Distance between the marks of pilot and confirmations, in rows."""
ROW_HEIGHT, WIDTH = 0.5, 11.0
"""Inches."""
CHARACTERS = 96
"""Of a line beside the picture."""
MAX_CLAIMS = 200
"""Rows that are drawn: a picture with more can be neither rendered nor read."""


def claims_figure(lines: Sequence[VerdictLine]) -> Drawing:
    """Draw a row for each claim, on its own scale: decisive estimate, interval claimed, interval of the truth."""
    shown = lines[:MAX_CLAIMS]
    drawing = Drawing(figsize=(WIDTH, ROW_HEIGHT * len(shown) + 0.9), layout="constrained")
    words, axes = drawing.subplots(1, 2, sharey=True, width_ratios=(6, 5))
    for row, line in enumerate(shown):
        colour = COLOUR_OF[line.verdict] if line.outcome == "expected" else UNEXPECTED
        text = textwrap.shorten(line.statistic, CHARACTERS, placeholder=" …")
        outcome = line.verdict + ("" if line.outcome == "expected" else f", not as declared ({line.declared})")
        words.text(0, row, f"{line.claim}: {outcome}\n{text}\n{line.estimate}; claimed {line.claimed}",
                   va="center", fontsize=8, color=colour)  # fmt: skip
        if line.picture:
            claimed, marks = line.picture.claimed, line.picture.marks
            axes.barh(row, claimed[1] - claimed[0], left=claimed[0], height=0.6, color=colour, alpha=0.18)
            places = row + APART * (np.arange(len(marks)) - (len(marks) - 1) / 2)
            for mark, place, (which, _, _) in zip(marks, places.tolist(), line.runs, strict=True):
                if mark:
                    axes.plot(mark.confidence, (place, place), color=colour, linewidth=1.0)
                    axes.plot(mark.error, (place, place), color=colour, linewidth=3.0, solid_capstyle="butt")
                    axes.plot(mark.estimate, place, "s" if which.startswith("confirmed") else "o", color=colour)
    words.set(ylim=(len(shown) - 0.5, -0.5), xlim=(0, 1))
    words.axis("off")
    axes.set(xlim=(0, 1), xticks=[])
    text = f"band: claimed; dot: pilot, square: confirmed, ± 1.96 MCSE; line: {shown[0].level} interval, "
    text += "at any number of looks\n"
    text += "green: supported, blue: contradicted, as declared; orange: not as declared"
    drawing.supxlabel(text, fontsize=8)
    axes.tick_params(left=False, labelleft=False)
    axes.grid(visible=False)
    if len(lines) > len(shown):
        drawing.suptitle(f"the first {len(shown)} of {len(lines)} claims")
    return drawing
