"""Memory that batches take, about: what cannot fit is refused before the first batch."""

from collections.abc import Iterable

from simstudy.design.document import PlannedCell
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.errors import UserError
from simstudy.replicates.batch import replicate_bytes

HELD = 2
"""Arrays of a large replicate, each as large as the largest, that are held at once: measured, 1 to 3."""


def taken(cell: Cell) -> int:
    """Return the bytes that a batch takes, to a factor of 2: sums of all blocks, and a replicate that is large."""
    sums = N_BLOCKS * cell.n_queries * cell.n_members * (cell.n_members + 3) // 2 * (1 + cell.controlled) * 8
    # What functions of the user's own take is not known.
    return sums + (HELD * replicate_bytes(cell) if cell.functions is None else 0)


def require_memory(cells: Iterable[PlannedCell], free: float, calls: int) -> None:
    """Refuse a design of which the batches that run at once cannot fit into these bytes."""
    largest = max(cells, key=lambda planned: taken(planned.cell))
    if (needed := taken(largest.cell)) * calls > free:
        remedy = "use fewer keys, features, heads or query points"
        if needed <= free:
            remedy = f"use at most {free // needed:.0f} of them"
        raise UserError(
            f"grids.{largest.grid}: a batch takes about {needed / 2**30:.2g} GiB of memory, and {calls} workers have "
            f"{free / 2**30:.2g} GiB together; {remedy}, or more memory"
        )
