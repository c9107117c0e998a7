"""Whether a claim can be told from what it denies: before any run."""

from collections.abc import Iterator

import numpy as np

from simstudy.design.claims import AgreesWithTheory, Equals, LargerThan, OptimumSlope, Slope
from simstudy.design.document import Design
from simstudy.design.own_code import own_pieces
from simstudy.design.settings.levels import selected
from simstudy.verdicts.comparisons import claimed
from simstudy.verdicts.predictions import predict, values_of

_APART = "no verdict could tell them apart; lower it"


def powerless(design: Design) -> Iterator[str]:
    """Yield the claims on formulas that name no alternative, or that hold for the one that they or theory name."""
    for name, claim in design.claims.items():
        place = f"claims.{name}"
        if isinstance(claim, AgreesWithTheory):
            yield from _of_theory(place, claim, design)
        if isinstance(claim, AgreesWithTheory | Equals | LargerThan | Slope | OptimumSlope):
            yield from _of_alternative(place, claim)


def _of_alternative(place: str, claim: AgreesWithTheory | Equals | LargerThan | Slope | OptimumSlope) -> Iterator[str]:
    value = 1.0 if isinstance(claim, AgreesWithTheory) else claim.value
    if claim.excludes is None:
        if not isinstance(value, float | None):
            yield f"{place}: rests on a formula; state in excludes what would be found if it were wrong"
        return
    alternative = claimed(claim.excludes)
    if value is None:
        yield f"{place}.excludes = {alternative:g}: the value follows from theory in the cells; remove it"
    elif isinstance(claim, LargerThan):
        if alternative >= claimed(value):
            yield f"{place}.excludes = {alternative:g}: is not below value = {claimed(value):g}; {_APART}"
    elif (distance := abs(alternative - claimed(value))) <= claim.margin:
        told = f"margin = {claim.margin:g} reaches the alternative {alternative:g}"
        yield f"{place}: {told}, {distance:.3g} from {claimed(value):g}: {_APART}"


def _of_theory(place: str, claim: AgreesWithTheory, design: Design) -> Iterator[str]:
    """Yield how far the other theory is from the one claimed, if that makes the claim empty, or false."""
    cells = [each for each in design.cells if each.grid == claim.grid and selected(each.cell.coordinates, claim.where)]
    if not all(each.exact for each in cells) or any(piece for each in cells for piece in own_pieces(each.cell)):
        return
    # Leading order takes no time: without it there is nothing to compare, and exact theory may take long.
    leading = values_of(predict([each.model_copy(update={"exact": False}) for each in cells]), "leading", claim.measure)
    known = np.isfinite(leading)
    if not (known.all() if claim.source == "exact" else known.any()):
        return
    asked = [each for each, finite in zip(cells, known, strict=True) if finite]
    exact = values_of(predict(asked), "exact", claim.measure)
    told = {"exact": exact, "leading": leading[known]}
    ratios = told["leading" if claim.source == "exact" else "exact"] / told[claim.source]
    gap = float(np.max(np.abs(ratios - 1.0)))
    if claim.source == "exact" and gap <= claim.margin:
        yield f"{place}: margin = {claim.margin:g} reaches leading order, at most {gap:.2g} from exact theory: {_APART}"
    if claim.source == "leading" and gap > claim.margin and claim.expected == "supported":
        beyond = f"beyond margin = {claim.margin:g}; raise n_keys"
        yield f"{place}: exact theory is up to {gap:.2g} from leading order, {beyond}"
