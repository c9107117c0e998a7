"""The verdicts of a study as labelled tables: claims, their comparisons, and the pairs of cells of claims on orders.

Also which comparison stands for a claim, and how many batches the claims that are still open want of each cell.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from simstudy.design.claims import LEVEL, BaseClaim
from simstudy.design.document import Design
from simstudy.design.feasibility import batches_of
from simstudy.design.measures import THEORIES, VARIABLES, labelled
from simstudy.design.rules import draws_of
from simstudy.design.settings.levels import selected
from simstudy.execution.account import Account
from simstudy.replicates.performance import lowest
from simstudy.verdicts.comparisons import Comparison, OrderedPairs, Selected
from simstudy.verdicts.engine import Judgement, comparisons_of, holm, judge_claim
from simstudy.verdicts.evidence import anytime_score
from simstudy.verdicts.measured import on_grid
from simstudy.verdicts.predictions import Told, predict, values_of


class Judged(NamedTuple):
    """Verdicts and their comparisons, and what goes to the details: the pairs of cells of claims on orders."""

    verdicts: xr.Dataset
    pairs: xr.Dataset


def judge(design: Design, accounts: Sequence[Account], told: Told) -> Judged:
    """Return a verdict on every claim of the design, along ``claim``, and all comparisons, along ``comparison``.

    What theories were ``told`` to say of cells is not evaluated again.
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
        return Judged(xr.Dataset(), xr.Dataset())
    verdicts = tabled(design.claims, judgements, shown, behind)
    return Judged(verdicts, xr.concat(pairs, "ordered") if pairs else xr.Dataset())


def tabled(
    claims: Mapping[str, BaseClaim],
    judgements: Mapping[str, Judgement],
    shown: Mapping[str, str] = MappingProxyType({}),
    draws: Mapping[str, str] = MappingProxyType({}),
) -> xr.Dataset:
    """Return verdicts and comparisons as labelled tables: which are ``shown``, and on what ``draws`` they rest."""
    rows = []
    for name, judgement in judgements.items():
        claim = claims[name]
        numbers = _numbers(judgement.decisive, judgement.level)
        rows.append({
            "verdict": judgement.verdict,
            "declared_verdict": claim.expected,
            "statement": claim.words,
            "origin": claim.origin,
            "statistic": judgement.decisive.statistic,
            "standing_statistic": shown.get(name, ""),
            "no_verdict_because": judgement.decisive.doubt if judgement.verdict == "inconclusive" else "",
            **{f"verdict_{part}": numbers.pop(part) for part in ("estimate", "mcse", "mcse_given")},
            "verdict_draws": draws.get(name, ""),
            "these_draws": claim.these_draws,
            "claimed_value": judgement.decisive.claimed,
            **numbers,
            "p_against": _adjusted(judgement.evidence.against, judgement.level),
            "p_in_favour": _adjusted(judgement.evidence.in_favour, judgement.level),
            "verdict_comparisons": len(judgement.comparisons),
        })  # fmt: skip
    columns = {part: [row[part] for row in rows] for part in rows[0]}
    verdicts = labelled(columns, coords={"claim": list(judgements)}, attrs={})
    return xr.merge([verdicts, _comparison_table(judgements)], combine_attrs="override")


def _behind(claim: BaseClaim, design: Design, accounts: Sequence[Account]) -> str:
    """What a claim rests on, in words: what is a population and what is fixed, and how many replicates and draws."""
    instances = [each.planned.cell.instance for each in accounts]
    texts = {count for each in instances if (count := getattr(each, "texts", None))}
    of_texts = f" of {_range(texts)} random texts each" if texts else ""
    replicates = f"{_range({each.done * each.batch_size for each in accounts})} replicates{of_texts}"
    draws = {each.done for each in accounts if each.planned.cell.population}
    in_draws = f" in {_range(draws)} draws" if draws else ""
    parts = draws_of(claim, design.cells).text, replicates + in_draws if accounts else ""
    return ", ".join(part for part in parts if part)


def _range(numbers: set[int]) -> str:
    return str(max(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def _comparison_table(judgements: Mapping[str, Judgement]) -> xr.Dataset:
    """All comparisons of all claims along ``comparison``; after each the parts of which it is made."""
    rows = [row for name, judgement in judgements.items() for row in _comparison_rows(name, judgement)]
    arrays = {}
    for name in (name for name, variable in VARIABLES.items() if variable.dims == ("comparison",)):
        column = [row[name.removeprefix("comparison_")] for row in rows]
        arrays[name] = np.array(column, object if VARIABLES[name].unit == "text" else float)
    return labelled(arrays, coords={"comparison": np.arange(len(rows))}, attrs={})


def _comparison_rows(claim: str, judgement: Judgement) -> Iterable[dict[str, Any]]:
    against = holm(np.array([float(each.evidence.against) for each in judgement.comparisons]))
    for each, adjusted in zip(judgement.comparisons, against, strict=True):
        for row, p_against in ((each, adjusted), *((part, float(part.evidence.against)) for part in each.parts)):
            yield _numbers(row, judgement.level) | {
                "claim": claim,
                "statistic": row.statistic,
                "part_of": "" if row is each else each.statistic,
                "p_against": _adjusted(p_against, judgement.level),
                "p_in_favour": _adjusted(row.evidence.in_favour, judgement.level),
                "no_verdict_because": "" if min(row.evidence) < judgement.level else row.doubt,
            }


def _numbers(comparison: Comparison, level: float) -> dict[str, float]:
    low, high = comparison.confidence(level)
    return {
        "estimate": comparison.estimate, "mcse": comparison.mcse, "mcse_given": comparison.given,
        "claimed_lower": comparison.lower, "claimed_upper": comparison.upper,
        "confidence_lower": low, "confidence_upper": high,
    }  # fmt: skip


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


def _adjusted(p_value: Any, level: float) -> float:
    """p-value to be compared with LEVEL: corrected for the number of claims among which that is divided."""
    return float(min(p_value * LEVEL / level, 1.0))


def standing(
    claim: BaseClaim, found: Sequence[Comparison], of: Selected, accounts: Sequence[Account], told: Told
) -> str:
    """Return the statistic of the comparison that the claim names, or of least margin by theory; empty if neither.

    What decides a claim differs from run to run, by chance.  So what is shown of it is chosen before any run; where
    neither tells, readers take what decides the pilot.
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
        if judged.verdict == "inconclusive":
            for comparison in judged.comparisons:
                if comparison.cells and _lowered_no_more(claim, [accounts[positions[i]] for i in comparison.cells]):
                    continue
                for cell, target in _targets(comparison, [accounts[i] for i in positions], judged.level):
                    wanted[positions[cell]] = max(wanted[positions[cell]], target)
    return wanted


def _lowered_no_more(claim: BaseClaim, accounts: Sequence[Account]) -> bool:
    """Whether more replicates hardly lower the error of a comparison, as most of it is that of nets."""
    # What nets do to several cells alike cancels in their comparison.
    if len(accounts) > 1 or claim.index is not None or (found := accounts[0].performance) is None:
        return False
    # Without any error a rare exception may be unseen, which further replicates make less likely.
    return bool(0.0 < found.mcse.get(claim.measure, np.inf) <= lowest(found, claim.measure))


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
