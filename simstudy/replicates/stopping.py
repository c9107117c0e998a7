"""How many batches a cell still needs: the stopping rule.

Decisions depend on the batches in index order alone, never on when they arrived, so that they are the same on any
number of workers and after any interruption.
"""

import math
from typing import NamedTuple

from simstudy.design.document import Precision
from simstudy.design.settings.cell import MIN_BLOCKS
from simstudy.replicates.performance import Performance

MIN_BATCHES = 4
"""Batches before the first look: from fewer blocks the MCSE is so uncertain that the rule would stop too early."""
GROWTH = 4
"""Largest factor by which the number of batches may grow between two looks: guards against an early, poor MCSE."""


def first_target(precision: Precision, batch_size: int, *, population: bool = False) -> int:
    """Return the batches before the first look: the floor, and enough for an MCSE, but no more than the ceiling."""
    floor = -(-precision.min_replicates // batch_size)
    least = MIN_BLOCKS if population else MIN_BATCHES
    return min(max(floor, least), -(-precision.max_replicates // batch_size))


class Shortfall(NamedTuple):
    """The measure whose MCSE is furthest from what is wanted: ``ratio`` is ``mcse / wanted``."""

    ratio: float
    measure: str
    mcse: float
    wanted: float


def shortfall(performance: Performance, precision: Precision) -> Shortfall:
    """Return the largest ratio of an MCSE to the MCSE wanted; undefined measures want none, nor do verdicts."""
    found, known = [Shortfall(0.0, "", 0.0, 0.0)], {} if precision.stop == "verdict" else performance.estimate
    wanted = [(m, r * abs(float(known[m]))) for m, r in precision.relative_mcse.items() if m in known]
    wanted += [(m, target) for m, target in precision.absolute_mcse.items() if m in known]
    for measure, target in wanted:
        mcse = float(performance.mcse[measure])
        if mcse > 0.0:
            found.append(Shortfall(mcse / target if target > 0.0 else math.inf, measure, mcse, target))
    return max(found)


def needed(done: int, performance: Performance, precision: Precision, batch_size: int) -> int:
    """Return how many batches the precision will take, by the root law of the MCSE, and a tenth more."""
    ceiling, ratio = -(-precision.max_replicates // batch_size), shortfall(performance, precision).ratio
    if ratio <= 1.0 or done >= ceiling:
        return done
    return math.ceil(min(1.1 * done * (ratio * ratio), ceiling))


def next_target(done: int, performance: Performance, precision: Precision, batch_size: int) -> int:
    """Return the number of batches wanted at the next look after ``done`` of them; ``done`` itself to stop."""
    return min(needed(done, performance, precision, batch_size), GROWTH * done)
