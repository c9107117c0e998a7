"""Where an estimate lies in the interval claimed: places on a line, which a page draws beside the numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

ROOM = 0.1
"""Of the line on either side of what is shown."""


class Picture(NamedTuple):
    """Places from 0 to 1: the interval claimed, that in which the truth lies, and the estimate."""

    claimed: tuple[float, float]
    confidence: tuple[float, float]
    estimate: float


def picture(estimate: float, claimed: tuple[float, float], confidence: tuple[float, float]) -> Picture | None:
    """Return the places of an estimate and two intervals on one line; nothing if there is no estimate to show.

    An end at infinity is at the end of the line.
    """
    ends = [end for end in (estimate, *claimed, *confidence) if math.isfinite(end)]
    if not math.isfinite(estimate) or max(ends) == min(ends):
        return None
    low, width = min(ends), max(ends) - min(ends)

    def place(value: float) -> float:
        return min(max(ROOM + (1 - 2 * ROOM) * (value - low) / width, 0.0), 1.0)

    def places(interval: tuple[float, float]) -> tuple[float, float]:
        return place(interval[0]), place(interval[1])

    return Picture(places(claimed), places(confidence), place(estimate))
