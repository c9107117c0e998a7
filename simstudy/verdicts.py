"""Verdicts on the claims of a design: interval hypotheses, Monte Carlo error, multiplicity.

Imports NumPy, SciPy, xarray, cells, claims, design, ledger, references and variables only.

Every kind of claim comes down to comparisons: an estimate, its MCSE, and the interval in which the claim puts it.
Against exact theory the MCSE also holds the numerical error of the theory.
For each comparison there are two one-sided tests: one against the claim (the truth lies outside the interval) and
one for it (the truth lies inside; two one-sided tests, Schuirmann 1987).  A claim is

- contradicted if, Holm-corrected over its comparisons, some test against it rejects;
- supported if every test for it rejects (an intersection-union test needs no correction: Berger 1982);
- inconclusive otherwise.

The level is LEVEL divided by the number of claims of the study (Bonferroni).  Estimates of cells that share data are
compared with the covariance that the shared replicates give them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import stats

from simstudy.cells import label, level
from simstudy.claims import AgreesWithTheory, BaseClaim, Equals, LargerThan, Monotone, Slope
from simstudy.design import Design
from simstudy.references import selected
from simstudy.variables import INDICES, labelled

if TYPE_CHECKING:  # the report reads the level from here, and must not load the simulator for it
    from simstudy.ledger import Account

LEVEL = 0.05
"""Chance of a wrong contradiction or support among all claims of a study."""
RESOLUTION = 1e-10
"""Rounding error of a measure relative to its size, added to the MCSE: differences below it are not findings."""


class Comparison(NamedTuple):
    """An estimate and the interval in which the claim puts it."""

    statistic: str
    estimate: float
    mcse: float
    lower: float
    upper: float
    claimed: float
    degrees: int


class Predictions(NamedTuple):
    """Values of one measure by theory, (cell,), with bounds of their numerical errors: 0 for a closed form."""

    values: np.ndarray
    errors: np.ndarray


class Judgement(NamedTuple):
    """Verdict on one claim, with the comparison that decides it."""

    verdict: str
    decisive: Comparison
    z: float
    p_value: float
    comparisons: int


class Estimates:
    """One measure in the cells of a grid, with the covariance of linear combinations of them."""

    def __init__(self, accounts: list[Account], claim: BaseClaim) -> None:
        self.coordinates = [account.planned.cell.coordinates for account in accounts]
        self._accounts = accounts
        position = INDICES.index(claim.index) if claim.index else None
        self.values = np.array(
            [_pick(a.performance and a.performance.estimate, claim.measure, position) for a in accounts]
        )
        self._contributions = [
            _pick(a.performance and a.performance.contribution, claim.measure, position, np.zeros(0)) for a in accounts
        ]
        self._n_blocks = [a.performance.n_blocks if a.performance else 0 for a in accounts]
        self._remainders = [a.performance.remainder.get(claim.measure, 0.0) if a.performance else 0.0 for a in accounts]

    def combine(self, terms: dict[int, float]) -> tuple[float, float, int]:
        """Return Σ c_j θ_j over cells j, its MCSE, and the degrees of freedom of the MCSE.

        Cells of one seed and batch size are paired block by block, whatever they share: keys, or redrawn heads; for
        cells that share nothing the pairing costs nothing, as their contributions are independent.
        """
        by_stream: dict[Any, list[np.ndarray]] = defaultdict(list)
        for cell, factor in terms.items():
            account = self._accounts[cell]
            stream = account.planned.cell.simulation.seed, account.batch_size
            by_stream[stream].append(factor * self._contributions[cell])
        variance = sum(float((_sum_padded(parts) ** 2).sum()) for parts in by_stream.values())
        variance += sum((factor * self._remainders[cell]) ** 2 for cell, factor in terms.items())
        estimate = sum(factor * self.values[cell] for cell, factor in terms.items())
        rounding = RESOLUTION * max(abs(factor * self.values[cell]) for cell, factor in terms.items())
        degrees = min(self._n_blocks[cell] for cell in terms) - 1
        return float(estimate), float(np.hypot(np.sqrt(variance), rounding)), max(degrees, 1)


def _pick(values: dict[str, Any] | None, measure: str, position: int | None, absent: Any = np.nan) -> Any:
    if values is None:
        return absent
    return values[measure] if position is None else values[measure][..., position]


def _sum_padded(parts: list[np.ndarray]) -> np.ndarray:
    """Sum contributions block by block; a cell with fewer blocks contributes nothing to the further ones."""
    total = np.zeros(max(map(len, parts)))
    for part in parts:
        total[: len(part)] += part
    return total


def judge(results: xr.Dataset, design: Design, accounts: list[Account]) -> xr.Dataset:
    """Return the results with a verdict on every claim of the design, along the dimension ``claim``."""
    judgements = {}
    for name, claim in design.claims.items():
        positions = [i for i, account in enumerate(accounts) if account.planned.grid == claim.grid]
        inside = [accounts[i] for i in positions]
        theory = _predictions(results, claim, positions) if isinstance(claim, AgreesWithTheory) else None
        comparisons = list(compare(claim, inside, design.factors[claim.grid], theory))
        judgements[name] = decide(comparisons, LEVEL / len(design.claims))
    if not judgements:
        return results
    table = _table(design, judgements)
    return xr.merge([results, table], combine_attrs="override")


def _predictions(results: xr.Dataset, claim: AgreesWithTheory, positions: list[int]) -> Predictions:
    values = results[claim.measure].sel(source=claim.source).values[positions]
    if claim.source == "leading":
        return Predictions(values, np.zeros_like(values))
    return Predictions(values, results[f"{claim.measure}_numerical_error"].values[positions])


def _table(design: Design, judgements: dict[str, Judgement]) -> xr.Dataset:
    decisive = [judgement.decisive for judgement in judgements.values()]
    return labelled(
        {
            "verdict": [judgement.verdict for judgement in judgements.values()],
            "expected_verdict": [claim.expected for claim in design.claims.values()],
            "statement": [claim.statement for claim in design.claims.values()],
            "statistic": [comparison.statistic for comparison in decisive],
            "verdict_estimate": [comparison.estimate for comparison in decisive],
            "verdict_mcse": [comparison.mcse for comparison in decisive],
            "verdict_expected": [comparison.claimed for comparison in decisive],
            "verdict_z": [judgement.z for judgement in judgements.values()],
            "verdict_p_value": [judgement.p_value for judgement in judgements.values()],
            "verdict_comparisons": [judgement.comparisons for judgement in judgements.values()],
        },
        coords={"claim": list(judgements)},
        attrs={},
    )


def decide(comparisons: list[Comparison], level: float) -> Judgement:
    """Return the verdict that comparisons give at a level, and the comparison that decides it."""
    if not comparisons:
        unknown = (np.nan, np.nan, np.nan, np.nan, np.nan)
        nothing = Comparison(
            "nothing to compare: no selected cell has both values, or a cell to compare with", *unknown, 1
        )
        return Judgement("inconclusive", nothing, np.nan, 1.0, 0)
    against = holm(np.array([_p_outside(comparison) for comparison in comparisons]))
    inside = np.array([_p_inside(comparison) for comparison in comparisons])
    worst = int(np.argmin(against))
    if against[worst] < level:
        verdict, decisive = "contradicted", comparisons[worst]
    else:
        verdict = "supported" if inside.max() < level else "inconclusive"
        decisive = comparisons[int(np.argmax(inside))]
    bounds = [bound for bound in (decisive.lower, decisive.upper) if np.isfinite(bound)]
    nearest = min((_in_mcse(decisive.estimate - bound, decisive) for bound in bounds), key=abs, default=np.nan)
    return Judgement(verdict, decisive, float(nearest), float(against[worst]), len(comparisons))


def _p_outside(c: Comparison) -> float:
    """p-value of the hypothesis that the truth is inside the claimed interval."""
    distance = max(c.lower - c.estimate, c.estimate - c.upper)
    return 1.0 if np.isnan(distance) or distance <= 0 else float(2 * stats.t.sf(_in_mcse(distance, c), c.degrees))


def _p_inside(c: Comparison) -> float:
    """p-value of the hypothesis that the truth is outside the claimed interval."""
    distance = min(c.estimate - c.lower, c.upper - c.estimate)
    return 1.0 if np.isnan(distance) else float(stats.t.sf(_in_mcse(distance, c), c.degrees))


def _in_mcse(distance: float, c: Comparison) -> float:
    """Distance from a bound in MCSE; of a value without Monte Carlo error (exactly 0 in every replicate) ±infinity."""
    if c.mcse > 0.0 or distance == 0.0:
        return distance / c.mcse if c.mcse > 0.0 else 0.0
    return np.inf if distance > 0 else -np.inf


def holm(p_values: np.ndarray) -> np.ndarray:
    """Return Holm's step-down adjusted p-values (Holm 1979)."""
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.maximum.accumulate(np.minimum(p_values[order] * factors, 1.0))
    result = np.empty_like(adjusted)
    result[order] = adjusted
    return result


def compare(
    claim: BaseClaim, accounts: list[Account], factors: tuple[str, ...], theory: Predictions | None
) -> Iterator[Comparison]:
    """Yield the comparisons of a claim in the cells of its grid.

    Parameters
    ----------
    claim
        What is claimed.
    accounts
        The cells of the grid.
    factors
        Factors of the grid.
    theory
        What theory says of the measure in these cells; for `AgreesWithTheory`.
    """
    estimates = Estimates(accounts, claim)
    chosen = [i for i, c in enumerate(estimates.coordinates) if selected(c, claim.where)]
    match claim:
        case AgreesWithTheory() if theory is not None:
            yield from _agreement(claim, estimates, chosen, factors, theory)
        case Monotone():
            yield from _steps(claim, estimates, chosen, factors)
        case Slope():
            yield from _slopes(claim, estimates, chosen, factors)
        case Equals() | LargerThan():
            yield from _differences(claim, estimates, chosen, factors)


def _agreement(
    claim: AgreesWithTheory, estimates: Estimates, chosen: list[int], factors: tuple[str, ...], theory: Predictions
) -> Iterator[Comparison]:
    """Ratios of estimate to theory; a numerical error of the theory counts as one more standard error."""
    valid = [cell for cell in chosen if np.isfinite(theory.values[cell]) and theory.values[cell] != 0.0]
    share = "" if len(valid) == len(chosen) else f", one of {len(valid)} cells with theory among {len(chosen)}"
    for cell in valid:
        ratio, mcse, degrees = estimates.combine({cell: 1.0 / theory.values[cell]})
        error = float(np.hypot(mcse, ratio * theory.errors[cell] / theory.values[cell]))
        text = f"{claim.measure} / {claim.source}{_at(estimates.coordinates[cell], factors)}{share}"
        yield Comparison(text, ratio, error, 1 - claim.margin, 1 + claim.margin, 1.0, degrees)


def _strata(claim: Any, estimates: Estimates, chosen: list[int], factors: tuple[str, ...]) -> Iterator[list[int]]:
    """Yield the cells of each combination of the other factors, in the order of x."""
    strata: dict[tuple, list[int]] = defaultdict(list)
    for cell in chosen:
        coordinates = estimates.coordinates[cell]
        strata[tuple(level(coordinates, name) for name in factors if name != claim.x)].append(cell)
    for cells in strata.values():
        yield sorted(cells, key=lambda cell: float(estimates.coordinates[cell][claim.x]))


def _nothing_to_compare(estimates: Estimates, cells: list[int], factors: tuple[str, ...]) -> Comparison:
    """A comparison that decides nothing: a single cell on its line must not pass for support."""
    text = f"a single cell{_at(estimates.coordinates[cells[0]], factors)}"
    return Comparison(text, np.nan, np.nan, np.nan, np.nan, np.nan, 1)


def _steps(claim: Monotone, estimates: Estimates, chosen: list[int], factors: tuple[str, ...]) -> Iterator[Comparison]:
    sign = 1.0 if claim.direction == "increasing" else -1.0
    for cells in _strata(claim, estimates, chosen, factors):
        if len(cells) < 2:
            yield _nothing_to_compare(estimates, cells, factors)
        for left, right in itertools.pairwise(cells):
            step, mcse, degrees = estimates.combine({right: sign, left: -sign})
            start, stop = (estimates.coordinates[cell][claim.x] for cell in (left, right))
            place = _at(estimates.coordinates[left], [name for name in factors if name != claim.x])
            text = f"{claim.direction.removesuffix('ing')}e of {claim.measure}, {claim.x} {start:g} → {stop:g}{place}"
            yield Comparison(text, step, mcse, 0.0, np.inf, 0.0, degrees)


def _slopes(claim: Slope, estimates: Estimates, chosen: list[int], factors: tuple[str, ...]) -> Iterator[Comparison]:
    """Least-squares slope; on a logarithmic scale of y by the delta method."""
    for cells in _strata(claim, estimates, chosen, factors):
        if len(cells) < 2:
            yield _nothing_to_compare(estimates, cells, factors)
            continue
        x = np.array([estimates.coordinates[cell][claim.x] for cell in cells], float)
        x = np.log(x) if claim.scale != "linear" else x
        leverage = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        y = estimates.values[cells]
        derivative = 1.0 / y if claim.scale == "log_log" else np.ones_like(y)
        _, mcse, degrees = estimates.combine(dict(zip(cells, leverage * derivative, strict=True)))
        slope = float(leverage @ (np.log(y) if claim.scale == "log_log" else y))
        place = _at(estimates.coordinates[cells[0]], [name for name in factors if name != claim.x])
        text = f"{claim.scale.replace('_', '-')} slope of {claim.measure} in {claim.x}{place}"
        yield Comparison(
            text, slope, mcse, claim.value - claim.margin, claim.value + claim.margin, claim.value, degrees
        )


def _differences(
    claim: Equals | LargerThan, estimates: Estimates, chosen: list[int], factors: tuple[str, ...]
) -> Iterator[Comparison]:
    bounds = (claim.value, np.inf) if isinstance(claim, LargerThan) else (
        claim.value - claim.margin, claim.value + claim.margin,
    )  # fmt: skip
    for cell in chosen:
        coordinates = estimates.coordinates[cell]
        terms, text = {cell: 1.0}, f"{claim.index or claim.measure}{_at(coordinates, factors)}"
        if claim.versus is not None:
            wanted = {name: level(coordinates, name) for name in factors} | claim.versus
            partner = next((i for i, c in enumerate(estimates.coordinates) if selected(c, wanted)), cell)
            if partner == cell:  # the cell to compare with, selected with the others; or none with equal factors
                continue
            terms[partner] = -1.0
            text += " minus" + _at(claim.versus, tuple(claim.versus)).removeprefix(" at")
        value, mcse, degrees = estimates.combine(terms)
        yield Comparison(text, value, mcse, *bounds, claim.value, degrees)


def _at(coordinates: dict[str, Any], factors: tuple[str, ...] | list[str]) -> str:
    named = ", ".join(f"{name} = {_level_text(level(coordinates, name))}" for name in factors)
    return f" at {named}" if named else ""


def _level_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(label(tuple(value) if isinstance(value, list) else value))
