"""Where one measure stops to exceed another along a factor, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simstudy.design.claims import Crossing
from simstudy.design.settings.cell import level, selected
from simstudy.verdicts.comparisons import Comparison, at, nothing_to_compare, strata
from simstudy.verdicts.estimates import Estimates

Array = NDArray[np.float64]


def crossings(
    claim: Crossing, estimates: Estimates, chosen: list[int], factors: tuple[str, ...], theory: Array | None
) -> Iterator[Comparison]:
    """Yield, for each combination of the other factors, the x at which the measure falls below that of ``versus``.

    The place is no smooth function of the estimates; its uncertainty is that of draws from their joint distribution.
    """
    for cells in strata(estimates, chosen, factors, (claim.x,)):
        pairs = [(cell, other) for cell in cells for other in _partners(claim, estimates, cell, factors)]
        if not pairs:
            continue
        if len(pairs) < 2:
            yield nothing_to_compare(estimates, cells, factors)
            continue
        own, others = [cell for cell, _ in pairs], [other for _, other in pairs]
        x = np.array([float(estimates.coordinates[cell][claim.x]) for cell in own])
        drawn = estimates.draws([*own, *others])
        draws = crossing(x, drawn[:, : len(own)] - drawn[:, len(own) :])
        value = float(crossing(x, (estimates.values[own] - estimates.values[others])[None])[0])
        place = at(estimates.coordinates[own[0]], [name for name in factors if name != claim.x])
        text = f"{claim.x} at which {claim.measure}{place} falls below that"
        text += at(claim.versus, tuple(claim.versus))
        claimed = claim.value if theory is None else _told(x, theory[own] - theory[others])
        if claimed is None:
            continue
        bounds = claimed / claim.ratio, claimed * claim.ratio
        yield Comparison(text, value, float(draws.std()), *bounds, claimed, 1, draws)


def _partners(claim: Crossing, estimates: Estimates, cell: int, factors: tuple[str, ...]) -> list[int]:
    """The cell to compare with, if there is one: other factors equal."""
    wanted = {name: level(estimates.coordinates[cell], name) for name in factors} | claim.versus
    return [i for i, other in enumerate(estimates.coordinates) if i != cell and selected(other, wanted)][:1]


def _told(x: Array, difference: Array) -> float | None:
    """Where theory puts a crossing; nowhere if that is no place inside, or beside a cell to which it does not apply."""
    place = float(crossing(x, difference[None])[0])
    return place if x[0] < place < x[-1] else None  # not if place is NaN


def crossing(x: Array, difference: Array) -> Array:
    """Return where differences first fall to 0, linear in ln x between levels; an end of x if they do not cross inside.

    Parameters
    ----------
    x : (x,) array
        Increasing, positive.
    difference : (draw, x) array

    Returns
    -------
    (draw,) array
    """
    below = difference <= 0.0
    after = np.where(below.any(axis=1), np.argmax(below, axis=1), len(x) - 1)
    inside = below.any(axis=1) & (after > 0)
    before, draw = np.maximum(after - 1, 0), np.arange(len(difference))
    start, stop = difference[draw, before], difference[draw, after]
    share = np.where(inside, start, 0.0) / np.where(inside, start - stop, 1.0)
    between = np.exp(np.log(x)[before] + share * (np.log(x)[after] - np.log(x)[before]))
    return np.where(inside, between, x[after])
