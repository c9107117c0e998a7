"""Where one cell of a study stands, and the sum of many."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from simstudy.design.document import PlannedCell
from simstudy.design.settings.cell import Cell
from simstudy.replicates.performance import Performance, unlowered
from simstudy.replicates.stopping import Shortfall, needed, shortfall


class Standing(NamedTuple):
    """How far one cell is, or the sum over many; work is the cost of batches, as far as the last looks can tell."""

    work_done: int = 0
    work_expected: int = 0
    replicates: int = 0
    finished: int = 0


@dataclass
class Account:
    """Where one planned cell stands: ``target`` batches are wanted, ``done`` were folded at the last look."""

    planned: PlannedCell
    identity: str
    target: int
    done: int = 0
    performance: Performance | None = None
    failed: tuple[int, ...] = ()
    missing: int = 0
    damaged: set[int] = field(default_factory=set)
    looks: list[int] = field(default_factory=list)
    cut: bool = False

    @property
    def finished(self) -> bool:
        """Whether the stopping rule wants no further batch."""
        return self.done == self.target

    @property
    def expected(self) -> int:
        """Batches that the precision will take in all, as far as the last look can tell."""
        if self.performance is None:
            return self.target
        return max(self.target, needed(self.done, self.performance, self.planned.precision, self.batch_size))

    @property
    def standing(self) -> Standing:
        """How far the cell is."""
        each, stored = cost(self.planned.cell), self.target - self.missing
        work = round(stored * each), round(self.expected * each)
        return Standing(*work, stored * self.batch_size, self.finished)

    @property
    def n_failed(self) -> int:
        """Number of replicates without a defined estimate at the last look."""
        return len(self.failed)

    @property
    def shortfall(self) -> Shortfall | None:
        """The MCSE at the last look that is furthest from the MCSE wanted; None without measures."""
        return None if self.performance is None else shortfall(self.performance, self.planned.precision)

    @property
    def floor(self) -> float:
        """Part of that MCSE which no replicate lowers, if it alone exceeds the MCSE wanted; else 0."""
        worst = self.shortfall
        if self.performance is None or worst is None:
            return 0.0
        floor = unlowered(self.performance, worst.measure)
        return floor if floor >= worst.wanted else 0.0

    @property
    def reached(self) -> bool:
        """Whether the precision wanted was reached, and no budget came before what else was wanted."""
        return not self.cut and self.shortfall is not None and self.shortfall.ratio <= 1.0

    @property
    def batch_size(self) -> int:
        """Replicates in one batch."""
        return self.planned.cell.simulation.batch_size


def cost(cell: Cell) -> float:
    """Return the estimated cost of a batch of a cell, in arbitrary units: normals drawn and weights evaluated."""
    data, heads = cell.data, cell.heads
    per_key = data.n_features * (1 + heads.n_heads * heads.head_dim / 8)
    per_weight = 1 + heads.head_dim / 8 + heads.n_heads / 8
    # An instance is taken for attention of every key to all.
    weights = (cell.n_queries or data.n_keys) * heads.n_heads * per_weight
    return cell.simulation.batch_size * data.n_keys * (per_key + weights)
