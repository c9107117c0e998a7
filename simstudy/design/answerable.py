"""Claims and figures, the cells and draws that they rest on; questions that no replicate can answer are refused.

Among them are those on moments that need not exist.  A measure of order r is made of means of r-th powers of errors of
estimates: it exists if these have a moment of order r, and its Monte Carlo standard error exists if they have one of
order 2r.  An estimate Σ w_i Y_i has bounded weights, so that its tails are those of the noise drawn, which has moments
below ν if it is t(ν), and those of m(X): of degree k under t(ν) keys it has moments below ν/k.  Noise that is
integrated out enters by its variance, which exists.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from simstudy.design import claims
from simstudy.design.document import Document, PlannedCell, Precision
from simstudy.design.figures import MOST_ZIPS, BaseFigure, OptimumFigure, ZipFigure
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.mistakes import DesignError, Problem, nearest
from simstudy.design.settings.cell import TABLE_OF, Cell
from simstudy.design.settings.levels import by_levels, label, level, selected
from simstudy.design.settings.processes import FittedRegression, HeteroscedasticNoise, StudentKeys, StudentNoise

Entry = claims.BaseClaim | BaseFigure
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


class PlannedGrid(NamedTuple):
    """A grid with its factors, None if they are unknown, and its cells, as claims and figures select them."""

    name: str
    factors: tuple[str, ...] | None
    cells: list[Cell]
    exact: bool = False
    by_query: bool = False
    precision: Precision = Precision()
    drawn: tuple[str, ...] = ()  # Factors whose levels were drawn from a domain
    selectable: tuple[str, ...] = (*TABLE_OF, "bandwidth_rule")
    words: tuple[str, str, str] = ("cell", "grid", "setting")

    def select(self, selection: claims.Selection) -> list[int]:
        """Return the numbers of the cells that a selection picks."""
        return [number for number, cell in enumerate(self.cells) if selected(cell.coordinates, selection)]


@dataclass(frozen=True)
class Reference:
    """A claim or a figure, with its path in the file and its grid; cells go by their numbers in the grid."""

    path: str
    entry: Entry
    grid: PlannedGrid

    @property
    def versus(self) -> claims.Selection | None:
        """Selection of the cells to compare with, if it states one."""
        return getattr(self.entry, "versus", None)

    @cached_property
    def chosen(self) -> list[int]:
        """Cells that it selects."""
        return self.grid.select(self.entry.where)

    @cached_property
    def partners(self) -> list[int]:
        """Cells that it compares them with."""
        return self.grid.select(self.entry.where | self.versus) if self.versus is not None else []

    @property
    def cells(self) -> list[Cell]:
        """All cells that it speaks of."""
        return [self.grid.cells[number] for number in sorted({*self.chosen, *self.partners})]

    @cached_property
    def compared(self) -> list[list[int]]:
        """Cells that it compares with one another: each with its partner, or else those along its factors."""
        factors = self.grid.factors or ()
        if self.versus is None:
            along = {*getattr(self.entry, "tune", ()), getattr(self.entry, "x", None)} - {None}
            others = [name for name in factors if name not in along]
            return by_levels([cell.coordinates for cell in self.grid.cells], others, self.chosen) if along else []
        levels = [{name: level(cell.coordinates, name) for name in factors} for cell in self.grid.cells]
        numbers = {tuple(each.values()): number for number, each in enumerate(levels)}
        versus = {name: label(tuple(v)) if isinstance(v, list) else v for name, v in self.versus.items()}
        wanted = {here: numbers.get(tuple((levels[here] | versus).values())) for here in self.chosen}
        return [[here, there] for here, there in wanted.items() if there is not None and there != here]

    def problem(self, field: str, remedy: str) -> Problem:
        """Return the mistake in one of its entries."""
        return Problem(f"{self.path}.{field}", getattr(self.entry, field), remedy)


def refer(grids: Mapping[str, PlannedGrid], entries: Mapping[str, Entry], place: str = "") -> list[Reference]:
    """Return claims and figures, by their path, with what they refer to; `DesignError` if the grids do not have it."""
    references: list[Reference] = []
    problems: list[Problem] = []
    for path, entry in entries.items():
        if entry.grid not in grids:
            problems.append(Problem.unknown(f"{path}.grid", entry.grid, grids, what="grid"))
            continue
        reference = Reference(path, entry, grids[entry.grid])
        problems += [*_misstated(reference, entry)] or [*_misselected(reference, entry)]
        references.append(reference)
    if problems:
        raise DesignError(place, problems)
    return references


def _misstated(reference: Reference, entry: Any) -> Iterator[Problem]:
    """Yield entries that others contradict, and names that the grid does not have."""
    grid, factors = reference.grid, reference.grid.factors or ()
    if getattr(entry, "source", None) == "exact" and not grid.exact:
        yield reference.problem("source", f"set exact = true in [grids.{entry.grid}], which does not ask for it")
    if isinstance(entry, claims.BaseClaim) and (entry.measure == "hdi") != (entry.index is not None):
        yield reference.problem("index", 'state index for measure = "hdi", and only then')
    if isinstance(entry, claims.PairedClaim) and entry.compared == "ratio" and entry.versus is None:
        yield reference.problem("compared", "state versus, the settings of the cell to compare with")
    if isinstance(entry, claims.Optimum) and (entry.value is None) == (entry.source is None):
        yield reference.problem("value", "state either value or source, the theory that gives it")
    of_number = grid.drawn and not isinstance(entry, claims.OptimumClaim | claims.ViolatedPairs)
    if getattr(entry, "holds", "") == "on_average" and not of_number:
        yield reference.problem("holds", "needs a grid with a domain, and a kind of claim on a number")
    excluded = entry.excludes if isinstance(entry, claims.WithinMargin) else None
    if excluded is not None and abs(excluded - entry.value) <= entry.margin:
        yield reference.problem("excludes", "must be farther from value than margin: no verdict would tell them apart")
    for field in ("x", "hue", "panel", "by", "along", "over", "tune") if grid.factors is not None else ():
        stated = getattr(entry, field, None) or ()
        for name in (stated,) if isinstance(stated, str) else stated:
            if name not in factors:
                yield Problem.unknown(f"{reference.path}.{field}", name, factors, what="factor")
    known = tuple(dict.fromkeys((*grid.selectable, *factors)))
    for field in ("where", "versus", "stands"):
        selection = getattr(entry, field, None) or {}
        unknown = [key for key in selection if key not in known]
        for key in unknown:
            meant = [name for name in known if any(cell.coordinates.get(name, "") != "" for cell in grid.cells)]
            yield Problem.unknown(f"{reference.path}.{field}.{key}", selection[key], meant or known, grid.words[2])
        if field == "versus" and grid.factors is not None and not unknown and not selection.keys() <= {*factors}:
            yield reference.problem("versus", f"may name factors of the {grid.words[1]} only: {', '.join(factors)}")


def _misselected(reference: Reference, entry: Any) -> Iterator[Problem]:
    """Yield selections of no cells, and factors whose levels do not allow what is asked along them."""
    grid, noun = reference.grid, reference.grid.words[0]
    if not reference.chosen:
        yield reference.problem("where", _nothing_selected(entry.where, grid))
        return
    if (stands := getattr(entry, "stands", None)) and not {*grid.select(stands)} & {*reference.chosen}:
        yield reference.problem("stands", "is no cell that the claim selects; state levels of one")
    if reference.versus is not None and not reference.partners:
        yield reference.problem("versus", _nothing_selected(reference.versus, grid))
    elif reference.versus is not None and not reference.compared:
        remedy = f"compares every selected {noun} with itself, or with none; select others in where"
        yield reference.problem("versus", remedy)
    if isinstance(entry, ZipFigure) and len(reference.chosen) > MOST_ZIPS:
        yield reference.problem("where", f"selects {len(reference.chosen)} cells; select at most {MOST_ZIPS}")
    of_optimum = ("x", "along") if isinstance(entry, claims.OptimumClaim) else ()
    for field in ("over",) if isinstance(entry, OptimumFigure) else of_optimum:
        levels = {*_values(reference, field)} if getattr(entry, field, None) is not None else {1, 2, 3}
        if not all(isinstance(value, (int, float)) and value > 0 for value in levels) or len(levels) < 3:
            yield reference.problem(field, "needs three or more different values, all of them positive numbers")
    if getattr(entry, "x", None) is None:
        return
    along = dict(zip(reference.chosen, _values(reference, "x"), strict=True))
    logarithmic = getattr(entry, "scale", "linear") != "linear" or getattr(entry, "x_scale", "linear") == "log"
    if not all(isinstance(value, (int, float)) for value in along.values()):
        yield reference.problem("x", f"is not a number in every {noun}; use a numeric factor")
    elif logarithmic and (low := min(along.values())) <= 0:
        yield reference.problem("x", f"is {low:g} in a {noun} and has no logarithm; use a linear scale")
    elif isinstance(entry, claims.Monotone | claims.Slope):
        for line in (sorted(along[number] for number in numbers) for numbers in reference.compared):
            if len(set(line)) < max(2, len(line)):
                remedy = "needs two or more different values, other factors fixed; a line has"
                yield reference.problem("x", f"{remedy} {', '.join(f'{value:g}' for value in line)}")
                return


def _values(reference: Reference, field: str) -> list[Any]:
    name = getattr(reference.entry, field)
    return [reference.grid.cells[number].coordinates.get(name) for number in reference.chosen]


def _nothing_selected(selection: claims.Selection, grid: PlannedGrid) -> str:
    """Say which levels exist of what a selection names, as they must be written."""
    unknown = [name for name, value in selection.items() if not grid.select({name: value})]
    levels = {
        name: dict.fromkeys(level(cell.coordinates, name) for cell in grid.cells) for name in unknown or selection
    }
    written = {name: (json.dumps(each, ensure_ascii=False) for each in found) for name, found in levels.items()}
    has = ", ".join(f"{name} = {' or '.join(each)}" for name, each in written.items())
    together = "" if unknown else f", but no {grid.words[0]} has all that is selected"
    return f"selects no {grid.words[0]} of the {grid.words[1]}; it has {has}{together}"


def require_answerable(document: Document, grids: Mapping[str, PlannedGrid]) -> None:
    """Refuse claims, figures and target errors that name what the grids lack, or that cells cannot answer."""
    entries = {f"claims.{name}": claim for name, claim in document.claims.items()}
    problems: list[Problem] = []
    for each in refer(grids, entries | {f"figures.{name}": figure for name, figure in document.figures.items()}):
        if isinstance(each.entry, claims.BaseClaim):
            if why := lacking(each.cells, order_of(each.entry)):
                problems.append(each.problem("measure", f"need not exist: {why}; use lighter tails or another measure"))
            problems += _lacked(f"{each.path}.measure", each.entry.measure, each.cells)
        else:
            problems += _lacked(f"{each.path}.y", each.entry.y, each.cells, by_all=True)
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
            problems.append(Problem(f"grids.{name}.by_query", True, why))
    for (path, measure), of in wanted.items():
        problems += _lacked(path, measure, of, by_all=True)
    if problems:
        raise DesignError("", problems)


def _lacked(path: str, measure: str, cells: Sequence[Cell], by_all: bool = False) -> Iterator[Problem]:
    possible: list[list[str]] = []  # numbers of the functions of each cell, or measures of its ensemble
    for cell in cells:
        absent = {*_OF_LEARNERS} - {*cell.statistics}
        absent |= set(_GAPS if "direct_mse" in absent else ())
        ensemble = [name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in absent]
        possible.append(ensemble if cell.functions is None else [*cell.statistics, "failure_rate"])
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


def order_of(claim: claims.BaseClaim) -> int:
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


def draws_of(claim: claims.BaseClaim, planned: Iterable[PlannedCell]) -> Draws:
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
