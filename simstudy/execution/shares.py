"""Shares of a study: sets of cells that can be computed without any word between those who compute them.

Cells that would make up one task stay together as long as there are enough of these for all shares.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain
from typing import Any

from simstudy.design.document import Design, PlannedCell
from simstudy.errors import UserError
from simstudy.execution.provenance import engine, identity_of
from simstudy.execution.store import Store, index_of


def part_of(design: Design, share: str) -> Design:
    """Return the design with the cells of a share such as "3/8" only: none, if there are more shares than cells."""
    # Imported here: who looks at a study need not wait for what computes it.
    from simstudy.execution.executors import CELLS_PER_TASK
    from simstudy.replicates.batch import shares_data

    number, total = map(int, match.groups()) if (match := re.fullmatch(r"(\d{1,9})/(\d{1,9})", share, re.A)) else (0, 0)
    if not 1 <= number <= total:
        raise UserError(f"share = {share!r}: must be number/total, such as 3/8, from 1/8 to 8/8")
    alike: dict[str, list[PlannedCell]] = defaultdict(list)
    for planned in design.cells:
        alike[identity_of(planned.cell)].append(planned)
    sharing: dict[Any, list[list[PlannedCell]]] = defaultdict(list)
    for cells in alike.values():
        sharing[shares_data(cells[0].cell)].append(cells)
    starts = ((group, start) for group in sharing.values() for start in range(0, len(group), CELLS_PER_TASK))
    units = [[*chain(*group[start : start + CELLS_PER_TASK])] for group, start in starts]
    if len(units) < total:
        units = list(alike.values())
    return design.model_copy(update={"cells": tuple(chain.from_iterable(units[number - 1 :: total]))})


def require_same_engine(design: Design, store: Store) -> None:
    """Refuse to compute a share beside another whose batches have other bits: a run would compute all of it again."""
    own = {identity_of(planned.cell) for planned in design.cells}
    for name in filter(re.compile("[0-9]+-of-[0-9]+").fullmatch, store.files.at("batches").names()):
        if (found := index_of(store.files, [f"batches/{name}"])) and not own & found.keys():
            said = f"computed for another design or by another engine than {engine()}"
            remedy = "use nodes of one processor type and one installation, or move the file"
            raise UserError(f"{store.folder / 'batches' / name}: {said}; {remedy}")
