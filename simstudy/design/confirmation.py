"""The design of a confirmatory run: the same cells and claims on seeds that nobody could have run before."""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeVar

from simstudy.design.document import Confirmation, Design, PlannedCell
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.records import Record

_Selecting = TypeVar("_Selecting", bound=Record)


def confirmatory_seed(seed: int, confirmation: Confirmation) -> int:
    """Return what stands in the place of a seed of the design: a number in [0, 2⁶³), a digest of seal, beacon and seed.

    Equal seeds stay equal, so cells that were paired are; all random numbers are addressed under the seed, so none of
    keys, noise, query points, heads, learners and instances is one of the pilot's.
    """
    content = json.dumps([confirmation.seal, confirmation.beacon, seed]).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> 1


def confirmatory(design: Design, confirmation: Confirmation) -> Design:
    """Return a design with seeds that follow from its seal and a beacon; all else is as it was."""
    seeds = {
        seed: confirmatory_seed(seed, confirmation)
        for seed in {planned.cell.simulation.seed for planned in design.cells}
    }
    return design.model_copy(
        update={
            "confirmation": confirmation,
            "cells": tuple(_reseeded(planned, seeds) for planned in design.cells),
            "claims": {name: _selecting(claim, seeds) for name, claim in design.claims.items()},
            "figures": {name: _selecting(figure, seeds) for name, figure in design.figures.items()},
        }
    )


def _reseeded(planned: PlannedCell, seeds: dict[int, int]) -> PlannedCell:
    cell = planned.cell
    simulation = cell.simulation.model_copy(update={"seed": seeds[cell.simulation.seed]})
    fields = {name: getattr(cell, name) for name in Cell.model_fields}
    # Made anew: a copy would keep the identity of the data, which a cell remembers.
    return planned.model_copy(update={"cell": Cell.model_construct(**fields | {"simulation": simulation})})


def _selecting(record: _Selecting, seeds: dict[int, int]) -> _Selecting:
    """Return a claim or figure that selects, where it selects by seed, the cells that took the place of its own."""
    changed: dict[str, Any] = {}
    for name in ("where", "versus", "stands"):
        selection = getattr(record, name, None)
        if selection and "seed" in selection:
            changed[name] = selection | {"seed": seeds.get(selection["seed"], selection["seed"])}
    return record.model_copy(update=changed)
