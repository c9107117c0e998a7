"""Which comparison stands for a claim in all its runs: the one that theory says is nearest to its bounds.

What decides a claim differs from run to run, by chance.  So what is shown of it is chosen before any run, by the design
or else by theory; where neither tells, readers take what decides the pilot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from simstudy.design.claims import BaseClaim
from simstudy.design.measures import THEORIES
from simstudy.design.settings.levels import selected
from simstudy.execution.account import Account
from simstudy.verdicts.comparisons import Comparison, Selected
from simstudy.verdicts.engine import comparisons_of
from simstudy.verdicts.predictions import Told, predict, values_of


def standing(
    claim: BaseClaim, found: Sequence[Comparison], of: Selected, accounts: Sequence[Account], told: Told
) -> str:
    """Return the statistic of the comparison that the claim names, or of least margin by theory; empty if neither."""
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
