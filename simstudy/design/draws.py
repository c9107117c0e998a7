"""The random draws that a claim rests on: of a population, or once by the seed."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from simstudy.design.answerable import PlannedGrid, Reference
from simstudy.design.claims import BaseClaim
from simstudy.design.document import PlannedCell
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import FittedRegression

_NOUNS = {
    "queries": "query points", "heads": "random heads", "held_out": "held-out rows", "head_files": "heads of files",
    "rows": "rows of data",
}  # fmt: skip
"""Names of draws in words, in the order of messages."""


class Draws(NamedTuple):
    """Names of what is drawn at random, as a population, and once by the seed; and what is fixed, in words."""

    population: tuple[str, ...]
    fixed: tuple[str, ...]
    these: tuple[str, ...]

    @property
    def text(self) -> str:
        """In words; empty if nothing is drawn."""
        drawn = " and ".join(words for name, words in _NOUNS.items() if name in self.population)
        over = f"over a population of {drawn}" if drawn else ""
        given = f"for {' and '.join(self.these)}" if self.these else ""
        return ", ".join(part for part in (over, given) if part)


def draws_of(claim: BaseClaim, planned: Iterable[PlannedCell]) -> Draws:
    """Return the draws that a claim rests on, among planned cells."""
    grid = PlannedGrid(claim.grid, None, [each.cell for each in planned if each.grid == claim.grid])
    cells = Reference("", claim, grid).cells
    # Other diversity indices are those of heads alone.
    alone = claim.measure == "hdi" and not str(claim.index).startswith("output")
    return draws_in(cells, {"heads", "head_files"} if alone else _NOUNS.keys())


def draws_in(cells: Sequence[Cell], looked_at: Collection[str] = _NOUNS.keys()) -> Draws:
    """Return the draws that measures of cells rest on."""
    population = {part for cell in cells for part in cell.population} & {*looked_at}
    fixed = {part for cell in cells for part in cell.drawn - set(cell.population)} & {*looked_at}
    given = {part for cell in cells for part in cell.given} & {*looked_at}
    parts = [part for part in _NOUNS if part in fixed | given]
    these = tuple(_named(part, [cell for cell in cells if part in cell.drawn | cell.given]) for part in parts)
    return Draws(tuple(sorted(population)), tuple(sorted(fixed)), these)


def _named(part: str, cells: Sequence[Cell]) -> str:
    """A fixed draw in words, with its number where all cells that have it have as many."""
    numbers = set[Any]()
    for cell in cells:
        held_out = getattr(cell.data.key_distribution, "held_out", None)
        held_out = cell.n_queries if cell.queries.queries.kind == "held_out" else held_out
        numbers.add({"queries": cell.n_queries, "held_out": held_out, "heads": cell.heads.n_heads}.get(part))
    number = numbers.pop() if len(numbers) == 1 else None
    noun = _NOUNS[part]
    text = f"this one {noun.removesuffix('s')}" if number == 1 else f"these {number or ''} {noun}".replace("  ", " ")
    fitted = part == "held_out" and any(isinstance(cell.data.regression, FittedRegression) for cell in cells)
    return f"{text} with what is fitted to the others" if fitted else text
