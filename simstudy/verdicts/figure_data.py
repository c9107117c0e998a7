"""Numbers that figures show of draws of the estimates, which results do not hold: a run computes and stores it."""

from collections.abc import Sequence

import numpy as np

from simstudy.design.figures import BaseFigure, OptimumFigure, OrderingFigure
from simstudy.design.measures import INDICES
from simstudy.design.settings.levels import by_levels, selected
from simstudy.execution.state import CellProgress
from simstudy.verdicts.comparisons import Selected
from simstudy.verdicts.estimates import Array, Estimates, estimates_of
from simstudy.verdicts.orderings import violated_share

SHARE_DRAWS = 999
"""Draws that give the error of a share of pairs."""


def stored_numbers(figure: BaseFigure, accounts: list[CellProgress], factors: tuple[str, ...]) -> dict[str, Array]:
    """Numbers that a figure shows of draws of the estimates, by name; NaN in cells that it does not select."""
    estimates = estimates_of(accounts, figure.y)
    chosen = [i for i, coordinates in enumerate(estimates.conditions) if selected(coordinates, figure.where)]
    of = Selected(estimates, chosen, factors)
    if isinstance(figure, OptimumFigure):
        return {"optimum_share": optimum_shares(of, (figure.over, *figure.tune))}
    assert isinstance(figure, OrderingFigure)  # no other one stores numbers
    indices = [estimates_of(accounts, "hdi", index) for index in INDICES]
    shares, errors = wrong_pairs(of, indices, tuple(name for name in (figure.hue, figure.panel) if name))
    return {"wrong_pair_share": shares, "wrong_pair_share_mcse": errors}


def optimum_shares(of: Selected, within: Sequence[str]) -> Array:
    """Return the share of draws in which each cell is the least of those that differ ``within`` alone."""
    shares = np.full(len(of.estimates.values), np.nan)
    for group in of.groups(*within):
        draws = of.estimates.draws(group)
        least = np.argmin(np.where(np.isnan(draws), np.inf, draws), axis=1)
        shares[group] = np.bincount(least, minlength=len(group)) / len(draws)
    return shares


def wrong_pairs(of: Selected, indices: Sequence[Estimates], apart: Sequence[str]) -> tuple[Array, Array]:
    """Return the share of pairs, within levels of ``apart``, that each index orders wrongly, and its MCSE."""
    shares, errors = (np.full((len(of.estimates.values), len(indices)), np.nan) for _ in range(2))
    for cells in by_levels(of.estimates.conditions, apart, of.chosen):
        draws = of.estimates.draws(cells, SHARE_DRAWS)
        for k, index in enumerate(indices):
            shares[cells, k] = violated_share(index.values[cells], -of.estimates.values[None, cells])[0]
            errors[cells, k] = violated_share(index.values[cells], -draws).std()
    return shares, errors
