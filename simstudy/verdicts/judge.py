"""The verdicts of a study as labelled tables: claims, their comparisons, and the pairs of cells of claims on orders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from simstudy.design.claims import LEVEL, BaseClaim
from simstudy.design.document import Design
from simstudy.design.generality import draws_of
from simstudy.design.measures import VARIABLES, labelled
from simstudy.execution.account import Account
from simstudy.verdicts.comparisons import Comparison, OrderedPairs
from simstudy.verdicts.engine import Judgement, holm, judge_claim
from simstudy.verdicts.measured import on_grid
from simstudy.verdicts.predictions import Told
from simstudy.verdicts.standing import standing


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
