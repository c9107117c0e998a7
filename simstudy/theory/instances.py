"""Numbers of random instances by formula; the file of a system registers what there is, by the type of its record."""

from __future__ import annotations

from functools import singledispatch

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.instance import Instance


@singledispatch
def instance_numbers(instance: Instance | None, cell: Cell) -> dict[str, float]:
    """Numbers of the random instance of a cell that a formula gives at any size, by name."""
    return {}


@singledispatch
def instance_leading_order(instance: Instance | None, cell: Cell) -> dict[str, float]:
    """Numbers of the random instance of a cell that have a formula for large sizes, by name."""
    return {}
