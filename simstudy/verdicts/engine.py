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

from collections.abc import Iterator
from functools import singledispatch
from typing import NamedTuple

import numpy as np

from simstudy.design.claims import LEVEL, BaseClaim, OptimumLaw, OptimumSlope
from simstudy.verdicts.comparisons import Comparison, Selected, agreement, differences, slopes, steps, undecided
from simstudy.verdicts.evidence import NOTHING, Evidence, every, together
from simstudy.verdicts.optima import crossings, optima
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


def judge_claim(claim: BaseClaim, of: Selected, n_claims: int) -> Judgement:
    """Return the verdict on one of so many claims of a study, among which the level is divided."""
    level = LEVEL / n_claims
    comparisons = list(comparisons_of(claim, of._replace(level=level)))
    if len(comparisons) > 1 and isinstance(claim, OptimumSlope | OptimumLaw):
        # Each of several comparisons gets its share of what is spent on the levels that may be least.
        comparisons = list(comparisons_of(claim, of._replace(level=level / len(comparisons))))
    return decide([_doubted(each, of) for each in comparisons], level)


def _doubted(comparison: Comparison, of: Selected) -> Comparison:
    """Return a comparison without evidence if it rests on a doubtful cell; one of no cells of its own rests on all."""
    whys = [why for cell, why in of.doubtful.items() if cell in (comparison.cells or of.doubtful)]
    return comparison.without_evidence(whys[0]) if whys else comparison


def decide(comparisons: list[Comparison], level: float) -> Judgement:
    """Return the verdict that comparisons give at a level, and the comparison that decides it."""
    if not comparisons:
        return Judgement("inconclusive", NOTHING, undecided("", NOTHING_COMPARED), [], level)
    each = together([comparison.evidence for comparison in comparisons])
    evidence = every(each)
    if evidence.against < level:
        return Judgement("contradicted", evidence, comparisons[int(np.argmin(each.against))], comparisons, level)
    verdict = "supported" if evidence.in_favour < level else "inconclusive"
    return Judgement(verdict, evidence, comparisons[int(np.argmax(each.in_favour))], comparisons, level)


def holm(p_values: np.ndarray) -> np.ndarray:
    """Return Holm's step-down adjusted p-values (Holm 1979)."""
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.maximum.accumulate(np.minimum(p_values[order] * factors, 1.0))
    result = np.empty_like(adjusted)
    result[order] = adjusted
    return result
