"""Verdicts on the claims of a design: interval hypotheses, Monte Carlo error, any number of looks, multiplicity.

Every claim consists of comparisons: an estimate, its MCSE, and the interval that the claim states for the true value.
The MCSE of a comparison with exact theory includes the numerical error of the theory.
Each comparison has two p-values, valid at all looks together: one against the claim (the truth is outside the
interval) and one in favour (the truth is inside; two one-sided tests, Schuirmann 1987).  A claim is

- contradicted if a p-value against it is below the level, Bonferroni-corrected over its comparisons;
- supported if all p-values in favour are (an intersection-union test needs no correction: Berger 1982);
- undecided otherwise.

The level is LEVEL divided by the number of claims of the study (Bonferroni).  Comparisons of cells with common
replicates use the covariance of their estimates.

On a grid with a domain, a claim holds everywhere if it holds in every drawn setting; each setting is a comparison.  Or
it holds on average; then settings are the replicates, and the variance between them gives the error of their mean.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from simstudy.design.answerable import draws_of, selected
from simstudy.design.document import LEVEL, MIN_SETTINGS, BaseClaim, Design, OptimumSlope, ViolatedPairs
from simstudy.design.measures import VARIABLES, labelled
from simstudy.verdicts import comparisons as smooth
from simstudy.verdicts import optima, orderings
from simstudy.verdicts.comparisons import Comparison, Predictions, Selected, inside, undecided
from simstudy.verdicts.estimates import contrast_of, estimates_of
from simstudy.verdicts.evidence import NOTHING, Evidence, all_hold, anytime_score

if TYPE_CHECKING:
    from simstudy.execution.state import CellProgress
    from simstudy.verdicts.predictions import TheoryByCell

SIMULATED = 0.1
"""More replicates are requested if they cause a larger share of the squared error of a mean over a domain."""


def on_grid(
    claim: BaseClaim, design: Design, progress: Sequence[CellProgress], theory_by_cell: TheoryByCell
) -> tuple[list[int], Selected]:
    """Return the numbers of the cells of the grid of a claim, and its selected cells with estimates and theory."""
    positions = [i for i, each in enumerate(progress) if each.planned.grid == claim.grid]
    found = [progress[i] for i in positions]
    of = selected_by(claim, found, design.factors[claim.grid])._replace(drawn=tuple(design.grids[claim.grid].domain))
    if (source := getattr(claim, "source", None)) is not None:
        from simstudy.verdicts.predictions import predict, values_of

        theories = list(predict([each.planned for each in found], theory_by_cell))
        errors = np.array([float(theory[source].errors.get(claim.measure, 0.0)) for theory in theories])
        of = of._replace(theory=Predictions(values_of(theories, source, claim.measure), errors))
    return positions, of


def selected_by(claim: BaseClaim, progress: Sequence[CellProgress], factors: tuple[str, ...]) -> Selected:
    """Return the cells that a claim selects in its grid, without theory."""
    estimates = estimates_of(progress, claim.measure, claim.index)
    chosen = [i for i, coordinates in enumerate(estimates.conditions) if selected(coordinates, claim.where)]
    diversity = estimates_of(progress, "hdi", claim.against) if isinstance(claim, ViolatedPairs) else None
    return Selected(estimates, chosen, factors, diversity=diversity)


@singledispatch
def comparisons_of(claim: BaseClaim, of: Selected) -> Iterator[Comparison]:
    """Yield the comparisons of a claim in the cells that it selects."""
    raise NotImplementedError(type(claim).__name__)


for _of_one_kind in (
    smooth.agreement, smooth.differences, smooth.slopes, smooth.steps,
    optima.optima, optima.optimum_slopes, orderings.violations,
):  # fmt: skip
    comparisons_of.register(_of_one_kind)


def averaged(comparisons: Sequence[Comparison]) -> Iterator[Comparison]:
    """Yield the mean over settings of comparisons with one name, with the error from the variance between settings."""
    together = defaultdict[str, list[Comparison]](list)
    for each in comparisons:
        together[each.statistic].append(each)
    for statistic, found in together.items():
        values, n, first = np.array([each.estimate for each in found]), len(found), found[0]
        influence = (values - values.mean()) / np.sqrt(n * max(n - 1, 1))
        # Their number is fixed, so that n may be that of the tightest bounds; see `evidence.MIXTURE`.
        contrast = contrast_of(values.mean(), influence, 0.0, 16 * n, n - 1, unseen=n)._replace(fewest=MIN_SETTINGS)
        noise = sum(each.mcse**2 for each in found) / n**2
        # More replicates do not help if the variance between settings dominates.
        cells = [cell for each in found for cell in each.cells] if 0.0 < SIMULATED * contrast.mcse**2 < noise else ()
        text = f"mean over {n} settings of {statistic}"
        yield inside(text, contrast, (first.lower, first.upper), first.claimed, cells)


class Judgement(NamedTuple):
    """Verdict on one claim at a level, with all its comparisons and the one that decides it."""

    verdict: str
    evidence: Evidence
    decisive: Comparison
    comparisons: list[Comparison]
    level: float


def judge_claim(claim: BaseClaim, of: Selected, n_claims: int) -> Judgement:
    """Return the verdict on one of ``n_claims`` claims of a study, among which the level is divided."""
    level, on_average = LEVEL / n_claims, claim.holds == "on_average"
    of = of._replace(unnamed=of.drawn if on_average else ())
    comparisons = list(comparisons_of(claim, of._replace(level=level)))
    if len(comparisons) > 1 and isinstance(claim, OptimumSlope):
        # Comparisons share the part of the level that is spent on confidence sets of the least level.
        comparisons = list(comparisons_of(claim, of._replace(level=level / len(comparisons))))
    return decide(list(averaged(comparisons)) if on_average else comparisons, level)


def decide(comparisons: list[Comparison], level: float) -> Judgement:
    """Return the verdict of comparisons at a level, and the comparison that decides it."""
    if not comparisons:
        nothing = undecided("", "nothing to compare: no selected cell has both values, or a cell to compare with")
        return Judgement("undecided", NOTHING, nothing, [], level)
    each = Evidence(*(np.array(side) for side in zip(*(found.evidence for found in comparisons), strict=True)))
    if (evidence := all_hold(each)).against < level:
        return Judgement("contradicted", evidence, comparisons[int(np.argmin(each.against))], comparisons, level)
    verdict = "supported" if evidence.in_favour < level else "undecided"
    return Judgement(verdict, evidence, comparisons[int(np.argmax(each.in_favour))], comparisons, level)


def holm(p_values: np.ndarray) -> np.ndarray:
    """Return Holm's step-down adjusted p-values (Holm 1979)."""
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.maximum.accumulate(np.minimum(p_values[order] * factors, 1.0))
    return adjusted[np.argsort(order)]


def judge(design: Design, progress: Sequence[CellProgress], theory_by_cell: TheoryByCell) -> xr.Dataset:
    """Return a verdict on every claim of the design, along ``claim``, and all comparisons, along ``comparison``.

    Theory in ``theory_by_cell`` is not evaluated again.
    """
    judgements, about = {}, {}
    for name, claim in design.claims.items():
        positions, of = on_grid(claim, design, progress, theory_by_cell)
        judgements[name] = judge_claim(claim, of, len(design.claims))
        chosen = [progress[positions[i]] for i in of.chosen]
        replicates = f"{_range({each.done * each.batch_size for each in chosen})} replicates" if chosen else ""
        draws = {each.done for each in chosen if each.planned.cell.population}
        settings = design.grids[claim.grid].settings_of(claim.holds)
        replicates += f" in {_range(draws)} draws" if draws else ""
        about[name] = {"draws": ", ".join(filter(None, (settings, draws_of(claim, design.cells), replicates)))}
        if claim.stands is not None:
            cells = {i for i in of.chosen if selected(of.estimates.conditions[i], claim.stands)}
            shown = (each.statistic for each in judgements[name].comparisons if cells & {*each.cells})
            about[name]["representative_statistic"] = next(shown, "")
    return tabled(design.claims, judgements, about) if judgements else xr.Dataset()


def tabled(
    claims: Mapping[str, BaseClaim],
    judgements: Mapping[str, Judgement],
    about: Mapping[str, dict[str, str]] | None = None,
) -> xr.Dataset:
    """Return verdicts and comparisons as labelled tables; ``about`` has the draws on which each claim depends."""
    verdicts, comparisons = [], []
    for name, judgement in judgements.items():
        claim, level, decisive = claims[name], judgement.level, judgement.decisive
        row = _row(decisive, judgement.evidence, level, judgement.verdict != "undecided")
        row |= {field: getattr(claim, field) for field in ("statement", "origin", "these_draws")}
        row |= {"verdict": judgement.verdict, "expected_verdict": claim.expected, "claimed_value": decisive.claimed}
        row |= {"comparisons": len(judgement.comparisons), "representative_statistic": decisive.statistic, "draws": ""}
        verdicts.append(row | (about or {}).get(name, {}))
        against = holm(np.array([float(each.evidence.against) for each in judgement.comparisons]))
        for each, adjusted in zip(judgement.comparisons, against, strict=True):
            evidence = each.evidence._replace(against=adjusted)
            comparisons.append(_row(each, evidence, level, bool(min(evidence) < level)) | {"claim": name})
    arrays = _columns("claim", "verdict_", verdicts) | _columns("comparison", "comparison_", comparisons)
    return labelled(arrays, {"claim": list(judgements), "comparison": np.arange(len(comparisons))}, {})


def _row(found: Comparison, evidence: Evidence, level: float, decided: bool) -> dict[str, Any]:
    low, high = found.confidence(level)
    return {
        "statistic": found.statistic, "no_verdict_because": "" if decided else found.reason,
        "estimate": found.estimate, "mcse": found.mcse * found.widening,
        "claimed_lower": found.lower, "claimed_upper": found.upper, "confidence_lower": low, "confidence_upper": high,
        **{f"p_{side}": float(min(p * LEVEL / level, 1.0)) for side, p in evidence._asdict().items()},
    }  # fmt: skip


def _columns(dimension: str, prefix: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    of = {name: variable for name, variable in VARIABLES.items() if variable.dims == (dimension,)}
    columns = {name: [row[name.removeprefix(prefix)] for row in rows] for name in of}
    return {name: np.array(each, object if of[name].unit == "text" else None) for name, each in columns.items()}


def _range(numbers: set[int]) -> str:
    return str(max(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def wanted_by_claims(design: Design, theory_by_cell: TheoryByCell, progress: Sequence[CellProgress]) -> list[int]:
    """Return the number of batches of each cell at which undecided comparisons are expected to be decided."""
    wanted = [each.target for each in progress]
    by_precision = {each.planned.grid for each in progress if each.planned.precision.stop == "precision"}
    for claim in (claim for claim in design.claims.values() if claim.grid not in by_precision):
        positions, of = on_grid(claim, design, progress, theory_by_cell)
        judged = judge_claim(claim, of, len(design.claims))
        for comparison in judged.comparisons if judged.verdict == "undecided" else ():
            if comparison.evidence.in_favour < judged.level or not comparison.cells:
                continue
            places = [positions[cell] for cell in comparison.cells]
            cells = [progress[place] for place in places]
            done = max(each.done for each in cells)
            n_blocks = max(min(p.n_blocks if (p := each.performance) else 0 for each in cells), 1)
            ratio = anytime_score(judged.level, n_blocks) / anytime_score(float(min(comparison.evidence)), n_blocks)
            # Comparisons use the blocks that cells have in common: cells with fewer batches come first.
            further = done if min(each.done for each in cells) < done else max(math.ceil(done * ratio**2), done + 1)
            for place, each in zip(places, cells, strict=True):
                ceiling = -(-each.planned.precision.max_replicates // each.batch_size)
                wanted[place] = max(wanted[place], min(further, ceiling))
    return wanted
