"""Results of each claim, and their picture: estimate and confidence interval in the interval claimed."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import xarray as xr

COVERAGE = 1.96
"""Half-width of an error bar in MCSE: a 95 % interval."""
ROOM, NARROWEST = 0.1, 0.008
"""Of the line of a picture: on either side of what is shown, and width of an interval claimed, if it is narrower."""
_NUMBERS = ("estimate", "mcse", "claimed_lower", "claimed_upper", "confidence_lower", "confidence_upper")


class Found(NamedTuple):
    """Estimate of one comparison with its MCSE, and the interval in which the truth lies."""

    estimate: float
    mcse: float
    confidence: tuple[float, float]


class Mark(NamedTuple):
    """Places from 0 to 1: the interval in which the truth lies, estimate ± 1.96 MCSE, and the estimate."""

    confidence: tuple[float, ...]
    error: tuple[float, ...]
    estimate: float


class Picture(NamedTuple):
    """Places from 0 to 1: the interval claimed, and the marks of comparisons with it."""

    claimed: tuple[float, float]
    marks: tuple[Mark | None, ...]


def picture(claimed: Sequence[float], found: Sequence[Found]) -> Picture | None:
    """Return the places of the interval claimed and of comparisons, on one line; None without any estimate."""
    shown = [each for each in found if math.isfinite(each.estimate)]
    ends = [end for each in shown for end in (each.estimate, *each.confidence)] + list(claimed)
    ends = [end for end in ends if math.isfinite(end)]
    if not shown or max(ends) == min(ends):
        return None
    low, width = min(ends), max(ends) - min(ends)

    def places(*values: float) -> tuple[float, ...]:
        return tuple(min(max(ROOM + (1 - 2 * ROOM) * (value - low) / width, 0.0), 1.0) for value in values)

    def mark(each: Found) -> Mark:
        reach = COVERAGE * each.mcse if math.isfinite(each.mcse) else 0.0
        around = places(each.estimate - reach, each.estimate + reach)
        return Mark(places(*each.confidence), around, *places(each.estimate))

    first, last = places(*claimed)
    room = max(NARROWEST - (last - first), 0.0) / 2
    return Picture((first - room, last + room), tuple(mark(each) if each in shown else None for each in found))


def claims_of(results: xr.Dataset) -> list[dict[str, Any]]:
    """Return the variables of each claim, with the numbers of the comparison that is shown of it; NaN without one.

    It is the one that the design names, or else the one that decides the claim.
    """
    compared: dict[tuple[str, str], dict[str, float]] = {}
    for row in _rows(results, "comparison"):
        numbers = {name: row[f"comparison_{name}"] for name in _NUMBERS}
        compared.setdefault((row["comparison_claim"], row["comparison_statistic"]), numbers)
    found = []
    for claim in _rows(results, "claim"):
        statistic = claim["standing_statistic"] or claim["statistic"]
        own = compared.get((claim["claim"], statistic), dict.fromkeys(_NUMBERS, math.nan))
        confidence = own["confidence_lower"], own["confidence_upper"]
        seen = Found(own["estimate"], own["mcse"], confidence)
        found.append(claim | own | {"statistic": statistic, "decisive": claim["statistic"], "found": seen})
    return found


def _rows(results: xr.Dataset, dimension: str) -> list[dict[str, Any]]:
    """The variables along a dimension, by columns: to take one entry of a data set copies its hundred variables."""
    columns = {str(name): each.values.tolist() for name, each in results.variables.items() if each.dims == (dimension,)}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
