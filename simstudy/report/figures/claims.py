"""All claims of a study in one figure: where each estimate, with its error, lies in the interval claimed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing

from simstudy.report.figures.marks import COLOURS, NEUTRAL
from simstudy.report.tables import VerdictLine

COLOUR_OF = {"supported": COLOURS[2], "contradicted": COLOURS[1], "inconclusive": NEUTRAL}
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
    FigureCanvasAgg(drawing)
    words, axes = drawing.subplots(1, 2, sharey=True, width_ratios=(6, 5))
    for row, line in enumerate(shown):
        colour = COLOUR_OF[line.verdict]
        text = textwrap.shorten(line.statistic, CHARACTERS, placeholder=" …")
        words.text(0, row, f"{line.claim}: {line.verdict}\n{text}\n{line.estimate}; claimed {line.claimed}",
                   va="center", fontsize=8, color=colour)  # fmt: skip
        if line.picture:
            claimed, truth, estimate = line.picture.claimed, line.picture.confidence, line.picture.estimate
            axes.barh(row, claimed[1] - claimed[0], left=claimed[0], height=0.6, color=colour, alpha=0.18)
            axes.plot(truth, (row, row), color=colour)
            axes.plot(estimate, row, "o", color=colour)
    words.set(ylim=(len(shown) - 0.5, -0.5), xlim=(0, 1))
    words.axis("off")
    axes.set(xlim=(0, 1), xticks=[])
    axes.set_xlabel("band: claimed; dot: estimate; line: the truth, at the level of the claim", fontsize=8)
    axes.tick_params(left=False, labelleft=False)
    axes.grid(visible=False)
    if len(lines) > len(shown):
        drawing.suptitle(f"the first {len(shown)} of {len(lines)} claims")
    return drawing
