"""Verdicts on the claims of a design: interval hypotheses, Monte Carlo error, any number of looks, multiplicity.

Every kind of claim comes down to comparisons: an estimate, its MCSE, and the interval in which the claim puts it.
Against exact theory the MCSE also holds the numerical error of the theory.
For each comparison there are two p-values, which hold at all looks together: one against the claim (the truth lies
outside the interval) and one in favour (the truth lies inside; two one-sided tests, Schuirmann 1987).  A claim is

- contradicted if, Bonferroni-corrected over its comparisons, some test against it rejects;
- supported if every test for it rejects (an intersection-union test needs no correction: Berger 1982);
- inconclusive otherwise.

The level is LEVEL divided by the number of claims of the study (Bonferroni).  Estimates of cells that share data are
compared with the covariance that the shared replicates give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from simstudy.design.claims import (
    LEVEL,
    BaseClaim,
    OptimumLaw,
    OptimumSlope,
    OrderingClaim,
)
from simstudy.design.document import Design
from simstudy.design.generality import draws_of
from simstudy.design.measures import VARIABLES, labelled
from simstudy.design.moments_needed import lacking, order_of
from simstudy.design.settings.cell import selected
from simstudy.execution.account import Account
from simstudy.verdicts.comparisons import (
    Comparison,
    OrderedPairs,
    Predictions,
    Selected,
    agreement,
    differences,
    slopes,
    steps,
    undecided,
)
from simstudy.verdicts.crossings import crossings
from simstudy.verdicts.estimates import Estimates
from simstudy.verdicts.logic import NOTHING, Evidence, every, together
from simstudy.verdicts.optima import optima
from simstudy.verdicts.orderings import rank_correlations, violations
from simstudy.verdicts.paths import optimum_laws, optimum_slopes

NOTHING_COMPARED = "nothing to compare: no selected cell has both values, or a cell to compare with"


@singledispatch
def comparisons_of(claim: BaseClaim, of: Selected) -> Iterator[Comparison]:
    """Yield what a claim comes down to in the cells that it selects."""
    raise NotImplementedError(type(claim).__name__)


for _of_one_kind in (
    agreement, crossings, differences, optima, optimum_laws, optimum_slopes, rank_correlations, slopes, steps,
    violations,
):  # fmt: skip
    comparisons_of.register(_of_one_kind)


class Judgement(NamedTuple):
    """Verdict on one claim at a level, with all its comparisons and the one that decides it."""

    verdict: str
    evidence: Evidence
    decisive: Comparison
    comparisons: list[Comparison]
    level: float


class Judged(NamedTuple):
    """Results with verdicts, and what goes to their details: the pairs of cells of claims on orders, if there are."""

    results: xr.Dataset
    pairs: xr.Dataset


def judge(results: xr.Dataset, design: Design, accounts: Sequence[Account]) -> Judged:
    """Return the results with a verdict on every claim of the design, along the dimension ``claim``.

    All comparisons that they rest on lie along ``comparison``.
    """
    judgements, pairs = {}, []
    for name, claim in design.claims.items():
        positions = [i for i, account in enumerate(accounts) if account.planned.grid == claim.grid]
        source = getattr(claim, "source", None)
        theory = None if source is None else _predictions(results, claim.measure, source, positions)
        inside = [accounts[i] for i in positions]
        judgements[name] = judge_claim(
            claim, inside, design.factors[claim.grid], theory, len(design.claims), without_error(claim, inside)
        )
        pairs += [pair_table(name, positions, c.ordered) for c in judgements[name].comparisons if c.ordered]
    if judgements:
        tables = [claim_table(design, judgements), comparison_table(judgements)]
        results = xr.merge([results, *tables], combine_attrs="override")
    return Judged(results, xr.concat(pairs, "ordered") if pairs else xr.Dataset())


def judge_claim(
    claim: BaseClaim, accounts: Sequence[Account], factors: tuple[str, ...], theory: Predictions | None, n_claims: int,
    doubtful: Mapping[int, str] = MappingProxyType({}),
) -> Judgement:  # fmt: skip
    """Return the verdict on one of so many claims of a study.

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
    n_claims
        Claims among which the level is divided.
    doubtful
        Cells whose estimates have no Monte Carlo error, and why: no verdict rests on them.
    """
    level = LEVEL / n_claims
    comparisons = compare(claim, accounts, factors, theory, level)
    if len(comparisons) > 1 and type(claim) in (OptimumSlope, OptimumLaw):
        # Each of several comparisons gets its share of what is spent on the levels that may be least.
        comparisons = compare(claim, accounts, factors, theory, level / len(comparisons))
    return decide([_doubted(each, doubtful) for each in comparisons], level)


def without_error(claim: BaseClaim, accounts: Sequence[Account]) -> dict[int, str]:
    """Return the cells that a claim selects in which what it speaks of has no Monte Carlo error, and why."""
    cells = [account.planned.cell for account in accounts]
    found = {i: lacking([cell], 2 * order_of(claim)) for i, cell in enumerate(cells)} if order_of(claim) else {}
    return {i: f"no Monte Carlo error: {why}" for i, why in found.items() if why}


def _doubted(comparison: Comparison, doubtful: Mapping[int, str]) -> Comparison:
    """Return a comparison without evidence if it rests on a doubtful cell; one of no cells of its own rests on all."""
    whys = [why for cell, why in doubtful.items() if cell in (comparison.cells or doubtful)]
    return undecided(comparison.statistic, whys[0])._replace(
        estimate=comparison.estimate, mcse=comparison.mcse, lower=comparison.lower, upper=comparison.upper,
        claimed=comparison.claimed,
    ) if whys else comparison  # fmt: skip


def compare(
    claim: BaseClaim, accounts: Sequence[Account], factors: tuple[str, ...], theory: Predictions | None,
    level: float = LEVEL,
) -> list[Comparison]:  # fmt: skip
    """Return the comparisons of a claim in the cells of its grid; see `judge_claim`."""
    estimates = Estimates(accounts, claim.measure, claim.index)
    chosen = [i for i, c in enumerate(estimates.coordinates) if selected(c, claim.where)]
    diversity = Estimates(accounts, "hdi", claim.against) if isinstance(claim, OrderingClaim) else None
    of = Selected(estimates, chosen, factors, theory, diversity, level)
    return list(comparisons_of(claim, of))


def _predictions(results: xr.Dataset, measure: str, source: str, positions: list[int]) -> Predictions:
    values = results[measure].sel(source=source).values[positions]
    # Closed forms have no numerical error to speak of.
    if source == "leading" or f"{measure}_numerical_error" not in results:
        return Predictions(values, np.zeros_like(values))
    return Predictions(values, results[f"{measure}_numerical_error"].values[positions])


def decide(comparisons: list[Comparison], level: float) -> Judgement:
    """Return the verdict that comparisons give at a level, and the comparison that decides it."""
    if not comparisons:
        nothing = undecided("", NOTHING_COMPARED)
        return Judgement("inconclusive", NOTHING, nothing, [], level)
    each = together([comparison.evidence for comparison in comparisons])
    evidence = every(each)
    if evidence.against < level:
        return Judgement("contradicted", evidence, comparisons[int(np.argmin(each.against))], comparisons, level)
    verdict = "supported" if evidence.in_favour < level else "inconclusive"
    return Judgement(verdict, evidence, comparisons[int(np.argmax(each.in_favour))], comparisons, level)


def claim_table(design: Design, judgements: dict[str, Judgement]) -> xr.Dataset:
    """Return verdicts along ``claim``, each with the comparison that decides it."""
    each = list(judgements.values())
    decisive = [judgement.decisive for judgement in each]
    bounds = [comparison.confidence(judgement.level) for comparison, judgement in zip(decisive, each, strict=True)]
    return labelled(
        {
            "verdict": [judgement.verdict for judgement in each],
            "declared_verdict": [claim.expected for claim in design.claims.values()],
            "statement": [claim.words for claim in design.claims.values()],
            "origin": [claim.origin for claim in design.claims.values()],
            "statistic": [comparison.statistic for comparison in decisive],
            "no_verdict_because": [
                judgement.decisive.doubt if judgement.verdict == "inconclusive" else "" for judgement in each
            ],
            "verdict_estimate": [comparison.estimate for comparison in decisive],
            "verdict_mcse": [comparison.mcse for comparison in decisive],
            "verdict_mcse_given": [comparison.given for comparison in decisive],
            "verdict_draws": [draws_of(claim, design.cells).text for claim in design.claims.values()],
            "these_draws": [claim.these_draws for claim in design.claims.values()],
            "claimed_value": [comparison.claimed for comparison in decisive],
            "claimed_lower": [comparison.lower for comparison in decisive],
            "claimed_upper": [comparison.upper for comparison in decisive],
            "confidence_lower": [low for low, _ in bounds],
            "confidence_upper": [high for _, high in bounds],
            "p_against": [_adjusted(judgement.evidence.against, judgement.level) for judgement in each],
            "p_in_favour": [_adjusted(judgement.evidence.in_favour, judgement.level) for judgement in each],
            "verdict_comparisons": [len(judgement.comparisons) for judgement in each],
        },
        coords={"claim": list(judgements)},
        attrs={},
    )


def comparison_table(judgements: dict[str, Judgement]) -> xr.Dataset:
    """Return all comparisons of all claims along ``comparison``; after each the parts of which it is made."""
    rows: dict[str, list[Any]] = {name: [] for name in VARIABLES if VARIABLES[name].dims == ("comparison",)}
    for name, judgement in judgements.items():
        against = holm(np.array([float(each.evidence.against) for each in judgement.comparisons]))
        for each, adjusted in zip(judgement.comparisons, against, strict=True):
            for row, p_against in ((each, adjusted), *((part, float(part.evidence.against)) for part in each.parts)):
                low, high = row.confidence(judgement.level)
                values = {
                    "comparison_claim": name,
                    "comparison_statistic": row.statistic,
                    "comparison_part_of": "" if row is each else each.statistic,
                    "comparison_estimate": row.estimate,
                    "comparison_mcse": row.mcse,
                    "comparison_mcse_given": row.given,
                    "comparison_claimed_lower": row.lower,
                    "comparison_claimed_upper": row.upper,
                    "comparison_confidence_lower": low,
                    "comparison_confidence_upper": high,
                    "comparison_p_against": _adjusted(p_against, judgement.level),
                    "comparison_p_in_favour": _adjusted(row.evidence.in_favour, judgement.level),
                    "comparison_no_verdict_because": "" if min(row.evidence) < judgement.level else row.doubt,
                }
                for column, value in values.items():
                    rows[column].append(value)
    texts = {name for name in rows if VARIABLES[name].unit == "text"}
    arrays = {name: np.array(column, object if name in texts else float) for name, column in rows.items()}
    return labelled(arrays, coords={"comparison": np.arange(len(rows["comparison_claim"]))}, attrs={})


def pair_table(claim: str, positions: list[int], pairs: OrderedPairs) -> xr.Dataset:
    """Return the pairs of cells of one comparison of a claim along ``ordered``; cells by their number."""
    place = np.array(positions)
    columns = {
        "pair_claim": np.full(len(pairs.first), claim, object),
        "pair_first": place[pairs.first],
        "pair_second": place[pairs.second],
        "pair_estimate": pairs.estimate,
        "pair_mcse": pairs.mcse,
        "pair_p_against": pairs.against,
        "pair_p_in_favour": pairs.in_favour,
    }
    return labelled(columns, coords={}, attrs={})


def _adjusted(p_value: Any, level: float) -> float:
    """p-value to be compared with LEVEL: corrected for the number of claims among which that is divided."""
    return float(min(p_value * LEVEL / level, 1.0))


def holm(p_values: np.ndarray) -> np.ndarray:
    """Return Holm's step-down adjusted p-values (Holm 1979)."""
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.maximum.accumulate(np.minimum(p_values[order] * factors, 1.0))
    result = np.empty_like(adjusted)
    result[order] = adjusted
    return result
