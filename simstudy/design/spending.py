"""What replicates are spent on: a design that says nothing of it spends the fewest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simstudy.design.claims import BaseClaim
from simstudy.design.document import PlannedCell
from simstudy.design.mistakes import Problem


def not_spent(claims: Mapping[str, BaseClaim], planned: Sequence[PlannedCell]) -> Iterator[Problem]:
    """Yield a note on every grid of claims whose cells all stop at the floor of replicates."""
    precision = {each.grid: each.precision for each in planned}
    for grid in dict.fromkeys(claim.grid for claim in claims.values()):
        stated = precision[grid]
        if stated.stop == "precision" and not stated.relative_mcse | stated.absolute_mcse:
            why = f"no error is wanted: cells of {grid} stop at min_replicates = {stated.min_replicates}"
            yield Problem("precision", None, f'{why}; state relative_mcse, or stop = "verdict" for its claims')
