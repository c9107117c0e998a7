"""How many replicates a draw of query points and heads should have, by what each costs and contributes to the error.

With G draws of B replicates each the squared error is (s² + w²/B)/G, s² the variance of what draws give in the long run
and w² that of one replicate within a draw; the work is G(c + rB), c for a draw and r for a replicate.  For given work
the error is least at B = √((w²/s²)(c/r)) (Cochran 1977, section 10.6).
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.execution.account import Account
from simstudy.replicates.batch import Evaluation

TIMED_DRAWS = 3


class Nesting(NamedTuple):
    """Replicates for each draw of a cell.

    Attributes
    ----------
    replicates, best
        As the design has it; and as would cost least for the same error: a multiple of the blocks of a batch, infinite
        if draws add nothing to the error, so that fixed points would do.
    within
        Share of the squared error that replicates within draws make, the median over measures.
    draw_cost
        Time of a draw in replicates.
    """

    replicates: int
    best: float
    within: float
    draw_cost: float


def nesting(account: Account, batch_seconds: float) -> Nesting | None:
    """Return how the replicates of a cell are nested in draws, or None without a population or an estimate of it.

    Parameters
    ----------
    account
        The cell, with what was measured so far.
    batch_seconds
        Processor time of one of its batches, the draw included.
    """
    cell, found = account.planned.cell, account.performance
    if found is None or found.given is None or not batch_seconds > 0.0:
        return None
    shares = [
        min(1.0, float(found.given.mcse[name] / found.mcse[name]) ** 2)
        for name in found.mcse.keys() & found.given.mcse.keys()
        if np.ndim(found.mcse[name]) == 0 and found.mcse[name] > 0.0 and np.isfinite(found.given.mcse[name])
    ]
    if not shares:
        return None
    within, size = float(np.median(shares)), account.batch_size
    draw = min(_draw_seconds(cell), 0.9 * batch_seconds)
    cost = draw * size / (batch_seconds - draw)
    return Nesting(size, best_replicates(within, size, cost), within, cost)


def best_replicates(within: float, size: int, draw_cost: float) -> float:
    """Return the replicates for each draw that cost least, from the share that they leave in the error at one size."""
    if within >= 1.0:
        return np.inf
    best = np.sqrt(size * within / (1.0 - within) * draw_cost)
    return float(max(N_BLOCKS, N_BLOCKS * np.round(best / N_BLOCKS)))


def _draw_seconds(cell: Cell) -> float:
    """Processor time of drawing points and heads and preparing what depends on them alone."""
    times = []
    for batch in range(TIMED_DRAWS):
        start = time.process_time()
        Evaluation(cell.decisive.in_batch(batch))
        times.append(time.process_time() - start)
    return float(np.median(times))
