"""One measure in the cells of a grid, with the Monte Carlo covariance of whatever is computed from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.measures import COUNTED, INDICES
from simstudy.design.settings.cell import N_BLOCKS, Coordinates
from simstudy.execution.account import Account
from simstudy.replicates.folding import FINE_BATCHES, block_starts
from simstudy.verdicts.evidence import Contrast

Array = NDArray[np.float64]

RESOLUTION = 1e-10
"""Rounding error of a measure relative to its size, added to the MCSE: differences below it are not findings."""
N_DRAWS = 4999
"""Draws of the estimates, for figures: no verdict rests on them."""


class Estimates:
    """One measure in the cells of a grid, with the covariance of linear combinations of them.

    Errors are those over a population of query points and heads where cells have one; or, with ``given``, those given
    the points and heads that were drawn.
    """

    def __init__(
        self, accounts: Sequence[Account], measure: str, index: str | None = None, *, given: bool = False
    ) -> None:
        streams = [(account.planned.cell.simulation.seed, account.batch_size) for account in accounts]
        coordinates = [account.planned.cell.coordinates for account in accounts]
        measured = [account.performance for account in accounts]
        drawn = any(p and p.given for p in measured) and not given
        self._given = Estimates(accounts, measure, index, given=True) if drawn else None
        if given:
            measured = [p and (p.given or p) for p in measured]
        self._take(coordinates, streams, measured, measure, index)

    @classmethod
    def stored(
        cls, coordinates: Sequence[Coordinates], measured: Sequence[Any], measure: str, index: str | None = None
    ) -> Estimates:
        """Return the estimates of cells whose performance was read from a file."""
        estimates = cls.__new__(cls)
        estimates._given = None
        streams = [(int(each["seed"]), int(each["batch_size"])) for each in coordinates]
        estimates._take(coordinates, streams, measured, measure, index)
        return estimates

    def _take(
        self, coordinates: Sequence[Coordinates], streams: Sequence[tuple[int, int]],
        measured: Sequence[Any], measure: str, index: str | None,
    ) -> None:  # fmt: skip
        self.coordinates, self._streams = list(coordinates), list(streams)
        position = INDICES.index(index) if index else None
        self.values = np.array([_pick(p and p.estimate, measure, position) for p in measured])
        self._contributions = [_pick(p and p.contribution, measure, position, np.zeros(0)) for p in measured]
        self.n_blocks = np.array([p.n_blocks if p else 0 for p in measured])
        self._remainders = np.array([p.remainder.get(measure, 0.0) if p else 0.0 for p in measured])
        counted = measure in COUNTED
        # Of a population each block is one draw, and replicates within it are not independent.
        self._trials = [(p.n_blocks if p.given else p.n_replicates) if counted and p else np.inf for p in measured]
        folded = any(p and p.given for p in measured)
        for cell, p in enumerate(measured):
            if folded and p and not p.given:
                # Beside cells whose batches are one draw each, a cell with fixed points contributes by batch as well.
                fine, longer = np.split(self._contributions[cell], [FINE_BATCHES * N_BLOCKS])
                self._contributions[cell] = np.concatenate([fine.reshape(-1, N_BLOCKS).sum(axis=1), longer])
                self.n_blocks[cell] = p.n_blocks // N_BLOCKS
            elif folded and p:
                starts = np.unique(block_starts(len(self._contributions[cell]) * N_BLOCKS) // N_BLOCKS)
                self._contributions[cell] = np.add.reduceat(self._contributions[cell], starts)

    def combine(self, terms: dict[int, float]) -> Contrast:
        """Return Σ c_j θ_j over cells j with its Monte Carlo error.

        Cells of one seed and batch size are paired block by block, whatever they share: keys, or redrawn heads; for
        cells that share nothing the pairing costs nothing, as their contributions are independent.
        """
        cells, factors = list(terms), np.array(list(terms.values()), float)
        shares = np.abs(factors * self.values[cells])
        extra, rounding = ((factors * self._remainders[cells]) ** 2).sum(), RESOLUTION * shares.max()
        influence = self.contributions(cells) @ factors
        unseen = min(self._trials[cell] for cell in cells) / np.abs(factors).sum()
        combined = contrast_of(
            factors @ self.values[cells], influence, extra + rounding**2, self.n_blocks[cells].min(), rounding, unseen
        )
        return combined if self._given is None else combined._replace(given=self._given.combine(terms).mcse)

    def differences(self, cells: list[int]) -> Contrast:
        """Return θ_i − θ_j for all cells i and j, in arrays (i, j)."""
        influence, values = self.contributions(cells), self.values[cells]
        extra, trials = self._remainders[cells] ** 2, np.array([self._trials[cell] for cell in cells])
        rows = []
        for i in range(len(cells)):
            rounding = RESOLUTION * np.maximum(np.abs(values[i]), np.abs(values))
            n_blocks = np.minimum(self.n_blocks[cells[i]], self.n_blocks[cells])
            moved = influence[:, [i]] - influence
            unseen = np.minimum(trials[i], trials) / 2.0
            variance = extra[i] + extra + rounding**2
            rows.append(contrast_of(values[i] - values, moved, variance, n_blocks, rounding, unseen))
        apart = Contrast(*(np.stack(column) for column in zip(*rows, strict=True)))
        return apart if self._given is None else apart._replace(given=self._given.differences(cells).mcse)

    def contributions(self, cells: list[int]) -> Array:
        """Return the influence values of blocks, (row, cell): rows of different streams are apart."""
        sizes: dict[Any, int] = defaultdict(int)
        for cell in cells:
            sizes[self._streams[cell]] = max(sizes[self._streams[cell]], len(self._contributions[cell]))
        starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
        placed = np.zeros((sum(sizes.values()), len(cells)))
        for column, cell in enumerate(cells):
            start, own = starts[self._streams[cell]], self._contributions[cell]
            # A cell with fewer blocks contributes nothing to the further ones.
            placed[start : start + len(own), column] = own
        return placed

    def covariance(self, cells: list[int]) -> Array:
        """Return the Monte Carlo covariance of the estimates of some cells."""
        influence = self.contributions(cells)
        return np.asarray(influence.T @ influence + np.diag(self._remainders[cells] ** 2))

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


def contrast_of(
    value: Any, influence: Array, extra: Any, n_blocks: Any, rounding: Any = 0.0, unseen: Any = np.inf
) -> Contrast:
    """Return values with the errors that their influence values (row, ...) give, and that ``extra`` variance adds.

    Where all blocks are alike, up to rounding, there are exceptions that may have been ``unseen``: see `Contrast`.
    """
    squares = influence**2
    alike = squares.sum(axis=0) <= np.square(rounding)
    variance = squares.sum(axis=0) + extra
    some = np.where(variance > 0.0, variance, 1.0)
    skewness = np.sqrt(n_blocks) * (squares * influence).sum(axis=0) / some**1.5
    largest = squares.max(axis=0, initial=0.0) / some
    mcse = np.sqrt(variance)
    return Contrast(value, mcse, n_blocks, skewness, largest, mcse, np.where(alike, unseen, np.inf))
