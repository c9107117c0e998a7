"""Memory that batches take, about: what cannot fit is refused before the first batch."""

from collections.abc import Iterable

from simstudy.design.document import PlannedCell
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.errors import UserError
from simstudy.replicates.batch import PIECE_BYTES, replicate_bytes


def taken(cell: Cell) -> float:
    """Return the bytes that a batch takes, about: sums of all blocks, and of replicates that are held at once keys."""
    data, heads, simulation = cell.data, cell.heads, cell.simulation
    sums = N_BLOCKS * cell.n_queries * cell.n_members * (cell.n_members + 3) // 2 * (1 + cell.controlled) * 8
    copies = {"identity": 1, "equicorrelated": 3}.get(getattr(data.key_distribution, "structure", ""), 2)
    numbers = data.n_keys * (copies * data.n_features + heads.n_heads * heads.head_dim + 2)
    count = max(1, min(simulation.batch_size // N_BLOCKS, PIECE_BYTES // replicate_bytes(cell)))
    # A third stays with the allocator; some is the same for all.  What functions of the user take is not known.
    held = count * numbers * (4 if simulation.dtype == "float32" else 8) * 4 / 3 + (10 << 20)
    return sums + (held if cell.functions is None else 0)


def require_memory(cells: Iterable[PlannedCell], free: float, calls: int) -> None:
    """Refuse a design of which the batches that run at once cannot fit into these bytes."""
    largest = max(cells, key=lambda planned: taken(planned.cell))
    if (needed := taken(largest.cell)) * calls > free:
        smaller = "use fewer keys, features, heads or query points"
        remedy = f"use at most {free // needed:.0f} of them" if needed <= free else smaller
        raise UserError(
            f"grids.{largest.grid}: a batch takes about {needed / 2**30:.2g} GiB of memory, and {calls} workers have "
            f"{free / 2**30:.2g} GiB together; {remedy}, or more memory"
        )
