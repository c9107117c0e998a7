"""What replicates are spent on: a design that says nothing of it spends the fewest, and one may allow too few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from simstudy.design.claims import BaseClaim
from simstudy.design.document import PlannedCell, Precision
from simstudy.design.feasibility import batches_of
from simstudy.design.measures import MEASURES, STATISTICS
from simstudy.design.mistakes import Problem
from simstudy.design.settings.cell import MIN_BLOCKS, N_BLOCKS


def not_spent(claims: Mapping[str, BaseClaim], planned: Sequence[PlannedCell]) -> Iterator[Problem]:
    """Yield a note on every grid of claims whose cells all stop at the floor of replicates."""
    precision = {each.grid: each.precision for each in planned}
    for grid in dict.fromkeys(claim.grid for claim in claims.values()):
        stated = precision[grid]
        if stated.stop == "precision" and not stated.relative_mcse | stated.absolute_mcse:
            why = f"no error is wanted: cells of {grid} stop at min_replicates = {stated.min_replicates}"
            yield Problem("precision", None, f'{why}; state relative_mcse, or stop = "verdict" for its claims')


def never_judged(claims: Mapping[str, BaseClaim], planned: Sequence[PlannedCell]) -> Iterator[Problem]:
    """Yield a note on every grid of claims whose ceiling allows too few blocks for any verdict."""
    grids = {claim.grid for claim in claims.values()}
    for each in {each.grid: each for each in planned if each.grid in grids}.values():
        ceiling, size = each.precision.max_replicates, each.cell.simulation.batch_size
        batches = MIN_BLOCKS if each.cell.population else -(-MIN_BLOCKS // N_BLOCKS)
        if batches_of(ceiling, size) < batches:
            why = f"too few for a verdict on any claim of {each.grid}; allow {batches * size} or more"
            yield Problem("precision.max_replicates", ceiling, why)


def precision_problems(raw: dict[str, Any], names: Iterable[str]) -> Iterator[Problem]:
    """Yield unknown measures, and floors above the ceiling, each where the file states it."""
    base = _table(raw, "precision")
    grids = {f"grids.{name}.precision": _table(raw, "grids", name, "precision") for name in names}
    for at, section in {"precision": base, **grids}.items():
        for kind in ("relative_mcse", "absolute_mcse"):
            content = _table(section, kind)
            for measure in content:
                if measure not in MEASURES | STATISTICS:
                    yield Problem.unknown(f"{at}.{kind}.{measure}", content[measure], MEASURES | STATISTICS)
        limits: dict[str, Any] = Precision().model_dump() | base | section
        floor, ceiling = limits["min_replicates"], limits["max_replicates"]
        if not isinstance(floor, int) or not isinstance(ceiling, int) or floor <= ceiling:
            continue
        if "min_replicates" in section:
            yield Problem(f"{at}.min_replicates", floor, f"above max_replicates = {ceiling}; lower it or raise that")
        elif "max_replicates" in section:
            yield Problem(f"{at}.max_replicates", ceiling, f"below min_replicates = {floor}; raise it or lower that")


def _table(raw: Any, *path: str) -> dict[str, Any]:
    """Return the table at a path, empty if there is none."""
    for step in path:
        raw = raw.get(step) if isinstance(raw, dict) else None
    return raw if isinstance(raw, dict) else {}
