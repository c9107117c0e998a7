"""Contents of the files that a design names, read into its cells: heads, data, functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from simstudy.design.own_code import read_code, texts_of
from simstudy.design.own_data import read_rows
from simstudy.design.own_heads import read_heads
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.records import Impossibility

Reader = Callable[[Cell], tuple[Cell, list[Impossibility]]]


def reader(folder: Path, trust: Iterable[str | Path]) -> Reader:
    """Return what reads the files of a cell, relative to the folder of its design, and tells what is wrong with them.

    Raises
    ------
    UserError
        If a file that is trusted cannot be read.
    """
    trusted = texts_of(trust)

    def read(cell: Cell) -> tuple[Cell, list[Impossibility]]:
        cell, heads = read_heads(cell, folder)
        cell, rows = read_rows(cell, folder)
        cell, code = read_code(cell, folder, trusted)
        return cell, [*heads, *rows, *code]

    return read
