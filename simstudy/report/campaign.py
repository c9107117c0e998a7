"""Verdicts at one level for all studies of a page together, beside those at the level of each study."""

from __future__ import annotations

from typing import NamedTuple

import xarray as xr

from simstudy.design.claims import LEVEL, OptimumLaw, OptimumSlope
from simstudy.design.document import Design

AT_ITS_OWN_LEVEL = (OptimumSlope, OptimumLaw)
"""Claims that spend a part of their level on which levels may be least: their p-values hold at no other level."""


class Campaign(NamedTuple):
    """How many studies share the level, and the verdicts that hold at it, by study and claim."""

    n_studies: int
    verdicts: dict[str, dict[str, str]]
    n_decided: int
    n_hold: int


def campaign(studies: list[tuple[xr.Dataset, Design]]) -> Campaign:
    """Judge the claims of several studies such that any of all verdicts is wrong with probability LEVEL at most.

    Each study is judged at LEVEL over the number of studies (Bonferroni). So the claims of one study do not weigh on
    those of another, and a study's level depends on how many there are, not on how many claims the others make. Holm's
    method gains nothing that is sure here: of every claim either "it holds" or "it fails" is true, so that no decision
    makes the number of true hypotheses smaller.
    """
    claiming = [(results, design) for results, design in studies if design.claims]
    verdicts: dict[str, dict[str, str]] = {design.study.name: {} for _, design in claiming}
    for results, design in claiming:
        for name, claim in design.claims.items():
            judged = results.sel(claim=name)
            smallest = min(float(judged.p_against), float(judged.p_in_favour))
            at_its_own = isinstance(claim, AT_ITS_OWN_LEVEL) and len(claiming) > 1
            holds = smallest * len(claiming) < LEVEL and not at_its_own
            verdicts[design.study.name][name] = str(judged.verdict.item()) if holds else "inconclusive"
    own = [each for results, _ in claiming for each in results.verdict.values if each != "inconclusive"]
    hold = [each for found in verdicts.values() for each in found.values() if each != "inconclusive"]
    return Campaign(len(claiming), verdicts, len(own), len(hold))
