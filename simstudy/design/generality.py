"""Which random draws a claim rests on: query points and heads that are drawn once and fixed, or a population.

A Monte Carlo error covers the replicates.  What it is over a population of points and heads is another question, which
a claim on "queries" or "random heads" raises, and a claim on the points drawn does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from simstudy.design.claims import BaseClaim, OrderingClaim
from simstudy.design.document import PlannedCell
from simstudy.design.mistakes import Problem
from simstudy.design.settings.cell import selected

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
    selections = [claim.where, {**claim.where, **(getattr(claim, "versus", None) or {})}]
    cells = [each.cell for each in planned if each.grid == claim.grid]
    chosen = [cell for cell in cells if any(selected(cell.coordinates, wanted) for wanted in selections)]
    # Other diversity indices are those of heads alone.
    looked_at = {"heads"} if claim.measure == "hdi" and not str(claim.index).startswith("output") else set(_IN_WORDS)
    population = {part for cell in chosen for part in cell.population}
    fixed = {part for cell in chosen for part in cell.drawn - set(cell.population)}
    if isinstance(claim, OrderingClaim) and claim.over is not None:
        population, fixed = population | (fixed & {"heads"}), fixed - {"heads"}
    return Draws(tuple(sorted(population & looked_at)), tuple(sorted(fixed & looked_at)))


def generality_notes(claims: Mapping[str, BaseClaim], planned: Sequence[PlannedCell]) -> Iterator[Problem]:
    """Yield a note on every claim in general terms that rests on draws which its cells fix."""
    for name, claim in claims.items():
        fixed = draws_of(claim, planned).fixed
        if fixed and not claim.these_draws:
            stated = ", ".join(f'"{part}"' for part in fixed)
            remedy = f"declare population = [{stated}] in its grid, or say in these_draws why it speaks of this draw"
            yield Problem(f"claims.{name}", None, f"rests on {_listed(fixed)} that are drawn once; {remedy}")


def generality_problems(claims: Mapping[str, BaseClaim], planned: Sequence[PlannedCell]) -> Iterator[Problem]:
    """Yield populations of what no cell draws, and what cannot be told of a population."""
    stated = {part for each in planned for part in each.cell.simulation.population}
    for part in sorted(stated - {part for each in planned for part in each.cell.population}):
        yield Problem("simulation.population", part, "no cell draws any at random; leave it out")
    for grid in dict.fromkeys(each.grid for each in planned if each.by_query and "queries" in each.cell.population):
        yield Problem(f"grids.{grid}.by_query", True, "query points are a population, new in each batch; remove it")
    for name, claim in claims.items():
        if claim.these_draws and not draws_of(claim, planned).fixed:
            yield Problem(f"claims.{name}.these_draws", claim.these_draws, "no draw is fixed in its cells; remove it")


def _listed(names: Iterable[str]) -> str:
    return " and ".join(_IN_WORDS[name] for name in sorted(names, reverse=True))
