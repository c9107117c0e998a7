"""Which random draws a claim rests on: points, heads and rows that are drawn once and fixed, or a population."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from simstudy.design.claims import BaseClaim, OrderingClaim
from simstudy.design.document import PlannedCell
from simstudy.design.mistakes import Problem
from simstudy.design.references import PlannedGrid, Reference
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import FittedRegression

_IN_WORDS = {
    "queries": "query points", "heads": "random heads", "held_out": "held-out rows", "head_files": "heads of files",
    "models": "trained models", "rows": "rows of data",
}  # fmt: skip
"""What is drawn, by name, in the order in which it is told."""


class Draws(NamedTuple):
    """Names of what is drawn at random, as a population, and once by the seed; and what is fixed, in words."""

    population: tuple[str, ...]
    fixed: tuple[str, ...]
    these: tuple[str, ...]

    @property
    def text(self) -> str:
        """In words; empty if nothing is drawn."""
        drawn = " and ".join(words for name, words in _IN_WORDS.items() if name in self.population)
        over = f"over a population of {drawn}" if drawn else ""
        given = f"for {' and '.join(self.these)}" if self.these else ""
        return ", ".join(part for part in (over, given) if part)


def draws_of(claim: BaseClaim, planned: Iterable[PlannedCell]) -> Draws:
    """Return the draws that a claim rests on, among planned cells."""
    cells = [each.cell for each in planned if each.grid == claim.grid]
    grid = PlannedGrid(claim.grid, None, cells, complete=True, exact=False)
    return _draws(claim, Reference("", claim, grid).cells)


def _draws(claim: BaseClaim, cells: Sequence[Cell]) -> Draws:
    # Other diversity indices are those of heads alone.
    alone = claim.measure == "hdi" and not str(claim.index).startswith("output")
    looked_at = {"heads", "head_files", "models"} if alone else set(_IN_WORDS)
    population = {part for cell in cells for part in cell.population} & looked_at
    fixed = {part for cell in cells for part in cell.drawn - set(cell.population)} & looked_at
    given = {part for cell in cells for part in cell.given} & looked_at
    if isinstance(claim, OrderingClaim) and claim.over is not None:
        population, fixed = population | (fixed & {"heads"}), fixed - {"heads"}
    these = tuple(_these(part, cells) for part in _IN_WORDS if part in fixed | given)
    return Draws(tuple(sorted(population)), tuple(sorted(fixed)), these)


def _these(part: str, cells: Iterable[Cell]) -> str:
    """What is fixed, with its number where all cells that have it have as many."""
    found = {_number(part, cell) for cell in cells if part in cell.drawn | cell.given}
    number = len(found) if part == "models" else found.pop() if len(found) == 1 else None
    noun = _IN_WORDS[part]
    text = f"this one {noun.removesuffix('s')}" if number == 1 else f"these {number or ''} {noun}".replace("  ", " ")
    fitted = part == "held_out" and any(isinstance(cell.data.regression, FittedRegression) for cell in cells)
    return f"{text} with what is fitted to the others" if fitted else text


def _number(part: str, cell: Cell) -> Any:
    """How many there are of what a cell fixes; the name of a model; None of what is counted elsewhere."""
    keys = cell.data.key_distribution
    if part == "held_out" and cell.queries.queries.kind != "held_out":
        return getattr(keys, "held_out", None)
    numbers = {"queries": cell.n_queries, "held_out": cell.n_queries, "heads": cell.heads.n_heads}
    return getattr(cell.instance, "model", numbers.get(part))


def unstated_draws(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    """Yield a note on a claim in general terms that rests on draws which its cells fix."""
    fixed = _draws(claim, reference.cells).fixed
    if fixed and not claim.these_draws:
        stated = ", ".join(f'"{part}"' for part in fixed)
        these = " and ".join(_these(part, reference.cells) for part in fixed)
        remedy = f"declare population = [{stated}] in its grid, or say in these_draws why it speaks of this draw"
        yield Problem(reference.path, None, f"holds for {these}, drawn once under the seed; {remedy}")


def needless_reason(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    """Yield a reason for speaking of one draw where none is fixed."""
    if claim.these_draws and not _draws(claim, reference.cells).fixed:
        yield Problem(f"{reference.path}.these_draws", claim.these_draws, "no draw is fixed in its cells; remove it")
