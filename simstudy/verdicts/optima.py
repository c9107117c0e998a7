"""Where a measure is least along a factor, how sure that is, and how the place moves with another factor.

An optimum is no smooth function of the estimates; its uncertainty is that of the optimum of draws from their joint
distribution.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.design.claims import Optimum, OptimumClaim, OptimumLaw, OptimumSlope
from simstudy.design.settings.cell import level
from simstudy.verdicts.claimed import claimed
from simstudy.verdicts.comparisons import Comparison, at, strata
from simstudy.verdicts.estimates import Estimates

Array = NDArray[np.float64]

NEVER = 0.01
"""Share of draws below which a value of the factor is not among the possible optima."""
LAWS: dict[str, Callable[[Array], Array]] = {
    "log": np.log,
    "sqrt_log": lambda x: np.sqrt(np.log(x)),
    "log_over_log_log": lambda x: np.log(x) / np.log(np.log(x)),
    "power": np.log,
    "constant": np.zeros_like,
}
"""Functions g of the laws x* = a + c·g; the power law is ln x* = a + c·ln.

A constant is hard to tell from laws that contain it; claim a slope of 0 for that.
"""


class Path(NamedTuple):
    """How an optimum moves: levels of another factor (z,), optima as estimated (z, 1), drawn (z, draw) and told (z,).

    ``told`` is the optimum by theory, NaN where it has none or is not asked; ``place`` names the other factors.
    """

    place: str
    along: Array
    known: Array
    drawn: Array
    told: Array


class Profile(NamedTuple):
    """Least values along a factor, others tuned: levels (x,) and values (draw, x)."""

    levels: Array
    values: Array

    @property
    def optima(self) -> Array:
        """Level of least value in each draw."""
        return self.levels[np.argmin(self.values, axis=1)]

    @property
    def in_sight(self) -> bool:
        """Whether the first row has an optimum whose neighbours have a value, so that it is not where values end."""
        least = int(np.argmin(self.values[0]))
        return bool(np.isfinite(self.values[0, max(least - 1, 0) : least + 2]).all())

    @property
    def refined(self) -> Array:
        """Optimum between levels: vertex of the parabola in ln x through the least value and its neighbours.

        At the end of the levels it is that end.
        """
        x, least = np.log(self.levels), np.argmin(self.values, axis=1)
        place = np.clip(least, 1, len(x) - 2)
        draw = np.arange(len(self.values))
        a, b, c = (x[place + k] for k in (-1, 0, 1))
        fa, fb, fc = (self.values[draw, place + k] for k in (-1, 0, 1))
        # Differences from the middle level, as the vertex is that of the parabola through them.
        left, right = (b - a) * (fb - fc), (b - c) * (fb - fa)
        curvature = left - right
        with np.errstate(invalid="ignore", divide="ignore"):
            shift = 0.5 * ((b - a) * left - (b - c) * right) / curvature
        inside = (place == least) & (curvature != 0)
        return np.exp(np.where(inside, np.clip(b - shift, a, c), x[least]))


def optima(
    claim: Optimum, estimates: Estimates, chosen: list[int], factors: tuple[str, ...], theory: Array | None
) -> Iterator[Comparison]:
    """Yield, for each combination of the other factors, the level of x at which the measure is least."""
    for cells in strata(estimates, chosen, factors, (claim.x, *claim.tune)):
        known = Profile(*_least(estimates, cells, claim.x, estimates.values[None, cells]))
        drawn = Profile(*_least(estimates, cells, claim.x, estimates.draws(cells)))
        value = claim.value
        if theory is not None:
            told = _told(estimates, cells, claim, theory)
            if not told.in_sight:
                continue
            value = float(told.optima[0])
        assert value is not None  # the design refuses a claim with neither
        possible = [f"{x:g}" for x in known.levels if (drawn.optima == x).mean() >= NEVER]
        place = at(estimates.coordinates[cells[0]], [f for f in factors if f not in (claim.x, *claim.tune)])
        text = f"optimal {claim.x} for {claim.measure} (possible: {', '.join(possible)}){place}"
        bounds = value / claim.ratio, value * claim.ratio
        yield _compared(text, known.optima[0], drawn.optima, bounds, value)


def optimum_slopes(
    claim: OptimumSlope, estimates: Estimates, chosen: list[int], factors: tuple[str, ...], theory: Array | None
) -> Iterator[Comparison]:
    """Yield, for each combination of the other factors, the slope of the optimum in ln of the factor ``along``."""
    for path in _paths(claim, estimates, chosen, factors, theory):
        inside = np.isfinite(path.told) if claim.source else np.ones(len(path.along), bool)
        if inside.sum() < 2:
            continue
        leverage = np.log(path.along[inside]) - np.log(path.along[inside]).mean()
        leverage /= (leverage**2).sum()
        optima = (path.known[inside], path.drawn[inside], path.told[inside])
        known, drawn, told = (leverage @ (np.log(x) if claim.scale == "log_log" else x) for x in optima)
        value = float(told) if claim.value is None else claimed(claim.value)
        kind = "log-log slope" if claim.scale == "log_log" else "slope in the logarithm"
        levels = ", ".join(f"{z:g}" for z in path.along[inside])
        text = f"{kind} of optimal {claim.x} along {claim.along} = {levels}{path.place}"
        yield _compared(text, known[0], drawn, (value - claim.margin, value + claim.margin), value)


def optimum_laws(
    claim: OptimumLaw, estimates: Estimates, chosen: list[int], factors: tuple[str, ...]
) -> Iterator[Comparison]:
    """Yield, for each combination of the other factors, by how much the law beats the best other law, in AIC.

    And by how much it beats a constant: a law of growth must not pass for describing none.
    """
    for place, z, known, drawn, _ in _paths(claim, estimates, chosen, factors, None):
        criteria = [{law: akaike(law, z, x) for law in LAWS} for x in (known, drawn)]
        fits = {law: float(value[0]) for law, value in criteria[0].items()}
        least = min(fits.values())
        ranked = ", ".join(f"{law} {fits[law] - least:.1f}" for law in sorted(fits, key=lambda law: fits[law]))
        others = [law for law in LAWS if law != claim.law]
        gains = [np.min([each[law] for law in others], axis=0) - each[claim.law] for each in criteria]
        text = f"AIC of the best other law minus that of {claim.law} (above the best: {ranked}) for optimal {claim.x}"
        yield _compared(text + place, gains[0][0], gains[1], (-claim.margin, np.inf), -claim.margin)
        if claim.law != "constant":
            gains = [each["constant"] - each[claim.law] for each in criteria]
            text = f"AIC of a constant minus that of {claim.law} for optimal {claim.x}{place}"
            yield _compared(text, gains[0][0], gains[1], (0.0, np.inf), 0.0)


def akaike(law: str, z: Array, x: Array) -> Array:
    """Return Akaike's criterion of a law fitted by least squares to optima x (z, draw) at z: (draw,)."""
    y = np.log(x) if law == "power" else x
    columns = [np.ones_like(z)] + ([] if law == "constant" else [LAWS[law](z)])
    design = np.stack(columns, axis=1)
    fitted = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    residuals = (np.exp(fitted) if law == "power" else fitted) - x
    # The floor is far below any uncertainty of an optimum; it keeps a perfect fit finite.
    variance = (residuals**2).mean(axis=0) + 1e-12
    criterion: Array = len(z) * np.log(variance) + 2 * len(columns)
    return criterion


def _paths(
    claim: OptimumSlope | OptimumLaw, estimates: Estimates, chosen: list[int], factors: tuple[str, ...],
    theory: Array | None,
) -> Iterator[Path]:  # fmt: skip
    """Yield how the refined optimum moves, for each combination of the other factors."""
    within = (claim.along, claim.x, *claim.tune)
    for cells in strata(estimates, chosen, factors, within):
        by_level: dict[float, list[int]] = defaultdict(list)
        for cell in cells:
            by_level[float(estimates.coordinates[cell][claim.along])].append(cell)
        known, drawn, told = [], [], []
        for inside in by_level.values():
            known.append(Profile(*_least(estimates, inside, claim.x, estimates.values[None, inside])).refined)
            drawn.append(Profile(*_least(estimates, inside, claim.x, estimates.draws(inside))).refined)
            profile = None if theory is None else _told(estimates, inside, claim, theory)
            told.append(float(profile.refined[0]) if profile and profile.in_sight else np.nan)
        place = at(estimates.coordinates[cells[0]], [name for name in factors if name not in within])
        yield Path(place, *(np.array(column) for column in (list(by_level), known, drawn, told)))


def _told(estimates: Estimates, cells: list[int], claim: OptimumClaim, theory: Array) -> Profile:
    """Profile by theory of cells that differ in x and in what is tuned alone."""
    columns = [[level(estimates.coordinates[cell], name) for cell in cells] for name in (claim.x, *claim.tune)]
    return told_profile(np.array(columns[0], float), columns[1:], theory[cells])


def told_profile(levels: Array, tuned: Sequence[Sequence[Any]], values: Array) -> Profile:
    """Return the least values by theory at each level of a factor.

    Infinite where the least of them has a neighbour, one step of a tuned factor away, to which the theory does not
    apply: that may be better.

    Parameters
    ----------
    levels : (cell,) array
        Of the factor.
    tuned
        For each tuned factor its levels, (cell,).
    values : (cell,) array
        NaN where the theory does not apply.
    """
    ranks = np.array([np.unique(column, return_inverse=True)[1] for column in tuned]).reshape(len(tuned), len(levels))
    known, distinct, least = np.where(np.isnan(values), np.inf, values), np.unique(levels), []
    for each in distinct:
        inside = np.flatnonzero(levels == each)
        best = inside[np.argmin(known[inside])]
        beside = np.abs(ranks[:, inside] - ranks[:, [best]]).sum(axis=0) <= 1
        least.append(known[best] if np.isfinite(known[inside][beside]).all() else np.inf)
    return Profile(distinct, np.array([least]))


def optimum_shares(estimates: Estimates, cells: list[int], factors: tuple[str, ...], within: tuple[str, ...]) -> Array:
    """Return the share of draws in which each cell has the least measure of those that differ ``within`` alone.

    Parameters
    ----------
    estimates
        The measure in the cells of a grid.
    cells
        Those that are compared.
    factors
        Factors of the grid.
    within
        The factor over which the measure is minimised, and those that are tuned.

    Returns
    -------
    (cell,) array
        NaN in other cells of the grid.
    """
    shares = np.full(len(estimates.values), np.nan)
    for group in strata(estimates, cells, factors, within):
        draws = estimates.draws(group)
        least = np.argmin(np.where(np.isnan(draws), np.inf, draws), axis=1)
        shares[group] = np.bincount(least, minlength=len(group)) / len(draws)
    return shares


def _least(estimates: Estimates, cells: list[int], x: str, values: Array) -> tuple[Array, Array]:
    """Levels of x among the cells, and at each the least of the values (draw, cell), undefined ones left out."""
    levels = np.array([float(estimates.coordinates[cell][x]) for cell in cells])
    known = np.where(np.isnan(values), np.inf, values)
    distinct = np.unique(levels)
    return distinct, np.stack([known[:, levels == level].min(axis=1) for level in distinct], axis=1)


def _compared(text: str, value: float, draws: Array, bounds: tuple[float, float], claimed: float) -> Comparison:
    return Comparison(text, float(value), float(draws.std()), *bounds, claimed, 1, draws)
