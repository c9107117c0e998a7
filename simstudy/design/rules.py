"""Questions that no replicate can answer, and the random draws that a claim rests on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from simstudy.design.claims import BaseClaim, ViolatedPairs
from simstudy.design.document import Document, PlannedCell
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.mistakes import Problem, nearest
from simstudy.design.moments_needed import lacking, order_of
from simstudy.design.references import PlannedGrid, Reference
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import FittedRegression
from simstudy.design.settings.records import any_of

_OF_LEARNERS = ("direct_mse", "query_correlation", "discrepancy", *OCCASIONAL)
"""Statistics of replicates that only some ensembles have."""
_GAPS = ("decomposition_gap", "ambiguity_gap", "correlation_gap", "query_correlation_gap", "equivalent_heads")
"""Measures that exist only beside ``direct_mse``."""
_OF_PAIRS = {"correlation", "query_correlation", "mean_covariance", "linear_predictability", *_GAPS} - {"ambiguity_gap"}
"""Measures of two heads or more."""
_NEEDED = {
    "regret": 'it is that of ants: learner = "ant_colony"',
    "discrepancy": "it needs a reference computation; state reference",
    "own_measure": "it is what a function of your own gives; state measure_function",
}
"""What gives a measure to the ensembles that lack it."""


def unanswerable(
    document: Document, grids: Mapping[str, PlannedGrid], references: Sequence[Reference]
) -> Iterator[Problem]:
    """Yield claims, figures and errors wanted of which the cells cannot give a right answer."""
    for each in references:
        if isinstance(each.entry, BaseClaim):
            yield from _compares_batch_sizes(each, each.entry)
            yield from _impossible_in_some(f"{each.path}.measure", each.entry.measure, each.cells)
            if why := lacking(each.cells, order_of(each.entry)):
                yield each.problem("measure", f"does not exist: {why}; use lighter tails or another measure")
        else:
            yield from _impossible_in_all(f"{each.path}.y", each.entry.y, each.cells)
    for kind in ("relative_mcse", "absolute_mcse"):
        own = {name: grid.precision[kind] for name, grid in document.grids.items() if kind in grid.precision}
        for name, measures in own.items():
            for measure in measures:
                yield from _impossible_in_all(f"grids.{name}.precision.{kind}", measure, grids[name].cells)
        # What stands for all grids is right if one of them can have it: under another profile it may not.
        every = [cell for grid in grids.values() for cell in grid.cells]
        for measure in getattr(document.precision, kind) if len(own) < len(grids) else ():
            yield from _impossible_in_all(f"precision.{kind}", measure, every)
    new_points = {"gaussian": "queries", "held_out": "held_out"}
    for grid in grids.values():
        if grid.by_query and any(new_points.get(cell.queries.queries.kind) in cell.population for cell in grid.cells):
            why = "query points are a population, new in each batch; remove it"
            yield Problem(f"grids.{grid.name}.by_query", True, why)


# ---------------------------------------------------------------- measures that cells cannot have


def possible_measures(cell: Cell) -> list[str]:
    """Return the names of the measures that a cell can have: numbers of its functions, or those of an ensemble."""
    if cell.functions is not None:
        return [*cell.statistics, "failure_rate"]
    without = {*_OF_LEARNERS} - {*cell.statistics}
    without |= set(_GAPS if "direct_mse" in without else ())
    return [name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in without]


def _impossible_in_some(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    without = [cell for cell in cells if measure not in possible_measures(cell)]
    if without:
        functions = without[0].functions
        whose = "heads" if functions is None else f"functions: {functions.label}"
        needed = _NEEDED.get(measure) if functions is None else None
        shared = set.intersection(*(set(possible_measures(cell)) for cell in cells))
        known = [name for name in possible_measures(cells[0]) if name in shared]
        near = nearest(measure, known)
        what = needed or (f'did you mean "{near}"?' if near else f"use {any_of(known)}")
        yield Problem(path, measure, f"does not exist in {len(without)} of {len(cells)} cells ({whose}); {what}")


def _impossible_in_all(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    having = [cell for cell in cells if measure in possible_measures(cell)]
    if not having:
        yield from _impossible_in_some(path, measure, cells)
    elif measure in _OF_PAIRS and all(cell.n_members == 1 for cell in having):
        yield Problem(path, measure, f"compares heads, of which each of these {len(having)} cells has one")


def _compares_batch_sizes(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    """Cells of one seed share replicates, but blocks of different lengths do not tell how their estimates covary."""
    along = {getattr(claim, "x", None), getattr(claim, "along", None), *getattr(claim, "tune", ())}
    if isinstance(claim, ViolatedPairs):
        along = {*(reference.grid.factors or ())} - {claim.by}
    groups = reference.grid.strata(tuple(along), reference.chosen) if reference.versus is None else reference.compared
    for group in groups:
        simulations = [reference.grid.cells[number].simulation for number in group]
        if len({(each.seed, each.batch_size) for each in simulations}) > len({each.seed for each in simulations}):
            why = "compares cells that share replicates in batches of different sizes, so their covariance is unknown"
            yield reference.problem("measure", f"{why}; use one batch_size")
            return


# ---------------------------------------------------------------- random draws that a claim rests on

_IN_WORDS = {
    "queries": "query points", "heads": "random heads", "held_out": "held-out rows", "head_files": "heads of files",
    "rows": "rows of data",
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
    grid = PlannedGrid(claim.grid, None, [each.cell for each in planned if each.grid == claim.grid])
    return _draws(claim, Reference("", claim, grid).cells)


def _draws(claim: BaseClaim, cells: Sequence[Cell]) -> Draws:
    # Other diversity indices are those of heads alone.
    alone = claim.measure == "hdi" and not str(claim.index).startswith("output")
    looked_at = {"heads", "head_files"} if alone else set(_IN_WORDS)
    population = {part for cell in cells for part in cell.population} & looked_at
    fixed = {part for cell in cells for part in cell.drawn - set(cell.population)} & looked_at
    given = {part for cell in cells for part in cell.given} & looked_at
    these = tuple(_these(part, cells) for part in _IN_WORDS if part in fixed | given)
    return Draws(tuple(sorted(population)), tuple(sorted(fixed)), these)


def _these(part: str, cells: Iterable[Cell]) -> str:
    """What is fixed, with its number where all cells that have it have as many."""
    found = {_number(part, cell) for cell in cells if part in cell.drawn | cell.given}
    number = found.pop() if len(found) == 1 else None
    noun = _IN_WORDS[part]
    text = f"this one {noun.removesuffix('s')}" if number == 1 else f"these {number or ''} {noun}".replace("  ", " ")
    fitted = part == "held_out" and any(isinstance(cell.data.regression, FittedRegression) for cell in cells)
    return f"{text} with what is fitted to the others" if fitted else text


def _number(part: str, cell: Cell) -> Any:
    """How many there are of what a cell fixes; None of what is counted elsewhere."""
    keys = cell.data.key_distribution
    if part == "held_out" and cell.queries.queries.kind != "held_out":
        return getattr(keys, "held_out", None)
    numbers = {"queries": cell.n_queries, "held_out": cell.n_queries, "heads": cell.heads.n_heads}
    return numbers.get(part)
