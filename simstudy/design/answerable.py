"""Questions that no replicate can answer: claims, figures and target errors of which cells give no right answer."""

from collections.abc import Iterator, Mapping, Sequence

from simstudy.design.claims import BaseClaim, ViolatedPairs
from simstudy.design.document import Document
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.mistakes import DesignError, Problem, nearest
from simstudy.design.moments_needed import lacking, order_of
from simstudy.design.references import PlannedGrid, Reference, refer
from simstudy.design.settings.cell import Cell

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


def require_answerable(document: Document, grids: Mapping[str, PlannedGrid]) -> None:
    """Refuse claims, figures and target errors that name what the grids lack, or that cells cannot answer."""
    entries = {f"claims.{name}": claim for name, claim in document.claims.items()}
    references = refer(grids, entries | {f"figures.{name}": figure for name, figure in document.figures.items()})
    if problems := [*_unanswerable(document, grids, references)]:
        raise DesignError("", problems)


def _unanswerable(
    document: Document, grids: Mapping[str, PlannedGrid], references: Sequence[Reference]
) -> Iterator[Problem]:
    for each in references:
        if isinstance(each.entry, BaseClaim):
            yield from _compares_batch_sizes(each, each.entry)
            yield from _lacked_by_some(f"{each.path}.measure", each.entry.measure, each.cells)
            if why := lacking(each.cells, order_of(each.entry)):
                yield each.problem("measure", f"does not exist: {why}; use lighter tails or another measure")
        else:
            yield from _lacked_by_all(f"{each.path}.y", each.entry.y, each.cells)
    for kind in ("relative_mcse", "absolute_mcse"):
        own = {name: grid.precision[kind] for name, grid in document.grids.items() if kind in grid.precision}
        for name, measures in own.items():
            for measure in measures:
                yield from _lacked_by_all(f"grids.{name}.precision.{kind}", measure, grids[name].cells)
        # What holds for all grids is right if one of them can have it: under another profile it may not.
        cells = [cell for grid in grids.values() for cell in grid.cells]
        for measure in getattr(document.precision, kind) if len(own) < len(grids) else ():
            yield from _lacked_by_all(f"precision.{kind}", measure, cells)
    new_points = {"gaussian": "queries", "held_out": "held_out"}
    for grid in grids.values():
        if grid.by_query and any(new_points.get(cell.queries.queries.kind) in cell.population for cell in grid.cells):
            why = "query points are a population, new in each batch; remove it"
            yield Problem(f"grids.{grid.name}.by_query", True, why)


def _possible_measures(cell: Cell) -> list[str]:
    """Names of the measures that a cell can have: numbers of its functions, or those of an ensemble."""
    if cell.functions is not None:
        return [*cell.statistics, "failure_rate"]
    without = {*_OF_LEARNERS} - {*cell.statistics}
    without |= set(_GAPS if "direct_mse" in without else ())
    return [name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in without]


def _lacked_by_some(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    possible = [_possible_measures(cell) for cell in cells]
    without = [cell for cell, names in zip(cells, possible, strict=True) if measure not in names]
    if without:
        functions = without[0].functions
        whose = "heads" if functions is None else f"functions: {functions.label}"
        known = [name for name in possible[0] if all(name in names for names in possible)]
        near = nearest(measure, known)
        what = f'did you mean "{near}"?' if near else f"use one of {', '.join(known)}"
        what = _NEEDED.get(measure, what) if functions is None else what
        yield Problem(path, measure, f"does not exist in {len(without)} of {len(cells)} cells ({whose}); {what}")


def _lacked_by_all(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    having = [cell for cell in cells if measure in _possible_measures(cell)]
    if not having:
        yield from _lacked_by_some(path, measure, cells)
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
