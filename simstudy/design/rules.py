"""What no replicate can answer, and what the author of a design should know."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from simstudy.design.claims import BaseClaim, OrderingClaim
from simstudy.design.document import Document, PlannedCell
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.mistakes import Problem, nearest
from simstudy.design.moments_needed import ORDER, lacking, order_of, without_error
from simstudy.design.references import PlannedGrid, Reference
from simstudy.design.settings.cell import MIN_BLOCKS, N_BLOCKS, TABLE_OF, Cell
from simstudy.design.settings.levels import level
from simstudy.design.settings.processes import FittedRegression
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
    document: Document, grids: Mapping[str, PlannedGrid], references: Sequence[Reference]
) -> Iterator[Problem]:
    """Yield factors, claims, figures and errors wanted whose answer no replicate can change."""
    for grid in grids.values():
        yield from _idle_factors(grid)
    for each in references:
        if isinstance(each.entry, BaseClaim):
            yield from _unanswerable_claim(each, each.entry)
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
    yield from _empty_populations(grids.values())


def _unanswerable_claim(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    cells = reference.cells
    yield from _compares_equals(reference, claim)
    yield from _compares_batch_sizes(reference, claim)
    yield from _impossible_in_some(f"{reference.path}.measure", claim.measure, cells)
    if why := lacking(cells, order_of(claim)):
        yield reference.problem("measure", f"does not exist: {why}; use lighter tails or another measure")
    if claim.these_draws and not _draws(claim, cells).fixed:
        yield reference.problem("these_draws", "no draw is fixed in its cells; remove it")


def notes(grids: Iterable[PlannedGrid], references: Sequence[Reference]) -> Iterator[Problem]:
    """Yield what the author should know although it is no mistake."""
    claims = {each.path: (each, each.entry) for each in references if isinstance(each.entry, BaseClaim)}
    for path, (reference, claim) in claims.items():
        fixed = _draws(claim, reference.cells).fixed
        if fixed and not claim.these_draws:
            parts = ", ".join(f'"{part}"' for part in fixed)
            these = " and ".join(_these(part, reference.cells) for part in fixed)
            remedy = f"declare population = [{parts}] in its grid, or say in these_draws why it speaks of this draw"
            yield Problem(path, None, f"holds for {these}, drawn once under the seed; {remedy}")
        yield from without_error(f"{path}.measure", claim.measure, order_of(claim), reference.cells)
    claimed = {claim.grid for _, claim in claims.values()}
    for grid in grids:
        stated, wanted = grid.precision, grid.precision.relative_mcse | grid.precision.absolute_mcse
        for measure in wanted:
            yield from without_error(f"grids.{grid.name}.precision", measure, ORDER.get(measure, 0), grid.cells)
        if grid.name not in claimed:
            continue
        if stated.stop == "precision" and not wanted:
            why = f"no error is wanted: cells of {grid.name} stop at min_replicates = {stated.min_replicates}"
            yield Problem("precision", None, f'{why}; state relative_mcse, or stop = "verdict" for its claims')
        cell = grid.cells[-1]
        needed = cell.simulation.batch_size * (MIN_BLOCKS if cell.population else -(-MIN_BLOCKS // N_BLOCKS))
        if stated.max_replicates <= needed - cell.simulation.batch_size:
            why = f"too few for a verdict on any claim of {grid.name}; allow {needed} or more"
            yield Problem("precision.max_replicates", stated.max_replicates, why)


# ---------------------------------------------------------------- measures that cells cannot have


def possible_measures(cell: Cell) -> list[str]:
    """Return the names of the measures that a cell can have: numbers of its instance, or those of an ensemble."""
    if cell.instance is not None:
        return [*cell.statistics, "failure_rate"]
    without = {*NAMES, *_OF_LEARNERS} - {*cell.statistics}
    without |= set(_GAPS if "direct_mse" in without else ())
    return [name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in without]


def _impossible_in_some(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    without = [cell for cell in cells if measure not in possible_measures(cell)]
    if without:
        instance = without[0].instance
        whose = "heads" if instance is None else f"functions: {instance.label}"
        needed = _NEEDED.get(measure) if instance is None else None
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


def _empty_populations(grids: Collection[PlannedGrid]) -> Iterator[Problem]:
    cells = [cell for grid in grids for cell in grid.cells]
    stated = {part for cell in cells for part in cell.simulation.population}
    for part in sorted(stated - {part for cell in cells for part in cell.population}):
        yield Problem("simulation.population", part, "no cell draws any at random; leave it out")
    new_points = {"gaussian": "queries", "held_out": "held_out"}
    for grid in grids:
        if grid.by_query and any(new_points.get(cell.queries.queries.kind) in cell.population for cell in grid.cells):
            why = "query points are a population, new in each batch; remove it"
            yield Problem(f"grids.{grid.name}.by_query", True, why)


# ---------------------------------------------------------------- cells that cannot differ


def _idle_factors(grid: PlannedGrid) -> Iterator[Problem]:
    numbers = [_numbers(cell) for cell in grid.cells]
    for factor in grid.factors or () if len(set(numbers)) < len(numbers) else ():
        strata = grid.strata((factor,), [*range(len(numbers))])
        if len(strata[0]) > 1 and all(len({numbers[cell] for cell in stratum}) == 1 for stratum in strata):
            levels = tuple(level(grid.cells[cell].coordinates, factor) for cell in strata[0])
            why = f"decides no number of any cell ({_reasons(*(grid.cells[cell] for cell in strata[0][:2]))})"
            yield Problem(f"grids.{grid.name}.factors.{factor}", levels, f"{why}; remove it")


def _compares_equals(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    grid = reference.grid
    for group in reference.compared:
        seen: dict[Hashable, Cell] = {}
        for cell in (grid.cells[number] for number in group):
            first = seen.setdefault(_numbers(cell, claim.measure in _OF_WEIGHTS), cell)
            if first is not cell:
                why = f"compares cells that hold the same numbers: {_named(grid, first, cell)}"
                yield reference.problem("measure", f"{why}; leave such cells out")
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
            yield reference.problem("measure", f"{why}; use one batch_size")
            return


def _numbers(cell: Cell, weighted: bool = True) -> Hashable:
    """What decides the numbers of a cell: of its heads, and where they are ``weighted`` what combines these."""
    combined = (cell.weights or cell.estimator.combination.model_dump_json()) if weighted else None
    return cell.identity(engine=""), combined


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


# ---------------------------------------------------------------- random draws that a claim rests on

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
    grid = PlannedGrid(claim.grid, None, [each.cell for each in planned if each.grid == claim.grid])
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
