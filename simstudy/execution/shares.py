"""Shares of a study: sets of cells that can be computed without any word between those who compute them.

The stopping rule looks at a cell alone, so whoever has all of a cell can run it to its end.  Cells that would make up
one task stay together, so a share draws no data that another share also draws for the same task.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain
from typing import NamedTuple

from simstudy.design.document import Design, PlannedCell
from simstudy.errors import UserError
from simstudy.execution.provenance import engine, provenance
from simstudy.execution.store import Store

RECORD = "share.json"


class Share(NamedTuple):
    """The share with this number, from 1 on, of so many."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share that a text such as "3/8" names."""
        match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
        share = cls(*map(int, match.groups())) if match else cls(0, 0)
        if not 1 <= share.number <= share.total:
            raise UserError(f"share = {text!r}: must be number/total, such as 3/8, from 1/8 to 8/8")
        return share

    def of(self, design: Design) -> Design:
        """Return the design with the cells of this share only."""
        found = units(design)
        if self.total > len(found):
            raise UserError(f"share = {str(self)!r}: the design has work for {len(found)} shares only; ask for fewer")
        cells = [planned for unit in found[self.number - 1 :: self.total] for planned in unit]
        return design.model_copy(update={"cells": tuple(cells)})

    def store(self, whole: Store) -> Store:
        """Return the store of this share; what the whole study has stored already counts as stored here."""
        return Store(whole.files.at("shares", f"{self.number}-of-{self.total}"), known=(whole,))


def units(design: Design) -> list[list[PlannedCell]]:
    """Return the cells in the smallest sets that a share may hold: a pure function of the design."""
    # Imported here: who looks at a study need not wait for what computes it.
    from simstudy.execution.ledger import of_one_task, sharing_data

    alike: dict[str, list[PlannedCell]] = defaultdict(list)
    for planned in design.cells:
        alike[planned.cell.identity(engine(cells=[planned.cell]))].append(planned)
    groups = sharing_data(alike.values(), lambda cells: cells[0].cell)
    return [list(chain.from_iterable(unit)) for group in groups for unit in of_one_task(group)]


def with_shares(whole: Store) -> Store:
    """Return the store of a study that also sees what its shares have stored so far."""
    shares = whole.files.at("shares")
    known = tuple(Store(shares.at(name)) for name in shares.names() if "-of-" in name)
    return Store(whole.files, known=known)


def open_share(store: Store) -> None:
    """Write down who computes a share, unless its neighbours are computed by another engine."""
    (whole,) = store.known
    for neighbour in with_shares(whole).known:
        require_engine(neighbour)
    store.write_json(RECORD, provenance())


def require_engine(share: Store) -> None:
    """Refuse a share whose bits differ from those computed here: a run would compute all of it again."""
    record = share.read_json(RECORD)
    theirs = record.get("engine", engine())
    if theirs != engine():
        raise UserError(
            f"{share.folder / RECORD}: computed by engine {theirs} on {record.get('processor')!r}, this is engine "
            f"{engine()}; use nodes of one processor type and one installation"
        )
