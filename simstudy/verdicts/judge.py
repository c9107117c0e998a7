"""Verdicts on the claims of a design: interval hypotheses, Monte Carlo error, any number of looks, multiplicity.

Every kind of claim comes down to comparisons: an estimate, its MCSE, and the interval in which the claim puts it.
Against exact theory the MCSE also holds the numerical error of the theory.
For each comparison there are two p-values, which hold at all looks together: one against the claim (the truth lies
outside the interval) and one in favour (the truth lies inside; two one-sided tests, Schuirmann 1987).  A claim is

- contradicted if, Bonferroni-corrected over its comparisons, some test against it rejects;
- supported if every test for it rejects (an intersection-union test needs no correction: Berger 1982);
- undecided otherwise.

The level is LEVEL divided by the number of claims of the study (Bonferroni).  Estimates of cells that share data are
compared with the covariance that the shared replicates give them.

Also the verdicts of a study as labelled tables, which comparison stands for a claim, and how many batches the claims
that are still open want of each cell.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from simstudy.design.claims import LEVEL, BaseClaim, OptimumLaw, OptimumSlope, OrderingClaim
from simstudy.design.document import Design
from simstudy.design.feasibility import batches_of
from simstudy.design.measures import THEORIES, VARIABLES, labelled
from simstudy.design.moments_needed import lacking, order_of
from simstudy.design.rules import draws_of
from simstudy.design.settings.levels import selected
from simstudy.execution.ledger import Account
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
from simstudy.verdicts.estimates import estimates_of
from simstudy.verdicts.evidence import NOTHING, Evidence, anytime_score, every, together
from simstudy.verdicts.optima import crossings, optima
from simstudy.verdicts.orderings import rank_correlations, violations
from simstudy.verdicts.paths import optimum_laws, optimum_slopes
from simstudy.verdicts.predictions import Told, predict, values_of

NOTHING_COMPARED = "nothing to compare: no selected cell has both values, or a cell to compare with"


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


@singledispatch
def comparisons_of(claim: BaseClaim, of: Selected) -> Iterator[Comparison]:
    """Yield what a claim comes down to in the cells that it selects."""
    raise NotImplementedError(type(claim).__name__)


for _of_one_kind in (
    agreement,
    crossings,
    differences,
    optima,
    optimum_laws,
    optimum_slopes,
    rank_correlations,
    slopes,
    steps,
    violations,
):
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
    if not whys:
        return comparison
    kept = {name: getattr(comparison, name) for name in ("estimate", "mcse", "lower", "upper", "claimed")}
    return undecided(comparison.statistic, whys[0])._replace(**kept)


def decide(comparisons: list[Comparison], level: float) -> Judgement:
    """Return the verdict that comparisons give at a level, and the comparison that decides it."""
    if not comparisons:
        return Judgement("undecided", NOTHING, undecided("", NOTHING_COMPARED), [], level)
    each = together([comparison.evidence for comparison in comparisons])
    evidence = every(each)
    if evidence.against < level:
        return Judgement("contradicted", evidence, comparisons[int(np.argmin(each.against))], comparisons, level)
    verdict = "supported" if evidence.in_favour < level else "undecided"
    return Judgement(verdict, evidence, comparisons[int(np.argmax(each.in_favour))], comparisons, level)


def holm(p_values: np.ndarray) -> np.ndarray:
    """Return Holm's step-down adjusted p-values (Holm 1979)."""
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.maximum.accumulate(np.minimum(p_values[order] * factors, 1.0))
    result = np.empty_like(adjusted)
    result[order] = adjusted
    return result


def judge(design: Design, accounts: Sequence[Account], told: Told) -> tuple[xr.Dataset, xr.Dataset]:
    """Return a verdict on every claim of the design, along ``claim``, and all comparisons, along ``comparison``.

    Also return what goes to the details: the pairs of cells of claims on orders.  What theories were ``told`` to say
    of cells is not evaluated again.
    """
    judgements, shown, behind, pairs = {}, {}, {}, []
    for name, claim in design.claims.items():
        positions, of = on_grid(claim, design, accounts, told)
        judgements[name] = judge_claim(claim, of, len(design.claims))
        inside = [accounts[i] for i in positions]
        behind[name] = _behind(claim, design, [inside[i] for i in of.chosen])
        shown[name] = standing(claim, judgements[name].comparisons, of, inside, told)
        pairs += [_pair_table(name, positions, c.ordered) for c in judgements[name].comparisons if c.ordered]
    if not judgements:
        return xr.Dataset(), xr.Dataset()
    verdicts = tabled(design.claims, judgements, shown, behind)
    return verdicts, xr.concat(pairs, "ordered") if pairs else xr.Dataset()


def tabled(
    claims: Mapping[str, BaseClaim],
    judgements: Mapping[str, Judgement],
    shown: Mapping[str, str] = MappingProxyType({}),
    draws: Mapping[str, str] = MappingProxyType({}),
) -> xr.Dataset:
    """Return verdicts and comparisons as labelled tables: which are ``shown``, and on what ``draws`` they rest."""
    verdicts, comparisons = [], []
    for name, judgement in judgements.items():
        claim, level = claims[name], judgement.level
        verdicts.append(
            _row(judgement.decisive, judgement.evidence, level, judgement.verdict != "undecided")
            | {
                "verdict": judgement.verdict,
                "expected_verdict": claim.expected,
                "statement": claim.words,
                "origin": claim.origin,
                "standing_statistic": shown.get(name, ""),
                "draws": draws.get(name, ""),
                "these_draws": claim.these_draws,
                "claimed_value": judgement.decisive.claimed,
                "comparisons": len(judgement.comparisons),
            }
        )
        against = holm(np.array([float(each.evidence.against) for each in judgement.comparisons]))
        for each, adjusted in zip(judgement.comparisons, against, strict=True):
            rows = [(each, "", each.evidence._replace(against=adjusted))]
            rows += [(part, each.statistic, part.evidence) for part in each.parts]
            for row, part_of, evidence in rows:
                decided = bool(min(row.evidence) < level)
                comparisons.append(_row(row, evidence, level, decided) | {"claim": name, "part_of": part_of})
    arrays = _columns("claim", "verdict_", verdicts) | _columns("comparison", "comparison_", comparisons)
    return labelled(arrays, {"claim": list(judgements), "comparison": np.arange(len(comparisons))}, {})


def _row(found: Comparison, evidence: Evidence, level: float, decided: bool) -> dict[str, Any]:
    """Numbers and words of a comparison; p-values are compared with LEVEL, whatever was divided among claims."""
    low, high = found.confidence(level)
    return {
        "statistic": found.statistic, "no_verdict_because": "" if decided else found.doubt,
        "estimate": found.estimate, "mcse": found.mcse, "mcse_given": found.given,
        "claimed_lower": found.lower, "claimed_upper": found.upper, "confidence_lower": low, "confidence_upper": high,
        **{f"p_{side}": float(min(p * LEVEL / level, 1.0)) for side, p in evidence._asdict().items()},
    }  # fmt: skip


def _columns(dimension: str, prefix: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns of the registered variables along a dimension, from rows that name them without prefix."""
    of = {name: variable for name, variable in VARIABLES.items() if variable.dims == (dimension,)}
    columns = {name: [row[name.removeprefix(prefix)] for row in rows] for name in of}
    return {name: np.array(each, object if of[name].unit == "text" else None) for name, each in columns.items()}


def _behind(claim: BaseClaim, design: Design, accounts: Sequence[Account]) -> str:
    """What a claim rests on, in words: what is a population and what is fixed, and how many replicates and draws."""
    replicates = f"{_range({each.done * each.batch_size for each in accounts})} replicates"
    draws = {each.done for each in accounts if each.planned.cell.population}
    in_draws = f" in {_range(draws)} draws" if draws else ""
    parts = draws_of(claim, design.cells).text, replicates + in_draws if accounts else ""
    return ", ".join(part for part in parts if part)


def _range(numbers: set[int]) -> str:
    return str(max(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def _pair_table(claim: str, positions: list[int], pairs: OrderedPairs) -> xr.Dataset:
    place = np.array(positions)
    columns = {
        "pair_claim": np.full(len(pairs.first), claim, object),
        "pair_first": place[pairs.first],
        "pair_second": place[pairs.second],
        "pair_estimate": pairs.estimate,
        "pair_mcse": pairs.mcse,
        "pair_p_against": pairs.evidence.against,
        "pair_p_in_favour": pairs.evidence.in_favour,
    }
    return labelled(columns, coords={}, attrs={})


def standing(
    claim: BaseClaim, found: Sequence[Comparison], of: Selected, accounts: Sequence[Account], told: Told
) -> str:
    """Return the statistic of the comparison that the claim names, or of least margin by theory; empty if neither.

    What decides a claim differs from run to run, by chance.  So what is shown of it is chosen before any run; where
    neither tells, readers take what decides the run.
    """
    if claim.stands is not None:
        cells = {i for i in of.chosen if selected(of.estimates.conditions[i], claim.stands)}
        if named := [each.statistic for each in found if cells & {*each.cells}]:
            return named[0]
    if len(found) < 2:
        return found[0].statistic if found else ""
    theories = list(predict([account.planned for account in accounts], told))
    exact, leading = (values_of(theories, source, claim.measure) for source in THEORIES)
    expected = dataclasses.replace(of.estimates, values=np.where(np.isfinite(exact), exact, leading))
    if not np.isfinite(expected.values[sorted({cell for each in found for cell in each.cells})]).all():
        return ""
    by_theory = list(comparisons_of(claim, of._replace(estimates=expected)))
    if [each.statistic for each in by_theory] != [each.statistic for each in found]:
        return ""
    margins = [min(each.estimate - each.lower, each.upper - each.estimate) for each in by_theory]
    return found[int(np.argmin(margins))].statistic if np.isfinite(margins).all() else ""


def wanted_by_claims(design: Design, told: Told, accounts: Sequence[Account]) -> list[int]:
    """Return the batches that bring the score of each open comparison to a verdict, in all its cells alike."""
    wanted = [account.target for account in accounts]
    by_precision = {each.planned.grid for each in accounts if each.planned.precision.stop == "precision"}
    for claim in (claim for claim in design.claims.values() if claim.grid not in by_precision):
        positions, of = on_grid(claim, design, accounts, told)
        judged = judge_claim(claim, of, len(design.claims))
        if judged.verdict == "undecided":
            for comparison in judged.comparisons:
                for cell, target in _targets(comparison, [accounts[i] for i in positions], judged.level):
                    wanted[positions[cell]] = max(wanted[positions[cell]], target)
    return wanted


def _targets(comparison: Comparison, accounts: Sequence[Account], level: float) -> Iterator[tuple[int, int]]:
    """Cells of a comparison with the batches that it wants of them; none if it is proven, or cannot be."""
    if comparison.evidence.in_favour < level or not comparison.cells:
        return
    cells = [accounts[cell] for cell in comparison.cells]
    done = max(each.done for each in cells)
    n_blocks = max(min(p.n_blocks if (p := each.performance) else 0 for each in cells), 1)
    p_value = min(float(comparison.evidence.in_favour), float(comparison.evidence.against))
    ratio = anytime_score(level, n_blocks) / anytime_score(p_value, n_blocks)
    further = max(math.ceil(done * ratio**2), done + 1)
    for cell, each in zip(comparison.cells, cells, strict=True):
        yield cell, min(further, batches_of(each.planned.precision.max_replicates, each.batch_size))
