"""Verdicts on the claims of a design: interval hypotheses, Monte Carlo error, multiplicity.

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

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import stats

from simstudy.design.claims import (
    LEVEL,
    AgreesWithTheory,
    BaseClaim,
    Crossing,
    Equals,
    LargerThan,
    Monotone,
    Optimum,
    OptimumLaw,
    OptimumSlope,
    RankCorrelation,
    Slope,
    ViolatedPairs,
)
from simstudy.design.document import Design
from simstudy.design.measures import labelled
from simstudy.design.settings.cell import selected
from simstudy.execution.ledger import Account
from simstudy.verdicts.comparisons import Comparison, Predictions, agreement, differences, slopes, steps
from simstudy.verdicts.crossings import crossings
from simstudy.verdicts.estimates import Estimates
from simstudy.verdicts.optima import optima, optimum_laws, optimum_slopes
from simstudy.verdicts.orderings import rank_correlations, violations

_EMPIRICAL: dict[type[BaseClaim], Callable[..., Iterator[Comparison]]] = {
    Monotone: steps,
    Slope: slopes,
    Equals: differences,
    LargerThan: differences,
    OptimumLaw: optimum_laws,
}
"""What compares cells of the grid with one another or with a number, by kind of claim."""


class Judgement(NamedTuple):
    """Verdict on one claim, with the comparison that decides it."""

    verdict: str
    decisive: Comparison
    z: float
    p_value: float
    comparisons: int


def judge(results: xr.Dataset, design: Design, accounts: list[Account]) -> xr.Dataset:
    """Return the results with a verdict on every claim of the design, along the dimension ``claim``."""
    judgements = {}
    for name, claim in design.claims.items():
        positions = [i for i, account in enumerate(accounts) if account.planned.grid == claim.grid]
        inside = [accounts[i] for i in positions]
        source = getattr(claim, "source", None)
        theory = None if source is None else _predictions(results, claim.measure, source, positions)
        comparisons = list(compare(claim, inside, design.factors[claim.grid], theory))
        judgements[name] = decide(comparisons, LEVEL / len(design.claims))
    if not judgements:
        return results
    table = _table(design, judgements)
    return xr.merge([results, table], combine_attrs="override")


def _predictions(results: xr.Dataset, measure: str, source: str, positions: list[int]) -> Predictions:
    values = results[measure].sel(source=source).values[positions]
    # Closed forms have no numerical error to speak of.
    if source == "leading" or f"{measure}_numerical_error" not in results:
        return Predictions(values, np.zeros_like(values))
    return Predictions(values, results[f"{measure}_numerical_error"].values[positions])


def compare(  # one case for each kind of claim
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
        What theory says of the measure in these cells, for claims that compare with it.
    """
    estimates = Estimates(accounts, claim.measure, claim.index)
    chosen = [i for i, c in enumerate(estimates.coordinates) if selected(c, claim.where)]
    told = None if theory is None else theory.values
    match claim:
        case AgreesWithTheory() if theory is not None:
            yield from agreement(claim, estimates, chosen, factors, theory)
        case RankCorrelation():
            yield from rank_correlations(claim, estimates, Estimates(accounts, "hdi", claim.against), chosen)
        case ViolatedPairs():
            yield from violations(claim, estimates, Estimates(accounts, "hdi", claim.against), chosen)
        case Crossing():
            yield from crossings(claim, estimates, chosen, factors, told)
        case Optimum():
            yield from optima(claim, estimates, chosen, factors, told)
        case OptimumSlope():
            yield from optimum_slopes(claim, estimates, chosen, factors, told)
        case _ if type(claim) in _EMPIRICAL:
            yield from _EMPIRICAL[type(claim)](claim, estimates, chosen, factors)


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
    if c.draws is not None:
        return _share((c.lower <= c.draws) & (c.draws <= c.upper))
    distance = max(c.lower - c.estimate, c.estimate - c.upper)
    return 1.0 if np.isnan(distance) or distance <= 0 else float(2 * stats.t.sf(_in_mcse(distance, c), c.degrees))


def _p_inside(c: Comparison) -> float:
    """p-value of the hypothesis that the truth is outside the claimed interval."""
    if c.draws is not None:
        return _share(~((c.lower <= c.draws) & (c.draws <= c.upper)))
    distance = min(c.estimate - c.lower, c.upper - c.estimate)
    return 1.0 if np.isnan(distance) else float(stats.t.sf(_in_mcse(distance, c), c.degrees))


def _share(against: np.ndarray) -> float:
    """Bootstrap p-value: the share of draws, the observation counted as one more (Davison and Hinkley 1997)."""
    return float((1 + np.count_nonzero(against)) / (1 + len(against)))


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
