"""What no replicate can answer, and what the author of a design should know: a table of rules for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from simstudy.design.claims import BaseClaim
from simstudy.design.document import Document, PlannedCell
from simstudy.design.feasibility import batches_of
from simstudy.design.generality import needless_reason, unstated_draws
from simstudy.design.mistakes import Problem
from simstudy.design.moments_needed import ORDER, order_of, without_error, without_value
from simstudy.design.possible import impossible_in_all, impossible_in_some
from simstudy.design.references import PlannedGrid, Reference
from simstudy.design.settings.cell import MIN_BLOCKS, N_BLOCKS, Cell
from simstudy.design.ties import compares_equals, idle_factors
from simstudy.design.wording import stands_alone


def unanswerable(
    document: Document, planned: Sequence[PlannedCell], grids: Sequence[PlannedGrid], references: Sequence[Reference]
) -> Iterator[Problem]:
    """Yield factors, claims, figures and errors wanted whose answer no replicate can change."""
    for grid in grids:
        yield from idle_factors(grid)
    yield from _walk(_UNANSWERABLE, references)
    for path, measure, cells in _errors_wanted(document, planned):
        yield from impossible_in_all(path, measure, cells)
    yield from _empty_populations(planned)


def notes(planned: Sequence[PlannedCell], references: Sequence[Reference]) -> Iterator[Problem]:
    """Yield what the author should know although it is no mistake."""
    yield from _walk(_NOTES, references)
    claimed = {reference.entry.grid for reference in references if isinstance(reference.entry, BaseClaim)}
    for each in {each.grid: each for each in planned}.values():
        yield from _wanted_without_error(each, [other.cell for other in planned if other.grid == each.grid])
        if each.grid in claimed:
            yield from (*_not_spent(each), *_never_judged(each))


def _walk(rules: Sequence[Rule], references: Sequence[Reference]) -> Iterator[Problem]:
    return (problem for reference in references for rule in rules for problem in rule(reference))


def _unmeasured(reference: Reference) -> Iterator[Problem]:
    """All cells that a claim speaks of must have its measure, and one at least that a figure draws."""
    entry = reference.entry
    if isinstance(entry, BaseClaim):
        yield from impossible_in_some(f"{reference.path}.measure", entry.measure, reference.cells)
    else:
        yield from impossible_in_all(f"{reference.path}.y", entry.y, reference.cells)


def _claimed_without_error(reference: Reference) -> Iterator[Problem]:
    claim = reference.entry
    if isinstance(claim, BaseClaim):
        yield from without_error(f"{reference.path}.measure", claim.measure, order_of(claim), reference.cells)


Rule = Callable[[Reference], Iterator[Problem]]
_UNANSWERABLE: tuple[Rule, ...] = (compares_equals, _unmeasured, without_value, needless_reason)
_NOTES: tuple[Rule, ...] = (unstated_draws, _claimed_without_error, stands_alone)


def _errors_wanted(document: Document, planned: Sequence[PlannedCell]) -> Iterator[tuple[str, str, list[Cell]]]:
    """Yield the measures of which errors are wanted: their place in the file, their names, and the cells."""
    for kind in ("relative_mcse", "absolute_mcse"):
        own = {name: grid.precision[kind] for name, grid in document.grids.items() if kind in grid.precision}
        # What stands for all grids is right if one of them can have it: under another profile it may not.
        every = [each.cell for each in planned] if len(own) < len(document.grids) else []
        yield from ((f"precision.{kind}", measure, every) for measure in getattr(document.precision, kind) if every)
        for name, measures in own.items():
            cells = [each.cell for each in planned if each.grid == name]
            yield from ((f"grids.{name}.precision.{kind}", measure, cells) for measure in measures)


def _empty_populations(planned: Sequence[PlannedCell]) -> Iterator[Problem]:
    """Populations of what no cell draws, and results by query where the points are a population."""
    stated = {part for each in planned for part in each.cell.simulation.population}
    for part in sorted(stated - {part for each in planned for part in each.cell.population}):
        yield Problem("simulation.population", part, "no cell draws any at random; leave it out")
    for grid in dict.fromkeys(each.grid for each in planned if each.by_query and _has_new_points(each.cell)):
        yield Problem(f"grids.{grid}.by_query", True, "query points are a population, new in each batch; remove it")


def _has_new_points(cell: Cell) -> bool:
    kind = cell.queries.queries.kind
    return {"gaussian": "queries", "held_out": "held_out"}.get(kind) in cell.population


def _wanted_without_error(each: PlannedCell, cells: Sequence[Cell]) -> Iterator[Problem]:
    for measure in each.precision.relative_mcse | each.precision.absolute_mcse:
        yield from without_error(f"grids.{each.grid}.precision", measure, ORDER.get(measure, 0), cells)


def _not_spent(each: PlannedCell) -> Iterator[Problem]:
    """A grid of claims whose cells all stop at the floor of replicates."""
    stated = each.precision
    if stated.stop == "precision" and not stated.relative_mcse | stated.absolute_mcse:
        why = f"no error is wanted: cells of {each.grid} stop at min_replicates = {stated.min_replicates}"
        yield Problem("precision", None, f'{why}; state relative_mcse, or stop = "verdict" for its claims')


def _never_judged(each: PlannedCell) -> Iterator[Problem]:
    """A grid of claims whose ceiling allows too few blocks for any verdict."""
    ceiling, size = each.precision.max_replicates, each.cell.simulation.batch_size
    batches = MIN_BLOCKS if each.cell.population else -(-MIN_BLOCKS // N_BLOCKS)
    if batches_of(ceiling, size) < batches:
        why = f"too few for a verdict on any claim of {each.grid}; allow {batches * size} or more"
        yield Problem("precision.max_replicates", ceiling, why)
