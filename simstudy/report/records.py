"""What commands say, as plain data for other programs: keys that stay, and numbers in one unit each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from simstudy.design.document import Design
from simstudy.design.mistakes import Problem
from simstudy.design.settings.cell import level
from simstudy.execution.account import Account
from simstudy.execution.ledger import Ledger
from simstudy.execution.nesting import Nesting
from simstudy.execution.plan import Plan
from simstudy.execution.store import Store
from simstudy.report.progress import owner_of, seconds_left


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
        "grids": [grid._asdict() | {"nestings": list(map(_nesting, grid.nestings))} for grid in plan.grids],
    }


def _nesting(nesting: Nesting) -> dict[str, Any]:
    """What a nesting says, without a best number of replicates where none is large enough."""
    return nesting._asdict() | {"best": nesting.best if math.isfinite(nesting.best) else None}


def status_record(ledger: Ledger, design: Design, store: Store) -> dict[str, Any]:
    """Return how far each cell is, who computes, and how many seconds that takes where it can be told."""
    owner = owner_of(store)
    return {
        "study": design.study.name,
        "profile": design.profile,
        "folder": str(store.folder),
        "process": owner and {"pid": owner.pid, "host": owner.host, "alive": owner.alive},
        "seconds_left": seconds_left(ledger, store),
        "cells": [_cell(number, account, ledger, design) for number, account in enumerate(ledger.accounts)],
    }


def _cell(number: int, account: Account, ledger: Ledger, design: Design) -> dict[str, Any]:
    seen = account if account.finished else ledger.preview(account)
    grid, coordinates, worst = account.planned.grid, account.planned.cell.coordinates, seen.shortfall
    return {
        "cell": number,
        "grid": grid,
        "levels": {name: level(coordinates, name) for name in design.factors[grid]},
        "replicates": seen.done * seen.batch_size,
        "failed": seen.n_failed,
        "expected_replicates": seen.expected * seen.batch_size,
        "finished": account.finished,
        "reached": account.finished and account.reached,
        "measure": worst and worst.measure,
        "mcse": worst and _finite(worst.mcse),
        "wanted": worst and _finite(worst.wanted),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
