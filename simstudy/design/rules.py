"""What no replicate can answer, and what the author of a design should know: a table of rules for each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from simstudy.design.claims import BaseClaim, OrderingClaim
from simstudy.design.document import Document, PlannedCell
from simstudy.design.feasibility import batches_of
from simstudy.design.generality import needless_reason, unstated_draws
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.mistakes import Problem
from simstudy.design.moments_needed import ORDER, order_of, without_error, without_value
from simstudy.design.references import PlannedGrid, Reference
from simstudy.design.settings.cell import MIN_BLOCKS, N_BLOCKS, TABLE_OF, Cell
from simstudy.design.settings.levels import level
from simstudy.design.settings.records import Choice, any_of
from simstudy.design.settings.systems import NAMES

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
_OF_WEIGHTS = ("squared_bias", "ensemble_variance", "mse", "equivalent_heads")
"""Measures that the weights of heads enter; all others are those of the heads, whatever combines them."""


def unanswerable(
    document: Document, planned: Sequence[PlannedCell], grids: Sequence[PlannedGrid], references: Sequence[Reference]
) -> Iterator[Problem]:
    """Yield factors, claims, figures and errors wanted whose answer no replicate can change."""
    for grid in grids:
        yield from _idle_factors(grid)
    yield from _of_claims(_UNANSWERABLE, references)
    for each in references:
        if not isinstance(each.entry, BaseClaim):
            yield from _impossible_in_all(f"{each.path}.y", each.entry.y, each.cells)
    for path, measure, cells in _errors_wanted(document, planned):
        yield from _impossible_in_all(path, measure, cells)
    yield from _empty_populations(planned)


def notes(planned: Sequence[PlannedCell], references: Sequence[Reference]) -> Iterator[Problem]:
    """Yield what the author should know although it is no mistake."""
    yield from _of_claims(_NOTES, references)
    claimed = {reference.entry.grid for reference in references if isinstance(reference.entry, BaseClaim)}
    for each in {each.grid: each for each in planned}.values():
        cells = [other.cell for other in planned if other.grid == each.grid]
        for measure in each.precision.relative_mcse | each.precision.absolute_mcse:
            yield from without_error(f"grids.{each.grid}.precision", measure, ORDER.get(measure, 0), cells)
        if each.grid in claimed:
            yield from (*_not_spent(each), *_never_judged(each))


def _of_claims(rules: Sequence[Rule], references: Sequence[Reference]) -> Iterator[Problem]:
    claims = ((each, each.entry) for each in references if isinstance(each.entry, BaseClaim))
    return (problem for reference, claim in claims for rule in rules for problem in rule(reference, claim))


# ---------------------------------------------------------------- measures that cells cannot have


def possible_measures(cell: Cell) -> list[str]:
    """Return the names of the measures that a cell can have: numbers of its instance, or those of an ensemble."""
    if cell.instance is not None:
        return [*cell.statistics, "failure_rate"]
    lacking = {*NAMES, *_OF_LEARNERS} - {*cell.statistics}
    lacking |= set(_GAPS if "direct_mse" in lacking else ())
    return [name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in lacking]


def _impossible_in_some(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    without = [cell for cell in cells if measure not in possible_measures(cell)]
    if without:
        instance = without[0].instance
        whose = "an ensemble" if instance is None else f"instance = {instance.kind!r}"
        needed = _NEEDED.get(measure) if instance is None else None
        what = needed or f"use {any_of(_shared(cells))}"
        yield Problem(path, measure, f"does not exist in {len(without)} of {len(cells)} cells ({whose}); {what}")


def _impossible_in_all(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    having = [cell for cell in cells if measure in possible_measures(cell)]
    if not having:
        yield from _impossible_in_some(path, measure, cells)
    elif measure in _OF_PAIRS and all(cell.n_members == 1 for cell in having):
        yield Problem(path, measure, f"compares heads, of which each of these {len(having)} cells has one")


def _shared(cells: Sequence[Cell]) -> list[str]:
    shared = set.intersection(*(set(possible_measures(cell)) for cell in cells))
    return [name for name in possible_measures(cells[0]) if name in shared]


def _unmeasured(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    return _impossible_in_some(f"{reference.path}.measure", claim.measure, reference.cells)


def _claimed_without_error(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    return without_error(f"{reference.path}.measure", claim.measure, order_of(claim), reference.cells)


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
    stated = {part for each in planned for part in each.cell.simulation.population}
    for part in sorted(stated - {part for each in planned for part in each.cell.population}):
        yield Problem("simulation.population", part, "no cell draws any at random; leave it out")
    for grid in dict.fromkeys(each.grid for each in planned if each.by_query and _has_new_points(each.cell)):
        yield Problem(f"grids.{grid}.by_query", True, "query points are a population, new in each batch; remove it")


def _has_new_points(cell: Cell) -> bool:
    kind = cell.queries.queries.kind
    return {"gaussian": "queries", "held_out": "held_out"}.get(kind) in cell.population


def _not_spent(each: PlannedCell) -> Iterator[Problem]:
    stated = each.precision
    if stated.stop == "precision" and not stated.relative_mcse | stated.absolute_mcse:
        why = f"no error is wanted: cells of {each.grid} stop at min_replicates = {stated.min_replicates}"
        yield Problem("precision", None, f'{why}; state relative_mcse, or stop = "verdict" for its claims')


def _never_judged(each: PlannedCell) -> Iterator[Problem]:
    ceiling, size = each.precision.max_replicates, each.cell.simulation.batch_size
    batches = MIN_BLOCKS if each.cell.population else -(-MIN_BLOCKS // N_BLOCKS)
    if batches_of(ceiling, size) < batches:
        why = f"too few for a verdict on any claim of {each.grid}; allow {batches * size} or more"
        yield Problem("precision.max_replicates", ceiling, why)


# ---------------------------------------------------------------- cells that cannot differ


def _idle_factors(grid: PlannedGrid) -> Iterator[Problem]:
    numbers = [_of_ensemble(cell) for cell in grid.cells]
    for factor in grid.factors or () if len(set(numbers)) < len(numbers) else ():
        strata = grid.strata((factor,), [*range(len(numbers))])
        if len(strata[0]) > 1 and all(len({numbers[cell] for cell in stratum}) == 1 for stratum in strata):
            levels = tuple(level(grid.cells[cell].coordinates, factor) for cell in strata[0])
            why = f"decides no number of any cell ({_reasons(*(grid.cells[cell] for cell in strata[0][:2]))})"
            yield Problem(f"grids.{grid.name}.factors.{factor}", levels, f"{why}; remove it")


def _compares_equals(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    grid, numbers_of = reference.grid, _of_ensemble if claim.measure in _OF_WEIGHTS else _of_heads
    for group in reference.compared:
        seen: dict[Hashable, Cell] = {}
        for cell in (grid.cells[number] for number in group):
            first = seen.setdefault(numbers_of(cell), cell)
            if first is not cell:
                remedy = f"compares cells that hold the same numbers: {_named(grid, first, cell)}; leave such cells out"
                yield Problem(f"{reference.path}.measure", claim.measure, remedy)
                return


def _compares_batch_sizes(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    """Cells of one seed share replicates, but blocks of different lengths do not tell how their estimates covary."""
    along = {getattr(claim, "x", None), getattr(claim, "along", None), *getattr(claim, "tune", ())}
    if isinstance(claim, OrderingClaim):
        along = {*(reference.grid.factors or ())} - {claim.by}
    groups = reference.grid.strata(tuple(along), reference.chosen) if reference.versus is None else reference.compared
    for group in groups:
        simulations = [reference.grid.cells[number].simulation for number in group]
        if len({(each.seed, each.batch_size) for each in simulations}) > len({each.seed for each in simulations}):
            why = "compares cells that share replicates in batches of different sizes, so their covariance is unknown"
            yield Problem(f"{reference.path}.measure", claim.measure, f"{why}; use one batch_size")
            return


def _of_heads(cell: Cell) -> Hashable:
    return cell.identity(engine="")


def _of_ensemble(cell: Cell) -> Hashable:
    return cell.identity(engine=""), cell.weights or cell.estimator.combination.model_dump_json()


def _named(grid: PlannedGrid, first: Cell, second: Cell) -> str:
    """Two cells by the factors in which they differ, those that they share, and why that makes no difference."""
    here, there = ({n: level(cell.coordinates, n) for n in grid.factors or ()} for cell in (first, second))
    apart = [name for name in here if here[name] != there[name]]
    one, other = (", ".join(f"{name} = {levels[name]}" for name in apart) for levels in (here, there))
    same = ", ".join(f"{name} = {here[name]}" for name in here if name not in apart)
    return f"{one} and {other}{f' at {same}' if same else ''} ({_reasons(first, second)})"


def _reasons(first: Cell, second: Cell) -> str:
    idle = first.idle | second.idle
    differing = [name for name in TABLE_OF if first.coordinates[name] != second.coordinates[name]]
    reasons = {f"{name}: {idle[name]}": None for name in differing if name in idle}
    for name in differing:
        for choice in (getattr(getattr(cell, TABLE_OF[name]), name) for cell in (first, second)):
            if isinstance(choice, Choice):
                reasons |= {f"{name}.{parameter}: {why}": None for parameter, why in choice.idle.items()}
    return "; ".join(reasons) or f"{', '.join(differing)}: does not enter"


Rule = Callable[[Reference, BaseClaim], Iterator[Problem]]
_UNANSWERABLE: tuple[Rule, ...] = (_compares_equals, _compares_batch_sizes, _unmeasured, without_value, needless_reason)
_NOTES: tuple[Rule, ...] = (unstated_draws, _claimed_without_error)
