"""Which random draws a claim rests on: query points and heads that are drawn once and fixed, or a population.

A Monte Carlo error covers the replicates.  What it is over a population of points and heads is another question, which
a claim on "queries" or "random heads" raises, and a claim on the points drawn does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from simstudy.design.claims import BaseClaim, OrderingClaim
from simstudy.design.document import PlannedCell
from simstudy.design.mistakes import Problem
from simstudy.design.references import PlannedGrid, Reference

_IN_WORDS = {"queries": "query points", "heads": "random heads", "rows": "rows of data"}


class Draws(NamedTuple):
    """Names of what is drawn at random: as a population, and once and then fixed."""

    population: tuple[str, ...]
    fixed: tuple[str, ...]

    @property
    def text(self) -> str:
        """In words; empty if nothing is drawn."""
        over = f"over a population of {_listed(self.population)}" if self.population else ""
        given = f"given these {_listed(self.fixed)}" if self.fixed else ""
        return ", ".join(part for part in (over, given) if part)


def draws_of(claim: BaseClaim, planned: Iterable[PlannedCell]) -> Draws:
    """Return the draws that a claim rests on, among planned cells."""
    cells = [each.cell for each in planned if each.grid == claim.grid]
    return _draws(Reference("", claim, PlannedGrid(claim.grid, None, cells, complete=True, exact=False)))


def _draws(reference: Reference) -> Draws:
    claim, cells = reference.entry, reference.cells
    if not isinstance(claim, BaseClaim):
        return Draws((), ())
    # Other diversity indices are those of heads alone.
    looked_at = {"heads"} if claim.measure == "hdi" and not str(claim.index).startswith("output") else set(_IN_WORDS)
    population = {part for cell in cells for part in cell.population}
    fixed = {part for cell in cells for part in cell.drawn - set(cell.population)}
    if isinstance(claim, OrderingClaim) and claim.over is not None:
        population, fixed = population | (fixed & {"heads"}), fixed - {"heads"}
    return Draws(tuple(sorted(population & looked_at)), tuple(sorted(fixed & looked_at)))


def unstated_draws(reference: Reference) -> Iterator[Problem]:
    """Yield a note on a claim in general terms that rests on draws which its cells fix."""
    fixed = _draws(reference).fixed
    if fixed and not getattr(reference.entry, "these_draws", ""):
        stated = ", ".join(f'"{part}"' for part in fixed)
        remedy = f"declare population = [{stated}] in its grid, or say in these_draws why it speaks of this draw"
        yield Problem(reference.path, None, f"rests on {_listed(fixed)} that are drawn once; {remedy}")


def needless_reason(reference: Reference) -> Iterator[Problem]:
    """Yield a reason for speaking of one draw where none is fixed."""
    stated = getattr(reference.entry, "these_draws", "")
    if stated and not _draws(reference).fixed:
        yield Problem(f"{reference.path}.these_draws", stated, "no draw is fixed in its cells; remove it")


def _listed(names: Iterable[str]) -> str:
    return " and ".join(_IN_WORDS[name] for name in sorted(names, reverse=True))
