"""Where estimates lie in the interval claimed: places on a line, which a page draws beside the numbers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

ROOM = 0.1
"""Of the line on either side of what is shown."""
NARROWEST = 0.008
"""Width of an interval claimed that is narrower: else a point could not be seen."""
COVERAGE = 1.96
"""Half-width of the thick part of a line in MCSE: a 95 % interval."""


class Found(NamedTuple):
    """What one run found of a claim: its verdict, estimate with MCSE, and the interval in which the truth lies."""

    verdict: str
    estimate: float
    mcse: float
    confidence: tuple[float, float]


class Mark(NamedTuple):
    """Places of one run from 0 to 1: the interval in which the truth lies, estimate ± 1.96 MCSE, and the estimate."""

    confidence: tuple[float, float]
    error: tuple[float, float]
    estimate: float


class Picture(NamedTuple):
    """Places from 0 to 1: the interval claimed, and the marks of every run."""

    claimed: tuple[float, float]
    marks: tuple[Mark | None, ...]


def picture(claimed: tuple[float, float], runs: Sequence[Found]) -> Picture | None:
    """Return the places of the interval claimed and of what runs found, on one line; None without any estimate."""
    shown = [run for run in runs if math.isfinite(run.estimate)]
    ends = [end for run in shown for end in (run.estimate, *run.confidence)] + list(claimed)
    ends = [end for end in ends if math.isfinite(end)]
    if not shown or max(ends) == min(ends):
        return None
    low, width = min(ends), max(ends) - min(ends)

    def place(value: float) -> float:
        return min(max(ROOM + (1 - 2 * ROOM) * (value - low) / width, 0.0), 1.0)

    def places(interval: tuple[float, float]) -> tuple[float, float]:
        return place(interval[0]), place(interval[1])

    def mark(run: Found) -> Mark | None:
        if run not in shown:
            return None
        reach = COVERAGE * run.mcse if math.isfinite(run.mcse) else 0.0
        return Mark(places(run.confidence), places((run.estimate - reach, run.estimate + reach)), place(run.estimate))

    first, last = places(claimed)
    room = max(NARROWEST - (last - first), 0.0) / 2
    return Picture((first - room, last + room), tuple(map(mark, runs)))
