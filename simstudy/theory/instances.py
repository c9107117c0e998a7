"""Numbers of random instances by formula; the file of a system registers what there is, by the type of its record."""

from __future__ import annotations

from functools import singledispatch

from simstudy.design.settings import Instance
from simstudy.design.settings.cell import Cell


@singledispatch
def exact_numbers(instance: Instance | None, cell: Cell) -> dict[str, float]:
    """Return the numbers of an instance that a formula gives without a simulation, by name."""
    return {}


@singledispatch
def leading_numbers(instance: Instance | None, cell: Cell) -> dict[str, float]:
    """Return the numbers of an instance for which there is a formula for many numbers, by name."""
    return {}


def instance_numbers(cell: Cell) -> dict[str, float]:
    """Numbers of the random instances of a cell that a formula gives without a simulation, by name.

    Parameters
    ----------
    cell : Cell
        The cell of a design, one of ``Design.cells``.

    Returns
    -------
    dict of float
        Empty for systems without such a formula.
    """
    return exact_numbers(cell.instance, cell)


def instance_leading_order(cell: Cell) -> dict[str, float]:
    """Numbers of the random instances of a cell for which there is a formula for many numbers, by name.

    Parameters
    ----------
    cell : Cell
        The cell of a design, one of ``Design.cells``.

    Returns
    -------
    dict of float
        Empty for systems without such a formula.
    """
    return leading_numbers(cell.instance, cell)
