"""What commands say, as plain data for other programs: keys that stay, and numbers in one unit each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simstudy.design.document import Design, PlannedCell
from simstudy.design.mistakes import Problem
from simstudy.design.settings.levels import level
from simstudy.execution.status import CellStatus, Status, owner_of, seconds_left
from simstudy.execution.store import Store

if TYPE_CHECKING:
    from simstudy.execution.plan import Plan


def design_record(place: str, profiles: Mapping[str, Design], problems: list[Problem]) -> dict[str, Any]:
    """Return a design with the size of each profile, or with its mistakes."""
    study = next((design.study for design in profiles.values()), None)
    return {
        "design": place,
        "name": study and study.name,
        "title": study and study.title,
        "profiles": {
            name: {"cells": len(design.cells), "claims": len(design.claims)} for name, design in profiles.items()
        },
        "mistakes": [{"place": problem.path, "message": str(problem)} for problem in problems],
    }


def plan_record(plan: Plan, design: Design, workers: int | None) -> dict[str, Any]:
    """Return what a study will take: times in seconds, sizes in bytes; ``workers`` as asked, or those of here."""
    asked = workers or plan.workers
    return {
        "study": design.study.name,
        "profile": design.profile,
        "workers": asked,
        "seconds": plan.seconds(asked),
        "peak_memory_bytes": round(plan.peak_MiB * 2**20),
        "grids": [vars(grid) for grid in plan.grids],
    }


def status_record(status: Status, design: Design, store: Store) -> dict[str, Any]:
    """Return how far each cell is, as of when, who computes, and how many seconds that takes where it can be told."""
    owner = owner_of(store)
    cells = enumerate(zip(status.cells, design.cells, strict=True))
    return {
        "study": design.study.name,
        "profile": design.profile,
        "folder": str(store.folder),
        "process": owner and {"pid": owner.pid, "host": owner.host, "alive": owner.alive},
        "as_of": status.as_of,
        "seconds_left": seconds_left(status, store),
        "cells": [_cell(number, *pair, design.factors[pair[1].grid]) for number, pair in cells],
    }


def _cell(number: int, cell: CellStatus, planned: PlannedCell, factors: Sequence[str]) -> dict[str, Any]:
    return {
        "cell": number,
        "grid": planned.grid,
        "levels": {name: level(planned.cell.coordinates, name) for name in factors},
        "replicates": cell.stored * cell.batch_size,
        "failed": cell.failed,
        "expected_replicates": cell.expected * cell.batch_size,
        "finished": cell.finished,
        "reached": cell.reached,
        "measure": cell.measure,
        "mcse": _finite(cell.mcse),
        "wanted": _finite(cell.wanted),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
