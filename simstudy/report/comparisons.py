"""Every comparison of every claim as text for people: what is estimated, what is claimed of it, and what is found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import xarray as xr

from simstudy.design.claims import LEVEL
from simstudy.report.labels import between, number, with_error
from simstudy.report.pictures import Found, Picture, picture
from simstudy.report.tables import comparison_frame, p_value_text


def comparison_lines(results: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    """Return, by claim, one line for each comparison, its parts after it; those of one interval claimed on one axis."""
    rows = list(comparison_frame(results).itertuples())
    drawn = _drawn(rows)
    lines: dict[str, list[dict[str, Any]]] = {}
    for i, row in enumerate(rows):
        claimed, confidence = (row.claimed_lower, row.claimed_upper), (row.confidence_lower, row.confidence_upper)
        part = f"part of {row.part_of}" if row.part_of else ""
        side = "outside" if row.p_against < LEVEL else "inside" if row.p_in_favour < LEVEL else "undecided"
        lines.setdefault(row.claim, []).append(
            {
                "statistic": row.statistic,
                "estimate": number(row.estimate) if math.isnan(row.mcse) else with_error(row.estimate, row.mcse),
                "claimed": between(*claimed),
                "confidence": between(*confidence, row.mcse),
                "p_against": p_value_text(row.p_against),
                "p_in_favour": p_value_text(row.p_in_favour),
                "finding": row.no_verdict_because or part or side,
                "picture": drawn.get(i),
            }
        )
    return lines


def _drawn(rows: Sequence[Any]) -> dict[int, Picture]:
    """Pictures by the number of the row, with one mark each."""
    axes: dict[Any, list[int]] = {}
    for i, row in enumerate(rows):
        axes.setdefault((row.claim, row.claimed_lower, row.claimed_upper), []).append(i)
    found: dict[int, Picture] = {}
    for (_, *claimed), numbers in axes.items():
        marks = [
            Found("", r.estimate, r.mcse, (r.confidence_lower, r.confidence_upper))
            for r in map(rows.__getitem__, numbers)
        ]
        if shared := picture((claimed[0], claimed[1]), marks):
            found |= {i: shared._replace(marks=(mark,)) for i, mark in zip(numbers, shared.marks, strict=True)}
    return found
