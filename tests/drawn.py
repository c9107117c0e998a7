"""Figures as tests state them, and what is read back from drawings."""

import numpy as np
from matplotlib.container import ErrorbarContainer
from pydantic import TypeAdapter

from simstudy.design.document import Figure
from simstudy.report.figures.shared import STRIP

_FIGURE = TypeAdapter(Figure)


def stated(kind="curve", **entries):
    return _FIGURE.validate_python({"kind": kind, "title": "t", "y": "mse"} | entries)


def panels(drawing):
    return [axes for axes in drawing.axes if axes.get_visible() and axes.get_label() != STRIP]


def strips(drawing):
    return [axes for axes in drawing.axes if axes.get_visible() and axes.get_label() == STRIP]


def bars(axes):
    return [container for container in axes.containers if isinstance(container, ErrorbarContainer)]


def half_lengths(bar, axis=1):
    """Of the bars of one colour, along y or x (axis 0)."""
    return np.ptp(np.array(bar.lines[2][0].get_segments())[:, :, axis], axis=1) / 2


def points(axes):
    return np.concatenate([np.column_stack(bar.lines[0].get_data()) for bar in bars(axes)])


def lines(axes, label):
    return [line for line in axes.lines if line.get_label() == label]


def legend_texts(drawing):
    return [[text.get_text() for text in legend.get_texts()] for legend in drawing.legends]


def reading(drawing):
    """All that the legends say, in one line."""
    return " ".join(" ".join(text for texts in legend_texts(drawing) for text in texts).split())
