"""Every comparison of every claim as text for people: what is estimated, what is claimed of it, and what is found."""

from __future__ import annotations

import math
from typing import NamedTuple

import xarray as xr

from simstudy.design.claims import LEVEL
from simstudy.report.labels import between, number, with_error
from simstudy.report.pictures import Found, Picture, picture
from simstudy.report.tables import comparison_frame, p_value_text


class ComparisonLine(NamedTuple):
    """One comparison; ``finding`` says where the truth lies with regard to what is claimed."""

    claim: str
    statistic: str
    estimate: str
    claimed: str
    confidence: str
    p_against: str
    p_in_favour: str
    finding: str
    picture: Picture | None


def comparison_lines(results: xr.Dataset) -> list[ComparisonLine]:
    """Return one line for each comparison, its parts after it; none if the design makes no claim."""
    lines = []
    for row in comparison_frame(results).itertuples():
        claimed, confidence = (row.claimed_lower, row.claimed_upper), (row.confidence_lower, row.confidence_upper)
        part = f"part of {row.part_of}" if row.part_of else ""
        lines.append(
            ComparisonLine(
                claim=row.claim,
                statistic=row.statistic,
                estimate=number(row.estimate) if math.isnan(row.mcse) else with_error(row.estimate, row.mcse),
                claimed=between(*claimed),
                confidence=between(*confidence, digits=6),
                p_against=p_value_text(row.p_against),
                p_in_favour=p_value_text(row.p_in_favour),
                finding=row.no_verdict_because or part or _finding(row.p_against, row.p_in_favour),
                picture=picture(claimed, [Found("", row.estimate, row.mcse, confidence)]),
            )
        )
    return lines


def _finding(p_against: float, p_in_favour: float) -> str:
    if p_against < LEVEL:
        return "outside"
    return "inside" if p_in_favour < LEVEL else "undecided"
