"""Other random numbers for the same design, whose seeds follow from the design and a text."""

import hashlib
import json
from typing import Any

from simstudy.design.document import Confirmation, Design, PlannedCell
from simstudy.errors import UserError


def confirmatory(design: Design, text: str) -> Design:
    """Return a design whose seeds follow from its text, the functions that it names, and a text.

    All else stays.  Equal seeds stay equal, so cells with common random numbers keep them.
    """
    if not text.strip() or not text.isprintable():
        raise UserError(f"confirm = {text[:80]!r}: cannot be shown; give a text of printable characters in one line")
    pieces = (piece for planned in design.cells for _, piece in planned.cell.own)
    functions = sorted({piece.code.text for piece in pieces if piece.code is not None})
    digest = _digest(design.text, functions, text)

    def seed(stated: int) -> int:
        return int(_digest(digest, stated), 16) >> 1  # below 2⁶³, as every seed

    def reseeded(planned: PlannedCell) -> PlannedCell:
        simulation = planned.cell.simulation
        seeded = simulation.model_copy(update={"seed": seed(simulation.seed)})
        return planned.model_copy(update={"cell": planned.cell.model_copy(update={"simulation": seeded})})

    def selecting(record: Any) -> Any:
        stated = {name: getattr(record, name, None) or {} for name in ("where", "versus", "stands")}
        changed = {name: each | {"seed": seed(int(each["seed"]))} for name, each in stated.items() if "seed" in each}
        return record.model_copy(update=changed)

    changes = {
        "confirmation": Confirmation(text=text, digest=digest),
        "cells": tuple(map(reseeded, design.cells)),
        "claims": {name: selecting(claim) for name, claim in design.claims.items()},
        "figures": {name: selecting(figure) for name, figure in design.figures.items()},
    }
    return design.model_copy(update=changes)


def _digest(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
