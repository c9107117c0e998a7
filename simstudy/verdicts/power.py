"""Whether a claim on a formula can tell it from what it denies: before any run."""

from __future__ import annotations

from collections.abc import Iterator

from simstudy.design.claims import Equals, OptimumSlope, Slope
from simstudy.design.document import Design
from simstudy.verdicts.claimed import claimed


def powerless(design: Design) -> Iterator[str]:
    """Yield the claims on formulas that name no alternative, or whose margin reaches the one that they name."""
    for name, claim in design.claims.items():
        if not isinstance(claim, Equals | Slope | OptimumSlope):
            continue
        place, value, alternative = f"claims.{name}", claim.value, claim.excludes
        if alternative is None:
            if not isinstance(value, float | None):
                yield f"{place}: rests on a formula; state in excludes what would be found if it were wrong"
        elif value is None:
            yield f"{place}.excludes = {claimed(alternative):g}: the value follows from theory in the cells; remove it"
        elif (distance := abs(claimed(alternative) - claimed(value))) <= claim.margin:
            told = f"margin = {claim.margin:g} reaches the alternative {claimed(alternative):g}"
            yield f"{place}: {told}, {distance:.3g} from {claimed(value):g}: no verdict could tell them apart; lower it"
