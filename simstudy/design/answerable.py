"""Claims and figures, and the cells and draws that they depend on; unknown cells and measures are refused."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from simstudy.design.document import MOST_ZIPS, BaseClaim, Document, Grid, Optimum, PlannedCell, Selection
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.settings.cell import TABLE_OF, Cell, label
from simstudy.design.settings.choices import FittedRegression
from simstudy.design.settings.records import DesignError, Problem, nearest

Coordinates = dict[str, Any]
"""Settings of a cell by name, as they label it in results."""
_FIXED = "fixed(value="
_GAPS = {"decomposition_gap", "ambiguity_gap", "correlation_gap", "query_correlation_gap", "equivalent_heads"}
"""Measures that need ``direct_mse``."""
_OF_PAIRS = {"correlation", "query_correlation", "mean_covariance", "linear_predictability", *_GAPS} - {"ambiguity_gap"}
"""Measures of two heads or more."""
_NEEDED = dict.fromkeys(_OF_PAIRS, "it compares heads; use two or more") | {
    "regret": 'only ants have it: learner = "ant_colony"',
    "discrepancy": "it needs a reference computation; state reference",
    "hdi": "it is many numbers, one for each index; only claims can state an index",
}
"""Remedy, by measure, if an ensemble does not have it."""
_NOUNS = {
    "queries": "query points",
    "heads": "random heads",
    "held_out": "held-out rows",
    "head_files": "heads of files",
    "rows": "rows of data",
}
"""Draws in words, in the order of messages."""


def level(coordinates: dict[str, Any], factor: str) -> Any:
    """Return the level of a factor in a cell; a rule of bandwidths is one level, although its bandwidths differ."""
    rule = str(coordinates.get("bandwidth_rule", _FIXED))
    return rule if factor == "bandwidth" and rule and not rule.startswith(_FIXED) else coordinates.get(factor, "")


def selected(coordinates: Coordinates, selection: dict[str, Any]) -> bool:
    """Return true if a cell has all selected levels; a list is compared by its label."""
    levels = {k: label(v) if isinstance(v, list) else v for k, v in selection.items()}
    return all(level(coordinates, key) == value for key, value in levels.items())


def by_levels(coordinates: Sequence[Coordinates], factors: Iterable[str], chosen: Iterable[int]) -> list[list[int]]:
    """Return groups of the chosen cells by levels of some factors, in order; one group without factors."""
    names, found = tuple(factors), defaultdict[tuple[Any, ...], list[int]](list)
    for cell in chosen:
        found[tuple(level(coordinates[cell], name) for name in names)].append(cell)
    return list(found.values())


def partners(
    coordinates: Sequence[Coordinates], factors: Iterable[str], versus: dict[str, Any], chosen: Iterable[int]
) -> dict[int, int]:
    """Return, for each cell that has one, the cell that differs from it in the levels of ``versus`` only."""
    rest = [tuple(level(row, name) for name in factors if name not in versus) for row in coordinates]
    first = {rest[cell]: cell for cell in reversed(range(len(rest))) if selected(coordinates[cell], versus)}
    return {cell: first[rest[cell]] for cell in chosen if first.get(rest[cell], cell) != cell}


class PlannedGrid(NamedTuple):
    """A grid to select from, for claims and figures: factors, coordinates of its cells, and the cells if known."""

    factors: tuple[str, ...]
    rows: Sequence[Coordinates]
    cells: Sequence[Cell] = ()
    stated: Grid = Grid()
    selectable: tuple[str, ...] = (*TABLE_OF, "bandwidth_rule")

    def select(self, selection: Selection) -> list[int]:
        """Return the numbers of the selected cells."""
        return [number for number, row in enumerate(self.rows) if selected(row, selection)]


class Reference(NamedTuple):
    """A claim or figure with its path in the file, its grid, and the numbers of the cells that it selects."""

    path: str
    entry: Any
    grid: PlannedGrid
    chosen: list[int]

    def stated(self, field: str) -> Any:
        """Return the entry of this name, or None."""
        return getattr(self.entry, field, None)

    @property
    def cells(self) -> list[Cell]:
        """The selected cells, and those with which they are compared."""
        others = [] if self.stated("versus") is None else self.grid.select(self.entry.where | self.entry.versus)
        return [self.grid.cells[number] for number in sorted({*self.chosen, *others})]

    @property
    def compared(self) -> list[list[int]]:
        """Groups of cells that are compared: each cell with its partner, or cells along the factors of the entry."""
        factors, rows = self.grid.factors, self.grid.rows
        if (versus := self.stated("versus")) is not None:
            return [[cell, other] for cell, other in partners(rows, factors, versus, self.chosen).items()]
        along = {*(self.stated("tune") or ()), self.stated("x")} - {None}
        return by_levels(rows, [name for name in factors if name not in along], self.chosen) if along else []

    def levels(self, field: str) -> list[Any]:
        """Return the levels, in the selected cells, of the factor that an entry names."""
        return [self.grid.rows[number].get(self.stated(field)) for number in self.chosen]

    def problem(self, field: str, remedy: str) -> Problem:
        """Return a mistake in an entry."""
        return Problem(f"{self.path}.{field}", self.stated(field), remedy)


def refer(grids: Mapping[str, PlannedGrid], entries: Mapping[str, Any], place: str = "") -> list[Reference]:
    """Return claims and figures with the grids and cells they refer to; `DesignError` if these do not exist."""
    absent = {path: entry for path, entry in entries.items() if entry.grid not in grids}
    problems = [Problem.unknown(f"{path}.grid", entry.grid, grids, noun="grid") for path, entry in absent.items()]
    found = ((path, entry, grids[entry.grid]) for path, entry in entries.items() if path not in absent)
    references = [Reference(path, entry, grid, grid.select(entry.where)) for path, entry, grid in found]
    for each in references:
        problems += [*_wrong_entries(each)] or [*_wrong_selections(each)]
    if problems:
        raise DesignError(place, problems)
    return references


def _wrong_entries(reference: Reference) -> Iterator[Problem]:
    """Yield entries that contradict others, and names that the grid lacks."""
    entry, grid, factors, stated = reference.entry, reference.grid, reference.grid.factors, reference.stated
    has_number = entry.kind not in ("optimum", "optimum_slope", "violated_pairs")
    for field, wrong, remedy in (
        ("source", stated("source") == "exact" and not grid.stated.exact, f"set exact = true in [grids.{entry.grid}]"),
        ("index", isinstance(entry, BaseClaim) and (entry.measure == "hdi") != (entry.index is not None),
         'state index for measure = "hdi", and only then'),
        ("compared", stated("compared") == "ratio" and entry.versus is None,
         "state versus, the settings of the cell to compare with"),
        ("value", isinstance(entry, Optimum) and (entry.value is None) == (entry.source is None),
         "state either value or source, the theory that gives it"),
        ("holds", stated("holds") == "on_average" and not (grid.stated.domain and has_number),
         "needs a domain, and a kind of claim on a number"),
        ("excludes", stated("excludes") is not None and abs(entry.excludes - entry.value) <= entry.margin,
         "must be farther from value than margin: no verdict could distinguish them"),
    ):  # fmt: skip
        if wrong:
            yield reference.problem(field, remedy)
    for field in ("x", "hue", "panel", "by", "along", "over", "tune"):
        names = stated(field) or ()
        for name in (names,) if isinstance(names, str) else names:
            if name not in factors:
                yield Problem.unknown(f"{reference.path}.{field}", name, factors, noun="factor")
            elif field in ("over", "tune", "along") and name in (stated("x"), stated("hue"), stated("panel")):
                yield reference.problem(field, f"{name} is x, hue or panel already; name another factor")
    known = tuple(dict.fromkeys((*grid.selectable, *factors)))
    for field in ("where", "versus", "stands"):
        selection = stated(field) or {}
        unknown = [key for key in selection if key not in known]
        for key in unknown:
            used = [name for name in known if any(row.get(name, "") != "" for row in grid.rows)]
            yield Problem.unknown(f"{reference.path}.{field}.{key}", selection[key], used or known)
        if field == "versus" and not unknown and not selection.keys() <= {*factors}:
            yield reference.problem("versus", f"may name factors only: {', '.join(factors)}")


def _wrong_selections(reference: Reference) -> Iterator[Problem]:
    """Yield selections without cells, and factors whose levels do not fit the claim or figure."""
    entry, grid, chosen, versus = reference.entry, reference.grid, reference.chosen, reference.stated("versus")
    if not chosen:
        yield reference.problem("where", _nothing_selected(entry.where, grid))
        return
    if (stands := reference.stated("stands")) and not {*grid.select(stands)} & {*chosen}:
        yield reference.problem("stands", "is no cell that the claim selects; state levels of one")
    if versus is not None and not grid.select(entry.where | versus):
        yield reference.problem("versus", _nothing_selected(versus, grid))
    elif versus is not None and not reference.compared:
        yield reference.problem("versus", "compares each selected cell with itself or none; select others in where")
    if entry.kind == "zip" and len(chosen) > MOST_ZIPS:
        yield reference.problem("where", f"selects {len(chosen)} cells; select at most {MOST_ZIPS}")
    numeric = ("over",) if reference.stated("over") else ("x", "along") if entry.kind.startswith("optimum") else ()
    for field in filter(reference.stated, numeric):
        levels = {*reference.levels(field)}
        if not all(isinstance(value, (int, float)) and value > 0 for value in levels) or len(levels) < 3:
            yield reference.problem(field, "needs three or more different values, all of them positive numbers")
    if reference.stated("x") is None:
        return
    along = dict(zip(chosen, reference.levels("x"), strict=True))
    logarithmic = {reference.stated("scale"), reference.stated("x_scale")} & {"log", "log_x", "log_log"}
    if not all(isinstance(value, (int, float)) for value in along.values()):
        yield reference.problem("x", "is not a number everywhere; use a numeric factor")
    elif logarithmic and (low := min(along.values())) <= 0:
        yield reference.problem("x", f"is {low:g} in one of them and has no logarithm; use a linear scale")
    elif entry.kind in ("monotone", "slope"):
        lines = [sorted(along[number] for number in numbers) for numbers in reference.compared]
        if wrong := [line for line in lines if len({*line}) < max(2, len(line))]:
            values = ", ".join(f"{value:g}" for value in wrong[0])
            yield reference.problem("x", f"needs two or more different values, other factors fixed; one has {values}")


def _nothing_selected(selection: Selection, grid: PlannedGrid) -> str:
    """Return the message that no cell is selected, with the existing levels as they must be written."""
    unknown = [name for name, value in selection.items() if not grid.select({name: value})]
    found = {name: dict.fromkeys(level(row, name) for row in grid.rows) for name in unknown or selection}
    has = [f"{k} = {' or '.join(json.dumps(v, ensure_ascii=False) for v in levels)}" for k, levels in found.items()]
    return f"selects nothing; there is {', '.join(has)}{'' if unknown else ', but no cell has all of them'}"


def require_answerable(document: Document, planned: Sequence[PlannedCell]) -> None:
    """Raise a `DesignError` if claims, figures or target errors need cells or measures that do not exist."""
    cells = {name: [each.cell for each in planned if each.grid == name] for name in document.grids}
    grids = {
        name: PlannedGrid((*grid.domain, *grid.factors), [cell.coordinates for cell in cells[name]], cells[name], grid)
        for name, grid in document.grids.items()
    }
    entries: dict[str, Any] = {f"claims.{name}": claim for name, claim in document.claims.items()}
    needed, problems = dict[tuple[str, str], Sequence[Cell]](), list[Problem]()
    for each in refer(grids, entries | {f"figures.{name}": figure for name, figure in document.figures.items()}):
        field = "measure" if isinstance(each.entry, BaseClaim) else "y"
        needed[f"{each.path}.{field}", each.stated(field)] = each.cells
    # A target error for all grids is valid if one grid has the measure; other profiles may leave out grids.
    everywhere = [each.cell for each in planned]
    for name, grid in grids.items():
        for kind in ("relative_mcse", "absolute_mcse"):
            own = grid.stated.precision.get(kind)
            path = f"precision.{kind}" if own is None else f"grids.{name}.precision.{kind}"
            measures = getattr(document.precision, kind) if own is None else own
            needed |= {(path, measure): everywhere if own is None else grid.cells for measure in measures}
        if grid.stated.by_query and any({"queries", c.queries.queries.kind} & {*c.population} for c in grid.cells):
            remedy = "query points are a population, drawn anew in each batch; remove it"
            problems.append(Problem(f"grids.{name}.by_query", True, remedy))
    problems += [each for (path, measure), on in needed.items() for each in _missing_measure(path, measure, on)]
    if problems:
        raise DesignError("", problems)


def _missing_measure(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    """Yield a problem if a measure is missing in some cell of a claim, or in all cells of another entry."""
    is_claim = path.startswith("claims.")
    lacking = {*(() if is_claim else INDEXED_MEASURES), *(_OF_PAIRS if all(c.n_members == 1 for c in cells) else ())}
    known: list[list[str]] = []  # numbers of the functions of each cell, or measures of its ensemble
    for cell in cells:
        absent = {"direct_mse", "query_correlation", "discrepancy", *OCCASIONAL} - {*cell.statistics} | lacking
        absent |= _GAPS if "direct_mse" in absent else set()
        ensemble = [name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in absent]
        known.append(ensemble if cell.functions is None else [*cell.statistics, "failure_rate"])
    without = [cell.functions for cell, names in zip(cells, known, strict=True) if measure not in names]
    if len(without) < (1 if is_claim else len(cells)):
        return
    names = [name for name in known[0] if all(name in each for each in known)]
    source = f"functions: {without[0].label}" if without[0] else "heads"
    remedy = f'did you mean "{near}"?' if (near := nearest(measure, names)) else f"use one of {', '.join(names)}"
    remedy = remedy if without[0] else _NEEDED.get(measure, remedy)
    yield Problem(path, measure, f"does not exist in {len(without)} of {len(cells)} cells ({source}); {remedy}")


def draws_of(claim: BaseClaim, planned: Iterable[PlannedCell]) -> str:
    """Return in words the draws on which a claim depends, among planned cells."""
    cells = [each.cell for each in planned if each.grid == claim.grid]
    grid = PlannedGrid((), [cell.coordinates for cell in cells], cells)
    involved = Reference("", claim, grid, grid.select(claim.where)).cells
    # Diversity indices depend on heads only, except indices of outputs.
    heads_alone = claim.measure == "hdi" and not str(claim.index).startswith("output")
    return draws_in(involved, {"heads", "head_files"} if heads_alone else _NOUNS.keys())


def draws_in(cells: Sequence[Cell], considered: Collection[str] = _NOUNS.keys()) -> str:
    """Return in words the draws, fixed or of a population, on which measures of cells depend; empty without any."""
    parts: dict[str, list[str]] = {"over a population of": [], "for": []}
    for part, noun in ((part, noun) for part, noun in _NOUNS.items() if part in considered):
        if any(part in cell.population for cell in cells):
            parts["over a population of"].append(noun)
        concerned = [cell for cell in cells if part in cell.drawn | cell.given]
        if all(part in cell.population for cell in concerned):
            continue
        numbers = set[Any]()  # stated if it is the same in all cells
        for cell in concerned:
            held_out = getattr(cell.data.key_distribution, "held_out", None)
            held_out = cell.n_queries if cell.queries.queries.kind == "held_out" else held_out
            numbers.add({"queries": cell.n_queries, "held_out": held_out, "heads": cell.heads.n_heads}.get(part))
        number = numbers.pop() if len(numbers) == 1 else None
        text = f"this one {noun.removesuffix('s')}" if number == 1 else f"these {f'{number} ' if number else ''}{noun}"
        fitted = part == "held_out" and any(isinstance(cell.data.regression, FittedRegression) for cell in concerned)
        parts["for"].append(f"{text} with what is fitted to the others" if fitted else text)
    return ", ".join(f"{how} {' and '.join(drawn)}" for how, drawn in parts.items() if drawn)
