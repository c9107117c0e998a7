"""From the cells of a study to what the engine judges: estimates by condition, beside what theories say of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from simstudy.design.claims import BaseClaim, OrderingClaim
from simstudy.design.document import Design
from simstudy.design.measures import COUNTED, INDICES
from simstudy.design.moments_needed import lacking, order_of
from simstudy.design.settings.cell import N_BLOCKS
from simstudy.design.settings.levels import Coordinates, selected
from simstudy.execution.ledger import Account
from simstudy.replicates.performance import FINE_BATCHES, Performance, block_starts
from simstudy.verdicts.comparisons import Predictions, Selected
from simstudy.verdicts.estimates import Array, Estimates
from simstudy.verdicts.predictions import Told, predict, values_of


def on_grid(claim: BaseClaim, design: Design, accounts: Sequence[Account], told: Told) -> tuple[list[int], Selected]:
    """Return the cells of the grid of a claim by their number, and what the claim speaks of in them."""
    positions = [i for i, account in enumerate(accounts) if account.planned.grid == claim.grid]
    inside = [accounts[i] for i in positions]
    of = selected_by(claim, inside, design.factors[claim.grid])
    if (source := getattr(claim, "source", None)) is not None:
        theories = list(predict([account.planned for account in inside], told))
        errors = np.array([float(theory[source].errors.get(claim.measure, 0.0)) for theory in theories])
        of = of._replace(theory=Predictions(values_of(theories, source, claim.measure), errors))
    return positions, of


def selected_by(claim: BaseClaim, accounts: Sequence[Account], factors: tuple[str, ...]) -> Selected:
    """Return what a claim speaks of in the cells of its grid, without theory."""
    estimates = estimates_of(accounts, claim.measure, claim.index)
    chosen = [i for i, coordinates in enumerate(estimates.conditions) if selected(coordinates, claim.where)]
    diversity = estimates_of(accounts, "hdi", claim.against) if isinstance(claim, OrderingClaim) else None
    return Selected(estimates, chosen, factors, diversity=diversity, doubtful=without_error(claim, accounts))


def without_error(claim: BaseClaim, accounts: Sequence[Account]) -> dict[int, str]:
    """Return the cells in which what a claim speaks of has no Monte Carlo error, and why."""
    if not (order := order_of(claim)):
        return {}
    whys = [lacking([account.planned.cell], 2 * order) for account in accounts]
    return {i: f"no Monte Carlo error: {why}" for i, why in enumerate(whys) if why}


def estimates_of(accounts: Sequence[Account], measure: str, index: str | None = None) -> Estimates:
    """Return the estimates of one measure in some cells; of ``hdi``, of one index."""
    cells = [account.planned.cell for account in accounts]
    streams = [(cell.simulation.seed, account.batch_size) for cell, account in zip(cells, accounts, strict=True)]
    measured = [account.performance for account in accounts]
    return estimates_from([cell.coordinates for cell in cells], streams, measured, measure, index)


def estimates_from(
    conditions: Sequence[Coordinates], streams: Sequence[tuple[int, int]], measured: Sequence[Performance | None],
    measure: str, index: str | None = None,
) -> Estimates:  # fmt: skip
    """Return the estimates of one measure from the performance of each cell, over a population where cells have one."""
    population = any(p and p.given for p in measured)
    place = ... if index is None else (..., INDICES.index(index))
    n_nets = max((p.n_nets for p in measured if p), default=0)
    rows = [_of_cell(p, measure, place, population, n_nets) for p in measured]
    values, contributions, n_blocks, remainders, trials = zip(*rows, strict=True)
    given = None
    if population:
        given = estimates_from(conditions, streams, [p and (p.given or p) for p in measured], measure, index)
    return Estimates(
        conditions, np.array(values), list(contributions), streams, np.array(n_blocks), np.array(remainders),
        np.array(trials), given,
    )  # fmt: skip


def _of_cell(
    p: Performance | None, measure: str, place: Any, population: bool, n_nets: int
) -> tuple[Any, Array, int, float, float]:
    """Value, contributions of so many nets and of blocks, number of blocks, remainder and trials of one cell."""
    if p is None:
        return np.nan, np.zeros(0), 0, 0.0, np.inf
    value = np.asarray(p.estimate[measure])[place] if measure in p.estimate else np.nan
    share = p.contribution[measure][place] if measure in p.contribution else np.zeros(0)
    nets, share = np.split(share, [p.n_nets])
    n_blocks, trials = p.n_blocks, np.inf
    if measure in COUNTED:
        # Of a population each block is one draw, and replicates within it are not independent.
        trials = p.n_blocks if p.given else p.n_replicates
    if population and p.given:
        share = np.add.reduceat(share, np.unique(block_starts(len(share) * N_BLOCKS) // N_BLOCKS))
    elif population:
        # Beside cells whose batches are one draw each, a cell with fixed points contributes by batch as well.
        fine, longer = np.split(share, [FINE_BATCHES * N_BLOCKS])
        share, n_blocks = np.concatenate([fine.reshape(-1, N_BLOCKS).sum(axis=1), longer]), n_blocks // N_BLOCKS
    share = np.concatenate([nets, np.zeros(n_nets - len(nets)), share])
    return value, share, n_blocks, p.remainder.get(measure, 0.0), trials
