"""One measure in the cells of a grid, with the Monte Carlo covariance of whatever is computed from it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.measures import INDICES
from simstudy.execution.ledger import Account

Array = NDArray[np.float64]

RESOLUTION = 1e-10
"""Rounding error of a measure relative to its size, added to the MCSE: differences below it are not findings."""


N_DRAWS = 4999
"""Draws of the estimates: the smallest p-value is one in as many and one."""


class Estimates:
    """One measure in the cells of a grid, with the covariance of linear combinations of them."""

    def __init__(self, accounts: list[Account], measure: str, index: str | None = None) -> None:
        self.coordinates = [account.planned.cell.coordinates for account in accounts]
        self._streams = [(account.planned.cell.simulation.seed, account.batch_size) for account in accounts]
        position = INDICES.index(index) if index else None
        measured = [account.performance for account in accounts]
        self.values = np.array([_pick(p and p.estimate, measure, position) for p in measured])
        self._contributions = [_pick(p and p.contribution, measure, position, np.zeros(0)) for p in measured]
        self._n_blocks = [p.n_blocks if p else 0 for p in measured]
        self._remainders = np.array([p.remainder.get(measure, 0.0) if p else 0.0 for p in measured])

    def combine(self, terms: dict[int, float]) -> tuple[float, float, int]:
        """Return Σ c_j θ_j over cells j, its MCSE, and the degrees of freedom of the MCSE.

        Cells of one seed and batch size are paired block by block, whatever they share: keys, or redrawn heads; for
        cells that share nothing the pairing costs nothing, as their contributions are independent.
        """
        by_stream: dict[Any, list[np.ndarray]] = defaultdict(list)
        for cell, factor in terms.items():
            by_stream[self._streams[cell]].append(factor * self._contributions[cell])
        variance = sum(float((_sum_padded(parts) ** 2).sum()) for parts in by_stream.values())
        variance += sum((factor * self._remainders[cell]) ** 2 for cell, factor in terms.items())
        estimate = sum(factor * self.values[cell] for cell, factor in terms.items())
        rounding = RESOLUTION * max(abs(factor * self.values[cell]) for cell, factor in terms.items())
        degrees = min(self._n_blocks[cell] for cell in terms) - 1
        return float(estimate), float(np.hypot(np.sqrt(variance), rounding)), max(degrees, 1)

    def draws(self, cells: list[int], count: int = N_DRAWS) -> Array:
        """Return draws from the joint distribution of the estimates of some cells, (draw, cell).

        Gaussian multipliers on the contributions of blocks, the same for cells that are paired (Chernozhukov,
        Chetverikov and Kato 2013); for statistics that are no smooth functions of estimates, such as ranks and optima.
        The multipliers are fixed by the number of the block, so that draws of two measures are paired as well.
        """
        drawn = np.tile(self.values[cells], (count, 1))
        for stream in sorted({self._streams[cell] for cell in cells}):
            inside = [place for place, cell in enumerate(cells) if self._streams[cell] == stream]
            size = max(len(self._contributions[cells[place]]) for place in inside)
            shares = np.zeros((size, len(inside)))
            for column, place in enumerate(inside):
                own = self._contributions[cells[place]]
                shares[: len(own), column] = own
            multipliers = np.random.default_rng([0, *stream]).standard_normal((size, count))
            drawn[:, inside] += multipliers.T @ shares
        quadratic = np.random.default_rng(1).standard_normal(drawn.shape)
        return drawn + quadratic * self._remainders[cells]


def _pick(values: dict[str, Any] | None, measure: str, position: int | None, absent: Any = np.nan) -> Any:
    if values is None or measure not in values:
        return absent
    return values[measure] if position is None else values[measure][..., position]


def _sum_padded(parts: list[np.ndarray]) -> np.ndarray:
    """Sum contributions block by block; a cell with fewer blocks contributes nothing to the further ones."""
    total = np.zeros(max(map(len, parts)))
    for part in parts:
        total[: len(part)] += part
    return total
