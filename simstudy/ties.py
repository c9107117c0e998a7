"""Comparison of all pairs of conditions on the same units: differences, and sets without a significant one."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from simstudy.design.document import LEVEL
from simstudy.design.settings.records import validated
from simstudy.errors import UserError
from simstudy.judging.table import Columns, numbers_of, table_of
from simstudy.report.terminal import counted
from simstudy.verdicts.evidence import p_above, p_below, why_no_verdict
from simstudy.verdicts.judge import holm

MOST = 200  # largest number of conditions


class Ties(NamedTuple):
    """Comparison of all pairs of conditions: differences, and sets within which no difference is significant."""

    conditions: pd.DataFrame
    """By mean, the largest first: levels of factors, ``mean``, ``error`` and the numbers of its ``sets``.

    Two conditions share a set if their difference is not significant.
    """
    pairs: pd.DataFrame
    """Rows ``first`` and ``second`` of conditions, from 0; ``difference``, ``error`` and adjusted p-value ``p``."""
    note: str
    """Meaning of the sets, and bound on the error rate."""

    def __repr__(self) -> str:
        return f"{self.conditions.to_string(index=False)}\n{self.note}"


def tied_sets(numbers: Any, **columns: Any) -> Ties:
    """Return the sets of conditions within which no means differ significantly, among all pairs.

    The probability that any two equal means are found different is at most 5 % (family-wise error rate; Holm 1979).

    Parameters
    ----------
    numbers
        As for `simstudy.judge`: a number for each unit and condition.
    **columns
        ``unit``, ``value``, ``factors``, ``cluster``, ``missing`` and ``looks``, as for `simstudy.judge`.

    Returns
    -------
    Ties
        Data frames ``conditions``, with the tied sets of each, and ``pairs``.

    Raises
    ------
    UserError
        If the numbers are not such a table, some are missing or infinite, or there are not 2 to 200 conditions.
    """
    given = {name: each for name, each in columns.items() if each is not None}
    table = table_of(numbers, validated(Columns, given, place="tied_sets"))
    if not 2 <= (n := len(table.conditions)) <= MOST:
        raise UserError(f"numbers: {counted(n, 'condition')}; give 2 to {MOST}, or state claims for simstudy.judge")
    estimates = numbers_of(table._replace(one_look=table.one_look / (n * (n - 1)))).estimates  # Holm's first level
    order = np.argsort(-estimates.values, kind="stable").tolist()
    between = estimates.differences(order)
    first, second = np.triu_indices(n, 1)
    p = holm(np.minimum(2.0 * np.minimum(p_above(between, 0.0), p_below(between, 0.0))[first, second], 1.0))
    doubtful = [why_no_verdict(between.at(i, j)) for i, j in zip(first.tolist(), second.tolist(), strict=True)]
    # The largest sets without two members that differ, as bits (Piepho 2004), in the order of their first members.
    sets = {(1 << n) - 1}
    for i, j in zip(first[p < LEVEL].tolist(), second[p < LEVEL].tolist(), strict=True):
        sets -= (split := {each for each in sets if each >> i & 1 and each >> j & 1})
        parts = {each & ~(1 << k) for each in split for k in (i, j)}
        sets |= {part for part in parts if not any(part & each == part for each in sets | parts if each != part)}
    found = sorted(sets, key=lambda each: f"{each:0{n}b}"[::-1], reverse=True)
    members = [" ".join(str(k) for k, each in enumerate(found, 1) if each >> i & 1) for i in range(n)]
    conditions = pd.DataFrame([table.conditions[j] for j in order])
    errors = np.where(estimates.n_blocks[order] > 1, [estimates.combine({j: 1.0}).mcse for j in order], np.nan)
    conditions = conditions.assign(mean=estimates.values[order], error=errors, sets=members)
    pairs = pd.DataFrame({"first": first, "second": second, "difference": between.value[first, second], "p": p})
    pairs.insert(3, "error", np.where(between.n_blocks > 1, between.mcse, np.nan)[first, second])
    note = f"Conditions that share a set are not shown to differ; {counted(len(p), 'pair')}, "
    note += f"{counted(len(sets), 'set')}. The probability that any two equal means are found different is "
    note += f"at most {100 * LEVEL:g} %, {'at one look' if table.one_look else 'at any number of looks'} (Holm)."
    if table.one_look and any(doubtful):
        note += f" In {counted(sum(map(bool, doubtful)), 'pair')} units are too few or too skewed for Student's t."
    return Ties(conditions, pairs, note)
