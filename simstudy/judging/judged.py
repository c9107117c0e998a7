"""Verdicts on claims about a table of numbers: `simstudy.judge`, and what it returns."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from simstudy.design.claims import BaseClaim, ViolatedPairs
from simstudy.design.mistakes import validated
from simstudy.design.settings.levels import selected
from simstudy.judging.claims import Stated, read_claims, require_answerable
from simstudy.judging.table import Columns, Numbers, Table, numbers_of, table_of
from simstudy.report.labels import level_name
from simstudy.report.tables import VerdictLine, comparison_frame, count_verdicts, verdict_frame, verdict_lines
from simstudy.report.terminal import counted
from simstudy.verdicts.comparisons import Comparison, Selected
from simstudy.verdicts.judge import Judgement, judge_claim, tabled

_LEFT_OUT = [
    "origin", "standing_statistic", "verdict_draws", "these_draws",
]  # fmt: skip
NAMED = 6
"""Conditions that a summary names."""
MOST_TIMES = 2**14
"""Multiple of the units beyond which no number is named."""
HALVINGS = 6
"""Steps by which the multiple is found between two powers of 2."""


class Verdicts:
    """What `simstudy.judge` found: shown as a table by Python and by notebooks.

    Attributes
    ----------
    dataset : xarray.Dataset
        Verdicts along ``claim`` and comparisons along ``comparison``, each variable with its meaning.
    n_units, n_dropped : int
        Units that were judged, and those left out of a comparison as they lack a number of it.
    factors : tuple of str
        What tells conditions apart.
    independent : str
        What is independent of one another: "unit" or "cluster".
    """

    def __init__(self, dataset: xr.Dataset, table: Table, found: Sequence[Numbers]) -> None:
        self._used = np.any([each.used for each in found], axis=0)
        self._missing = np.any([each.missing for each in found], axis=0)
        self.dataset, self.n_units, self.n_dropped = dataset, int(self._used.sum()), int(self._missing.any(1).sum())
        self.factors, self.independent, self._table = table.factors, table.independent, table

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each claim, by its name: verdict, estimate, error, intervals, p-values, further units."""
        frame = verdict_frame(self.dataset).set_index("claim").drop(columns=_LEFT_OUT)
        frame.columns = [name.removeprefix("verdict_") for name in frame.columns]
        return frame.assign(further_units=self.dataset.further_units.values)

    def comparisons(self) -> pd.DataFrame:
        """Return one row for each comparison of each claim."""
        return comparison_frame(self.dataset)

    @property
    def lines(self) -> list[VerdictLine]:
        """Verdicts as text, rounded to what their errors allow."""
        return verdict_lines(self.dataset)

    @property
    def summary(self) -> list[str]:
        """How many units and conditions there are, and how many claims got which verdict."""
        size, table = counted(self.n_units, "unit"), self._table
        if self.independent != "unit":
            size += f" in {counted(len(np.unique(table.clusters[self._used])), self.independent)}"
        size += f", {counted(len(conditions := table.conditions), 'condition')}"
        # A column of numbers that should be no condition shows.
        if len(conditions) <= NAMED and len(conditions[0]) == 1:
            size += f" ({', '.join(level_name(level) for each in conditions for level in each.values())})"
        if self.n_dropped:
            lacking = self._missing.sum(axis=0)
            most = f"{lacking.max():,} under {table.at(int(lacking.argmax()))}"
            size += f", {counted(self.n_dropped, 'unit')} left out of comparisons for lack of a number ({most})"
        return [size, count_verdicts(self.lines)]

    @property
    def wanted(self) -> list[str]:
        """How many units more, to two digits, would probably decide each claim that is open, in a line each."""
        lines, found = [], self.dataset
        for units, claim in zip(found.further_units.values.tolist(), found.claim.values, strict=True):
            if not units > 0.0:  # decided, or nobody can tell
                continue
            step = 1 if math.isinf(units) else 10 ** max(math.floor(math.log10(units)) - 1, 0)
            count = "no number of" if math.isinf(units) else f"about {math.ceil(units / step) * step:,}"
            by = found.further_comparison.sel(claim=claim).item()
            lines.append(f"{claim}: {count} units more would probably decide{by and f', by {by}'}")
        return lines

    def brief(self) -> pd.DataFrame:
        """Return the verdicts as text."""
        columns = {"claim": "claim", "verdict": "verdict", "expected": "expected", "statistic": "statistic",
                   "estimate": "estimate ± standard error", "claimed": "claimed",
                   "confidence": "truth within"}  # fmt: skip
        rows = [{words: getattr(line, name) for name, words in columns.items()} for line in self.lines]
        return pd.DataFrame(rows).set_index("claim")

    def __repr__(self) -> str:
        return "\n".join([*self.summary, self.brief().to_string(), *self.wanted])

    def _repr_html_(self) -> str:
        return f"<p>{'<br>'.join(map(escape, [*self.summary, *self.wanted]))}</p>{self.brief().to_html()}"


def judge(
    numbers: Any,
    claims: Mapping[str, Any] | str | Path,
    *,
    unit: str | None = None,
    value: str | None = None,
    factors: tuple[str, ...] | list[str] | None = None,
    cluster: str | None = None,
    missing: Literal["refuse", "drop"] | None = None,
) -> Verdicts:
    """Judge claims on numbers of your own: one for each unit (replicate, task, seed, question) and condition.

    Conditions are compared unit by unit.  Each claim is supported, contradicted or undecided; that any of them is
    wrong has probability 5 % at most, also if you add units and judge again, as often as you like.

    Parameters
    ----------
    numbers : pandas.DataFrame, xarray.DataArray, mapping or Estimates
        A frame with a row for each unit and a column for each condition, the levels of its columns being factors; or,
        if ``value`` is given, with a row for each unit and condition.  An array with a dimension of units.  Arrays by
        the name of the condition.  Or estimates that are no means, with what units contribute to their errors:
        `simstudy.verdicts.estimates.Estimates`.
    claims
        Claims by name, each with its ``kind`` and entries as in designs, without ``grid``
        and ``measure``; or a file or text of TOML with tables ``[claims.NAME]``, or a `simstudy.Study` with claims.
    unit
        Column or dimension of units; by default rows are units, and the first dimension is.
    value
        Column of numbers, in a frame with a row for each unit and condition.
    factors
        Columns that tell conditions apart in such a frame; by default all others.
    cluster
        Column, level or coordinate with equal names for units that are not independent of one another.
    missing
        "refuse", the default, or "drop": what to do with a unit that lacks a number.

    Returns
    -------
    Verdicts
        A table, with ``to_dataframe()``, ``comparisons()`` and ``dataset``.

    Raises
    ------
    DesignError
        With every mistake in the claims.
    UserError
        If the numbers are no such table, or some are missing or infinite.
    """
    stated = read_claims(claims)
    given = {"unit": unit, "value": value, "factors": factors, "cluster": cluster, "missing": missing}
    return judged(numbers, stated, {name: each for name, each in given.items() if each is not None})


def judged(numbers: Any, stated: Stated, given: Mapping[str, Any]) -> Verdicts:
    """Return verdicts on claims as stated; what is given of columns goes before what is stated."""
    columns = validated(Columns, stated.columns.model_dump() | dict(given), place="judge")
    table = table_of(numbers, columns)
    compared = require_answerable(stated, table.conditions, table.factors)
    found = {name: numbers_of(table, groups) for name, groups in compared.items()}
    n_claims = len(stated.claims)
    judgements = {name: judgement_of(claim, found[name], n_claims) for name, claim in stated.claims.items()}
    worded = {name: _worded(each, table.independent) for name, each in judgements.items()}
    further = [_further(claim, found[name], judgements[name], n_claims) for name, claim in stated.claims.items()]
    meaning = "units more that would probably decide the claim, were all means as estimated; 0 if it is decided"
    meaning += ", NaN if its errors are too uncertain to tell"
    further_columns: dict[str, Any] = {
        "further_units": ("claim", [np.ceil(units) for units, _ in further], {"long_name": meaning, "units": "1"}),
        "further_comparison": ("claim", [by for _, by in further], {"long_name": "by which other comparison"}),
    }
    return Verdicts(tabled(stated.claims, worded).assign(further_columns), table, list(found.values()))


def judgement_of(claim: BaseClaim, numbers: Numbers, n_claims: int) -> Judgement:
    """Return the verdict on one of so many claims, by the engine that judges designs."""
    estimates = numbers.estimates
    chosen = [i for i, levels in enumerate(estimates.conditions) if selected(levels, claim.where)]
    diversity = None
    if isinstance(claim, ViolatedPairs):  # the levels of a factor, as estimates without error
        values = np.array([float(levels[claim.against]) for levels in estimates.conditions])
        nothing, none = [np.zeros_like(each) for each in estimates.contributions], np.zeros(len(values))
        without: dict[str, Any] = {"contributions": nothing, "remainders": none, "trials": none + np.inf}
        diversity = dataclasses.replace(estimates, values=values, **without)
    return judge_claim(claim, Selected(estimates, chosen, numbers.factors, diversity=diversity), n_claims)


def _further(claim: BaseClaim, numbers: Numbers, now: Judgement, n_claims: int) -> tuple[float, str]:
    """Units more that probably decide a claim, infinite beyond `MOST_TIMES`, and by which comparison if by another.

    Where few units hold much of the squared error, none knows how large it will be: NaN.
    """
    if now.verdict != "undecided":
        return 0.0, ""
    # Of units that are all alike it is known what more of them would say.
    if any(each.doubt and not each.doubt.startswith("all ") for each in [now.decisive, *now.comparisons]):
        return math.nan, ""

    def then(times: float) -> Judgement:
        return judgement_of(claim, numbers._replace(estimates=numbers.estimates.repeated(times)), n_claims)

    high = 2.0
    while then(high).verdict == "undecided":
        high *= 2.0
        if high > MOST_TIMES:
            return math.inf, ""
    low = high / 2.0
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if then(middle).verdict == "undecided" else (low, middle)
    by = then(high).decisive.statistic
    return float(numbers.used.sum() * (high - 1.0)), by if by != now.decisive.statistic else ""


def _worded(judgement: Judgement, independent: str) -> Judgement:
    """The judgement with reasons that speak of units or clusters, which the engine calls blocks."""
    bounds = sum(math.isfinite(end) for each in judgement.comparisons for end in (each.lower, each.upper))

    def worded(each: Comparison) -> Comparison:
        doubt = each.doubt.replace("blocks of replicates or draws", f"{independent}s").replace("block", independent)
        low, high = each.confidence(judgement.level)
        if not doubt and bounds > 1 and (low > each.upper or high < each.lower):
            doubt = f"outside, but what contradicts is corrected for {bounds} bounds"
        return each._replace(doubt=doubt)

    decisive, comparisons = worded(judgement.decisive), list(map(worded, judgement.comparisons))
    return judgement._replace(decisive=decisive, comparisons=comparisons)
