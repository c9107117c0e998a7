"""Estimates of one measure under conditions, cells or rows of tables, with their Monte Carlo covariance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.answerable import Coordinates
from simstudy.design.measures import INDEXED_MEASURES, INDICES, MEASURES, STATISTICS
from simstudy.design.settings.cell import N_BLOCKS
from simstudy.verdicts.evidence import N_RANDOMISATIONS, Array, Contrast

if TYPE_CHECKING:  # judging a user's own numbers need not wait for kernels
    from simstudy.execution.state import CellProgress
    from simstudy.replicates.performance import Performance

HEADS_ROUNDING = 1e-10
"""Relative rounding error of a measure of heads: exponentials of logits, sums over keys and replicates."""
OWN_ROUNDING, GIVEN_ROUNDING = 64.0 * np.finfo(float).eps, 2.0 * np.finfo(float).eps
"""Relative rounding errors of numbers that a user's function returns, and of numbers given in full."""
N_DRAWS = 4999
"""Draws of the estimates for figures; verdicts do not use them."""


@dataclass
class Estimates:
    """Estimates θ_j of one measure under conditions j, with contributions of blocks of replicates to their errors."""

    conditions: Sequence[Coordinates]  # Levels of factors
    values: Array  # (condition,) NaN where there is no estimate
    # For each condition (block,).  Squares sum to MCSE² minus the squared remainder; products of two conditions of
    # one stream sum to the covariance of their estimates
    contributions: list[Array]
    streams: Sequence[tuple[int, int]]  # Conditions of one stream have the same replicates in each block
    n_blocks: NDArray[Any]  # (condition,) Blocks that were simulated and hold replicates
    remainders: Array  # (condition,) Part of the standard error without contributions of blocks
    # (condition,) Number of replicates if the measure counts events, otherwise infinity; see `Contrast`
    trials: Array
    # (condition,) Relative rounding errors of values: smaller differences are not evidence
    rounding: Any = GIVEN_ROUNDING
    lengths: Any = 1  # (condition,) Blocks of a batch that each contribution covers: powers of two
    # (randomisation, condition) Contributions of the random points of a control variate, common to all streams
    randomisations: Array = field(default_factory=lambda: np.zeros((0, 1 << 30)))
    times: float = 1.0  # Multiple of the number of blocks for which errors are forecast
    one_look: float = 0.0  # Level of a claim if the number of blocks was fixed before a single look, otherwise 0
    # (block, condition) 1 for an event, 0 for none, −1 if missing; tests at one look are then exact
    events: Any = None

    def repeated(self, times: float) -> Estimates:
        """Return forecasts for that multiple of the blocks, with means and distribution as estimated."""
        return replace(self, n_blocks=np.floor(self.n_blocks * times), times=times)

    def degrees(self, chosen: list[int]) -> Array:
        """Return the degrees of freedom of the error under each chosen condition: number of contributions minus 1."""
        stored = np.array([len(each) for each in self._shares(chosen)]) * self.times
        return np.asarray(np.minimum(self.n_blocks[chosen], stored) - 1.0)

    def combine(self, terms: dict[int, float]) -> Contrast:
        """Return Σ c_j θ_j over conditions j with its Monte Carlo error; blocks of one stream are paired."""
        chosen, factors = list(terms), np.array(list(terms.values()), float)
        rounding = np.abs(factors * (self.values * self.rounding)[chosen]).max()
        extra = ((factors * self.remainders[chosen]) ** 2).sum()
        unseen = self.trials[chosen].min() / np.abs(factors).sum()
        value, placed = factors @ self.values[chosen], self.placed(chosen)
        counts = self.n_blocks[chosen].min(), self.degrees(chosen).min()
        shared = ((self.randomisations[:, chosen] @ factors) ** 2).sum()
        found = self.judged(contrast_of(value, placed @ factors, extra, *counts, rounding, unseen, self.times, shared))
        if ((placed * factors) ** 2).sum() > rounding**2:  # both vary but their difference does not
            found = found._replace(few=0.0)
        if self.events is None or sorted(factors) not in ([1.0], [-1.0, 1.0]):
            return found
        second = [chosen[factors.argmin()]] if len(chosen) == 2 else None
        found = self._counted(found, [chosen[factors.argmax()]], second)
        return found._replace(plus=found.plus.item(), minus=found.minus.item())

    def differences(self, chosen: list[int]) -> Contrast:
        """Return the contrasts θ_i − θ_j of all chosen conditions i and j, as arrays (i, j)."""
        influence, values, degrees = self.placed(chosen), self.values[chosen], self.degrees(chosen)
        extra, trials, n_blocks = self.remainders[chosen] ** 2, self.trials[chosen], self.n_blocks[chosen]
        rows, roundings, shared = [], np.abs(self.values * self.rounding)[chosen], self.randomisations[:, chosen]
        for i, value in enumerate(values):
            counts = np.minimum(n_blocks[i], n_blocks), np.minimum(degrees[i], degrees)
            pairs, variance, unseen = influence[:, [i]] - influence, extra[i] + extra, np.minimum(trials[i], trials) / 2
            rounding, common = np.maximum(roundings[i], roundings), ((shared[:, [i]] - shared) ** 2).sum(axis=0)
            rows.append(contrast_of(value - values, pairs, variance, *counts, rounding, unseen, self.times, common))
        found = Contrast(*(np.stack(np.broadcast_arrays(*column)) for column in zip(*rows, strict=True)))
        return self._counted(self.judged(found), chosen, chosen)

    def judged(self, found: Contrast) -> Contrast:
        """Return a contrast that is judged at one look if the number of blocks was fixed."""
        return found._replace(one_look=self.one_look, fewest=2) if self.one_look else found

    def _counted(self, found: Contrast, first: list[int], second: list[int] | None) -> Contrast:
        """Return a contrast with the counts of units whose events differ (first, second), or of events for a share."""
        if self.events is None:
            return found
        one = self.events[:, first]
        other = self.events[:, second] if second else np.where(one < 0, one, 1 - one)
        both = (one >= 0).T.astype(float) @ (other >= 0)
        paired = (both > 0) & (both == (one >= 0).sum(axis=0)[:, None]) & (both == (other >= 0).sum(axis=0))
        plus, minus = (one == 1).T.astype(float) @ (other == 0), (one == 0).T.astype(float) @ (other == 1)
        plus, minus = (np.where(paired, each * self.times, np.nan) for each in (plus, minus))
        return found._replace(plus=plus, minus=minus, origin=0.0 if second else 0.5)

    def _shares(self, chosen: list[int]) -> list[Array]:
        """Return contributions of equal blocks: shorter ones are summed up to the longest of their stream."""
        lengths = np.broadcast_to(self.lengths, len(self.values)).tolist()
        longest: dict[Any, int] = defaultdict(int)
        for j in chosen:
            longest[self.streams[j]] = max(longest[self.streams[j]], lengths[j])
        parts = ((self.contributions[j], longest[self.streams[j]] // lengths[j]) for j in chosen)
        return [np.add.reduceat(each, np.arange(0, len(each), step)) for each, step in parts]

    def placed(self, chosen: list[int]) -> Array:
        """Return the contributions of blocks as (row, condition), where each stream has rows of its own."""
        shares, sizes = self._shares(chosen), defaultdict[Any, int](int)
        for j, share in zip(chosen, shares, strict=True):
            sizes[self.streams[j]] = max(sizes[self.streams[j]], len(share))
        starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
        rows = np.zeros((sum(sizes.values()), len(chosen)))
        for column, (j, share) in enumerate(zip(chosen, shares, strict=True)):
            # A condition with fewer blocks contributes 0 to the others.
            rows[starts[self.streams[j]] : starts[self.streams[j]] + len(share), column] = share
        return rows

    def draws(self, chosen: list[int], count: int = N_DRAWS) -> Array:
        """Return draws (draw, condition) of the estimates by the Gaussian multiplier bootstrap, with a fixed seed."""
        drawn = np.tile(self.values[chosen], (count, 1))
        for stream in sorted({self.streams[j] for j in chosen}):
            inside = [place for place, j in enumerate(chosen) if self.streams[j] == stream]
            shares = self.placed([chosen[place] for place in inside])
            multipliers = np.random.default_rng([0, *stream]).standard_normal((len(shares), count))
            drawn[:, inside] += multipliers.T @ shares
        rng, points = np.random.default_rng(1), self.randomisations[:, chosen]
        drawn += rng.standard_normal(drawn.shape) * self.remainders[chosen]
        return drawn + rng.standard_normal((count, len(points))) @ points


def contrast_of(
    value: Any,
    influence: Array,
    extra: Any,
    n_blocks: Any,
    degrees: Any,
    rounding: Any = 0.0,
    unseen: Any = np.inf,
    times: float = 1.0,
    shared: Any = 0.0,
) -> Contrast:
    """Return values with errors from influence values (row, ...), and from the variances ``extra`` and ``shared``.

    With ``times`` as many blocks of the same skewness, each block has a smaller share of the squared error.
    """
    squares = influence**2
    alike = (squares.sum(axis=0) <= np.square(rounding)) & (np.asarray(extra) == 0.0)
    variance = squares.sum(axis=0) + (extra + shared + np.square(rounding))
    some = np.where(variance > 0.0, variance, 1.0)
    skewness = (squares * influence).sum(axis=0) / some**1.5 / np.sqrt(times)
    largest = squares.max(axis=0, initial=0.0) / some / times
    error = np.sqrt(variance)
    mcse, rounding = error * ~alike / np.sqrt(times), error * alike
    unseen = np.where(alike, unseen, np.inf) * times
    # Few randomisations estimate the shared part: degrees of freedom by Satterthwaite (1946), Gaussian fourth moments.
    common = shared / some
    df = degrees / ((1.0 - common) ** 2 + common**2 * np.maximum(degrees, 1.0) / (N_RANDOMISATIONS - 1))
    concentration = ((squares**2).sum(axis=0) / some**2 + 3.0 * common**2 / N_RANDOMISATIONS) / times
    found = Contrast(value, mcse, n_blocks, degrees, skewness, largest, unseen, rounding, concentration=concentration)
    return found._replace(df=df, few=np.sqrt(2.0) / unseen)


def estimates_of(progress: Sequence[CellProgress], measure: str, index: str | None = None) -> Estimates:
    """Return the estimates of one measure in these cells; for ``hdi``, those of one index."""
    cells = [each.planned.cell for each in progress]
    streams = [(cell.simulation.seed, each.batch_size) for cell, each in zip(cells, progress, strict=True)]
    measured = [each.performance for each in progress]
    counted = any(measure in each.planned.counted for each in progress)
    return estimates_from([cell.coordinates for cell in cells], streams, measured, measure, index, counted)


def estimates_from(
    conditions: Sequence[Coordinates],
    streams: Sequence[tuple[int, int]],
    measured: Sequence[Performance | None],
    measure: str,
    index: str | None = None,
    counted: bool = False,
) -> Estimates:
    """Return the estimates of one measure from the performance of each cell; errors are over a population if any.

    A ``counted`` measure is a number or share of events; equal values in all replicates then do not mean no error.
    """
    by_batch = any(p and p.by_batch for p in measured)
    place = ... if index is None else (..., INDICES.index(index))
    of_heads = measure in MEASURES | STATISTICS | INDEXED_MEASURES
    rows: list[tuple[Any, ...]] = []
    for p in measured:
        if p is None:
            rows.append((np.nan, np.zeros(0), 0, 0.0, np.inf, 0.0, 1, ()))
            continue
        value: Any = np.asarray(p.estimate[measure])[place] if measure in p.estimate else np.nan
        share = p.contribution[measure][place] if measure in p.contribution else np.zeros(0)
        # Each block is one draw of a population, and replicates within it are not independent.
        seen = (p.n_blocks if p.by_batch else p.n_replicates) if counted else np.inf
        # If batches of other cells are one draw each, the blocks of a cell with fixed points are its batches, too.
        count = p.n_blocks // N_BLOCKS if by_batch and not p.by_batch else p.n_blocks
        error = HEADS_ROUNDING if of_heads else OWN_ROUNDING
        if square := {"variance": value, "empirical_se": value**2}.get(measure):  # a difference of squares loses digits
            error *= 1.0 + p.estimate.get("bias", 0.0) ** 2 / abs(square)
        common = p.randomisation.get(measure, ())
        rows.append((value, share, count, p.remainder.get(measure, 0.0), seen, error, p.block_length, common))
    values, contributions, *others, of_all = zip(*rows, strict=True)
    columns: list[Any] = [*map(np.array, others)]
    columns.append(np.transpose([np.resize(each, max(map(len, of_all))) for each in of_all]))
    return Estimates(conditions, np.array(values), [*contributions], streams, *columns)
