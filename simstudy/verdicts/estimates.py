"""One measure by condition, with the Monte Carlo covariance of whatever is computed from it.

Nothing here knows where estimates come from: `verdicts.measured` makes them from the cells of a study.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings.levels import Coordinates
from simstudy.verdicts.evidence import Array, Contrast

RESOLUTION = 1e-10
"""Rounding error of a measure relative to its size, added to the MCSE: differences below it are not findings."""
N_DRAWS = 4999
"""Draws of the estimates, for figures: no verdict rests on them."""


@dataclass
class Estimates:
    """Estimates of one measure, θ_j under condition j, with contributions of blocks of replicates to their errors."""

    conditions: Sequence[Coordinates]  # Levels of factors
    values: Array  # (condition,) NaN where there is no estimate
    # For each condition (block,): their squares sum to MCSE² but for the remainder, and products of two conditions
    # of one stream to the covariance of their estimates
    contributions: list[Array]
    streams: Sequence[tuple[int, int]]  # Conditions of equal streams see the same replicates, block by block
    # n_blocks, remainders: Blocks that hold replicates, and the part of the standard error that no block
    # contributes
    n_blocks: NDArray[Any]
    remainders: Array
    # (condition,) Replicates of a measure that counts events, infinite for other measures: see `Contrast`
    trials: Array
    # The same with the errors given the query points and heads that were drawn, where these are a population
    given: Estimates | None = None

    def combine(self, terms: dict[int, float]) -> Contrast:
        """Return Σ c_j θ_j over conditions j with its Monte Carlo error, paired block by block in a stream."""
        chosen, factors = list(terms), np.array(list(terms.values()), float)
        rounding = RESOLUTION * np.abs(factors * self.values[chosen]).max()
        extra = ((factors * self.remainders[chosen]) ** 2).sum()
        unseen = self.trials[chosen].min() / np.abs(factors).sum()
        value, influence = factors @ self.values[chosen], self.placed(chosen) @ factors
        combined = contrast_of(value, influence, extra, self.n_blocks[chosen].min(), rounding, unseen)
        return combined if self.given is None else combined._replace(given=self.given.combine(terms).mcse)

    def differences(self, chosen: list[int]) -> Contrast:
        """Return θ_i − θ_j for all conditions i and j, in arrays (i, j)."""
        influence, values = self.placed(chosen), self.values[chosen]
        extra, trials, n_blocks = self.remainders[chosen] ** 2, self.trials[chosen], self.n_blocks[chosen]
        rows = []
        for i, value in enumerate(values):
            rounding = RESOLUTION * np.maximum(np.abs(value), np.abs(values))
            variance, unseen = extra[i] + extra, np.minimum(trials[i], trials) / 2.0
            blocks = np.minimum(n_blocks[i], n_blocks)
            rows.append(contrast_of(value - values, influence[:, [i]] - influence, variance, blocks, rounding, unseen))
        apart = Contrast(*(np.stack(column) for column in zip(*rows, strict=True)))
        return apart if self.given is None else apart._replace(given=self.given.differences(chosen).mcse)

    def placed(self, chosen: list[int]) -> Array:
        """Return the contributions of blocks, (row, condition): rows of different streams are apart."""
        sizes: dict[Any, int] = defaultdict(int)
        for j in chosen:
            sizes[self.streams[j]] = max(sizes[self.streams[j]], len(self.contributions[j]))
        starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
        rows = np.zeros((sum(sizes.values()), len(chosen)))
        for column, j in enumerate(chosen):
            # A condition with fewer blocks contributes nothing to the further ones.
            start, own = starts[self.streams[j]], self.contributions[j]
            rows[start : start + len(own), column] = own
        return rows

    def covariance(self, chosen: list[int]) -> Array:
        """Return the Monte Carlo covariance of the estimates under some conditions."""
        influence = self.placed(chosen)
        return np.asarray(influence.T @ influence + np.diag(self.remainders[chosen] ** 2))

    def draws(self, chosen: list[int], count: int = N_DRAWS) -> Array:
        """Return draws (draw, condition) of the estimates, by Gaussian multipliers that blocks fix."""
        drawn = np.tile(self.values[chosen], (count, 1))
        for stream in sorted({self.streams[j] for j in chosen}):
            inside = [place for place, j in enumerate(chosen) if self.streams[j] == stream]
            shares = self.placed([chosen[place] for place in inside])
            multipliers = np.random.default_rng([0, *stream]).standard_normal((len(shares), count))
            drawn[:, inside] += multipliers.T @ shares
        return drawn + np.random.default_rng(1).standard_normal(drawn.shape) * self.remainders[chosen]


def contrast_of(
    value: Any, influence: Array, extra: Any, n_blocks: Any, rounding: Any = 0.0, unseen: Any = np.inf
) -> Contrast:
    """Return values with the errors that influence values (row, ...) give, and ``extra`` variance and rounding add."""
    squares = influence**2
    alike = (squares.sum(axis=0) <= np.square(rounding)) & (np.asarray(extra) == 0.0)
    variance = squares.sum(axis=0) + (extra + np.square(rounding))
    some = np.where(variance > 0.0, variance, 1.0)
    skewness = np.sqrt(n_blocks) * (squares * influence).sum(axis=0) / some**1.5
    largest = squares.max(axis=0, initial=0.0) / some
    error = np.sqrt(variance)
    mcse, rounding = error * ~alike, error * alike
    return Contrast(value, mcse, n_blocks, skewness, largest, mcse, np.where(alike, unseen, np.inf), rounding)
