"""Questions that no replicate can answer: claims, figures and target errors of which cells give no right answer.

Among them are those on moments that need not exist.  A measure of order r is made of means of r-th powers of errors of
estimates: it exists if these have a moment of order r, and its Monte Carlo standard error exists if they have one of
order 2r.  An estimate Σ w_i Y_i has bounded weights, so that its tails are those of the noise drawn, which has moments
below ν if it is t(ν), and those of m(X): of degree k under t(ν) keys it has moments below ν/k.  Noise that is
integrated out enters by its variance, which exists.
"""

from collections.abc import Iterator, Mapping, Sequence

from simstudy.design.claims import BaseClaim
from simstudy.design.document import Document
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.mistakes import DesignError, Problem, mistake, nearest
from simstudy.design.references import PlannedGrid, Reference, refer
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.levels import by_levels, level
from simstudy.design.settings.processes import HeteroscedasticNoise, StudentKeys, StudentNoise

_OF_LEARNERS = ("direct_mse", "query_correlation", "discrepancy", *OCCASIONAL)
"""Statistics of replicates that only some ensembles have."""
_GAPS = ("decomposition_gap", "ambiguity_gap", "correlation_gap", "query_correlation_gap", "equivalent_heads")
"""Measures that exist only beside ``direct_mse``."""
_OF_PAIRS = {"correlation", "query_correlation", "mean_covariance", "linear_predictability", *_GAPS} - {"ambiguity_gap"}
"""Measures of two heads or more."""
_NEEDED = {
    "regret": 'it is that of ants: learner = "ant_colony"',
    "discrepancy": "it needs a reference computation; state reference",
}
"""Remedy for measures that ensembles lack."""


def require_answerable(document: Document, grids: Mapping[str, PlannedGrid]) -> None:
    """Refuse claims, figures and target errors that name what the grids lack, or that cells cannot answer."""
    for name, grid in grids.items():
        path, coordinates = f"grids.{name}.factors", [cell.coordinates for cell in grid.cells]
        for first, *others in by_levels(coordinates, grid.factors or (), range(len(coordinates))):
            if others:
                levels = tuple(level(coordinates[first], factor) for factor in grid.factors or ())
                raise mistake(path, levels, "two cells have these values; remove or relabel one")
        shared = {(cell.simulation.seed, cell.simulation.batch_size) for cell in grid.cells}
        if len(shared) > len({seed for seed, _ in shared}):
            raise mistake(path, None, "cells share replicates in batches of different sizes; use one batch_size")
    entries = {f"claims.{name}": claim for name, claim in document.claims.items()}
    references = refer(grids, entries | {f"figures.{name}": figure for name, figure in document.figures.items()})
    if problems := [*_unanswerable(document, grids, references)]:
        raise DesignError("", problems)


def _unanswerable(
    document: Document, grids: Mapping[str, PlannedGrid], references: Sequence[Reference]
) -> Iterator[Problem]:
    for each in references:
        if isinstance(each.entry, BaseClaim):
            yield from _lacked(f"{each.path}.measure", each.entry.measure, each.cells)
            if why := lacking(each.cells, order_of(each.entry)):
                yield each.problem("measure", f"need not exist: {why}; use lighter tails or another measure")
        else:
            yield from _lacked(f"{each.path}.y", each.entry.y, each.cells, by_all=True)
    wanted: dict[tuple[str, str], list[Cell]] = {}
    # What holds for all grids is right if one of them can have it: under another profile it may not.
    cells = [cell for grid in grids.values() for cell in grid.cells]
    for name, grid in grids.items():
        for kind in ("relative_mcse", "absolute_mcse"):
            own = kind in document.grids[name].precision
            path = f"grids.{name}.precision.{kind}" if own else f"precision.{kind}"
            wanted |= {(path, measure): grid.cells if own else cells for measure in getattr(grid.precision, kind)}
        new_points = {"gaussian": "queries", "held_out": "held_out"}
        if grid.by_query and any(new_points.get(cell.queries.queries.kind) in cell.population for cell in grid.cells):
            why = "query points are a population, new in each batch; remove it"
            yield Problem(f"grids.{name}.by_query", True, why)
    for (path, measure), of in wanted.items():
        yield from _lacked(path, measure, of, by_all=True)


def _possible_measures(cell: Cell) -> list[str]:
    """Names of the measures that a cell can have: numbers of its functions, or those of an ensemble."""
    if cell.functions is not None:
        return [*cell.statistics, "failure_rate"]
    without = {*_OF_LEARNERS} - {*cell.statistics}
    without |= set(_GAPS if "direct_mse" in without else ())
    return [name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in without]


def _lacked(path: str, measure: str, cells: Sequence[Cell], by_all: bool = False) -> Iterator[Problem]:
    possible = [_possible_measures(cell) for cell in cells]
    without = [cell for cell, names in zip(cells, possible, strict=True) if measure not in names]
    if by_all and len(without) < len(cells):
        having = [cell for cell, names in zip(cells, possible, strict=True) if measure in names]
        if measure in _OF_PAIRS and all(cell.n_members == 1 for cell in having):
            yield Problem(path, measure, f"compares heads, of which each of these {len(having)} cells has one")
    elif without:
        functions = without[0].functions
        whose = "heads" if functions is None else f"functions: {functions.label}"
        known = [name for name in possible[0] if all(name in names for names in possible)]
        near = nearest(measure, known)
        what = f'did you mean "{near}"?' if near else f"use one of {', '.join(known)}"
        what = _NEEDED.get(measure, what) if functions is None else what
        yield Problem(path, measure, f"does not exist in {len(without)} of {len(cells)} cells ({whose}); {what}")


ORDER = {
    "squared_bias": 1, "mean_variance": 2, "mean_covariance": 2, "ensemble_variance": 2, "mse": 2, "correlation": 2,
    "effective_heads": 2, "direct_mse": 2, "decomposition_gap": 2, "correlation_gap": 2, "query_correlation_gap": 2,
    "equivalent_heads": 2, "mean_squared_bias": 1, "ambiguity": 2, "ambiguity_gap": 2, "output": 2, "output_rank": 2,
    "output_determinant": 2, "output_participation": 2, "linear_predictability": 2, "disagreement_outputs": 2,
}  # fmt: skip
"""Order of the measures, and of the diversity indices of outputs; all others are bounded, or numbers of geometry."""
DEGREE = {"linear": 1, "quadratic": 2, "interaction": 2}
"""Degree of regression functions that are not bounded."""


def tail(cell: Cell) -> tuple[float, str]:
    """Return the order from which on estimates need not have moments, and why; infinite if they have all."""
    found = [(float("inf"), "")]
    if cell.functions is not None:
        return found[0]
    noise, keys = cell.data.noise, cell.data.key_distribution
    if isinstance(noise, StudentNoise) and cell.simulation.noise_treatment == "drawn" and cell.data.noise_sd > 0.0:
        found.append((noise.df, f"noise drawn from {noise.label}"))
    # Of m, and of the standard deviation of the noise.
    spread = int(isinstance(noise, HeteroscedasticNoise) and cell.data.noise_sd > 0.0)
    degree = max(spread, *(DEGREE.get(term.kind, 0) for term in cell.data.terms))
    if isinstance(keys, StudentKeys) and degree:
        found.append((keys.df / degree, f"a degree of {degree} under keys {keys.label}"))
    return min(found)


def order_of(claim: BaseClaim) -> int:
    """Order of what a claim speaks of: of its measure, or of the diversity index that it orders cells by."""
    return max(ORDER.get(str(name), 0) for name in (claim.measure, claim.index, getattr(claim, "against", None)))


def lacking(cells: Sequence[Cell], order: int) -> str:
    """Return the moments that cells lack for means of powers of an order, in words; empty if they lack none."""
    tails = [found for found in map(tail, cells) if found[0] <= order] if order else []
    if not tails:
        return ""
    limit, why = tails[0]
    return (
        f"that takes moments of order {order} of the estimates, which below {limit:.4g} alone are sure to "
        f"exist in {len(tails)} of {len(cells)} cells ({why})"
    )
