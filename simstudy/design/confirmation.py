"""The design of a confirmatory run: the same cells and claims on seeds that nobody could have run before."""

from __future__ import annotations

import hashlib
import json
from typing import TypeVar

from simstudy.design.document import Confirmation, Design, PlannedCell
from simstudy.design.settings.records import Record

_Selecting = TypeVar("_Selecting", bound=Record)


def confirmatory_seed(seed: int, confirmation: Confirmation) -> int:
    """Return what stands in the place of a seed: a digest in [0, 2⁶³); equal seeds stay equal, so cells stay paired."""
    content = json.dumps([confirmation.seal, confirmation.beacon, seed]).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> 1


def confirmatory(design: Design, confirmation: Confirmation) -> Design:
    """Return a design with seeds that follow from its seal and a beacon; all else is as it was."""
    changed = {
        "confirmation": confirmation,
        "cells": tuple(_reseeded(planned, confirmation) for planned in design.cells),
        "claims": {name: _selecting(claim, confirmation) for name, claim in design.claims.items()},
        "figures": {name: _selecting(figure, confirmation) for name, figure in design.figures.items()},
    }
    return design.model_copy(update=changed)


def _reseeded(planned: PlannedCell, confirmation: Confirmation) -> PlannedCell:
    simulation = planned.cell.simulation
    seeded = simulation.model_copy(update={"seed": confirmatory_seed(simulation.seed, confirmation)})
    return planned.model_copy(update={"cell": planned.cell.model_copy(update={"simulation": seeded})})


def _selecting(record: _Selecting, confirmation: Confirmation) -> _Selecting:
    """Return a claim or figure that selects, where it selects by seed, the cells that took the place of its own."""
    selections = {name: getattr(record, name, None) or {} for name in ("where", "versus", "stands")}
    seeds = {name: confirmatory_seed(each["seed"], confirmation) for name, each in selections.items() if "seed" in each}
    return record.model_copy(update={name: selections[name] | {"seed": seed} for name, seed in seeds.items()})
