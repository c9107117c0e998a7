"""What replicates are spent on: a design that says nothing of it spends the fewest, and one may allow too few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simstudy.design.claims import BaseClaim
from simstudy.design.document import PlannedCell
from simstudy.design.feasibility import batches_of
from simstudy.design.mistakes import Problem
from simstudy.design.settings.cell import MIN_BLOCKS, N_BLOCKS


def not_spent(claims: Mapping[str, BaseClaim], planned: Sequence[PlannedCell]) -> Iterator[Problem]:
    """Yield a note on every grid of claims whose cells all stop at the floor of replicates."""
    precision = {each.grid: each.precision for each in planned}
    for grid in dict.fromkeys(claim.grid for claim in claims.values()):
        stated = precision[grid]
        if stated.stop == "precision" and not stated.relative_mcse | stated.absolute_mcse:
            why = f"no error is wanted: cells of {grid} stop at min_replicates = {stated.min_replicates}"
            yield Problem("precision", None, f'{why}; state relative_mcse, or stop = "verdict" for its claims')


def never_judged(claims: Mapping[str, BaseClaim], planned: Sequence[PlannedCell]) -> Iterator[Problem]:
    """Yield a note on every grid of claims whose ceiling allows too few blocks for any verdict."""
    grids = {claim.grid for claim in claims.values()}
    for each in {each.grid: each for each in planned if each.grid in grids}.values():
        ceiling, size = each.precision.max_replicates, each.cell.simulation.batch_size
        batches = MIN_BLOCKS if each.cell.population else -(-MIN_BLOCKS // N_BLOCKS)
        if batches_of(ceiling, size) < batches:
            why = f"too few for a verdict on any claim of {each.grid}; allow {batches * size} or more"
            yield Problem("precision.max_replicates", ceiling, why)
