"""Cells of a grid: settings drawn from its domain, combined with all levels of factors; each cell is validated once."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from simstudy.design.answerable import by_levels, level
from simstudy.design.contents import OwnFiles, read_contents
from simstudy.design.document import MAX_CELLS, Document, Grid, PlannedCell, Precision
from simstudy.design.measures import RESERVED
from simstudy.design.settings import records
from simstudy.design.settings.cell import N_BLOCKS, OF_ALL, OF_FUNCTIONS, TABLE_OF, TABLES, Cell
from simstudy.design.settings.choices import CompactNormaliser, FileKeys, HeteroscedasticNoise, ResidualNoise
from simstudy.design.settings.records import DesignError, Problem, Steps, mistake, path_of, validated

MAX_ARRAY_BYTES = 8 << 30
"""Largest array that one replicate may need, in bytes."""
Tables = dict[str, dict[str, Any]]  # raw settings, by table
_ONE_HEAD: Tables = {
    "data": {"n_keys": 1, "n_features": 1},
    "heads": {"n_heads": 1, "head_dim": 1, "arrangement": "aligned"},
    "estimator": {"bandwidth": 1.0},
}
"""Settings of heads for cells of functions, which have no heads: one head and one key."""
TRIES = 100
"""Largest number of draws from a domain for each setting needed; some draws are equal or impossible."""


def plan_grid(document: Document, name: str, files: OwnFiles, drawn_from: Any) -> list[PlannedCell]:
    """Return the cells of a grid, the last factor varying fastest; `DesignError` if one is invalid."""
    grid = document.grids[name]
    base: Tables = {table: getattr(document, table) for table in TABLES}
    if has_functions := "method" in {*document.functions, *grid.settings, *grid.factors}:
        simulation = {"control": "none"} | {k: value for k, value in document.simulation.items() if k in OF_ALL}
        base = _ONE_HEAD | {"simulation": simulation, "functions": {"parameters": {}} | document.functions}
        if not isinstance(parameters := base["functions"]["parameters"], dict):
            raise mistake("functions.parameters", parameters, "Input should be a valid dictionary")
    if wrong := [*_wrong_names(name, grid, has_functions)]:
        raise DesignError("", wrong)
    cells = _drawn(base, name, grid, files, drawn_from) if grid.domain else _crossed(base, name, grid, files, {})
    if not cells:
        raise mistake(f"grids.{name}.drop", grid.drop, "leaves no cell; drop fewer combinations")
    # Cells of a grid are paired: no cell is controlled if one has no closed forms, unless the design states a control.
    if not all(c.controlled and c.has_closed_forms and not (c.population and document.claims) for c in cells):
        cells = [c if "control" in c.simulation.model_fields_set else c.with_simulation(control="none") for c in cells]
    # Measures of functions count as numbers or shares of events unless the design says otherwise.
    counted = frozenset(measure for cell in cells if cell.functions for measure in cell.statistics)
    counted -= {measure for measure, text in document.measures.items() if not text.counted}
    entries = document.precision.model_dump() | grid.precision
    own = ["grids", name, "precision"]  # place of an entry: in the grid, or for all grids
    precision = validated(Precision, entries, lambda steps: [*(own if steps[0] in grid.precision else own[2:]), *steps])
    common: dict[str, Any] = {"grid": name, "precision": precision, "by_query": grid.by_query, "exact": grid.exact}
    planned = [PlannedCell(cell=cell, counted=counted & {*cell.statistics}, **common) for cell in cells]
    path, factors, rows = f"grids.{name}.factors", (*grid.domain, *grid.factors), [cell.coordinates for cell in cells]
    for first, *others in by_levels(rows, factors, range(len(cells))):
        if others:
            levels = tuple(level(rows[first], factor) for factor in factors)
            raise mistake(path, levels, "two cells have these values; remove or relabel one")
    shared = {(cell.simulation.seed, cell.simulation.batch_size) for cell in cells}
    if len(shared) > len({seed for seed, _ in shared}):
        raise mistake(path, None, "cells share replicates in batches of different sizes; use one batch_size")
    return planned


def require_few_cells(document: Document) -> None:
    """Raise a `DesignError` for a design with too many cells, before any is made."""
    grids = document.grids.items()
    sizes = {k: math.prod(map(len, g.factors.values()), start=g.cells if g.domain else 1) for k, g in grids}
    if (total := sum(sizes.values())) > MAX_CELLS:
        largest = max(sizes, key=lambda name: sizes[name])
        remedy = f"brings the design to {total} cells, more than {MAX_CELLS}; use fewer values"
        raise mistake(f"grids.{largest}.factors", sizes[largest], remedy)


def _drawn(base: Tables, name: str, grid: Grid, files: OwnFiles, drawn_from: Any) -> list[Cell]:
    """Return the cells of settings drawn from the domain of a grid; `DesignError` if too few are possible.

    Each drawn setting has its own seeds.  An impossible setting is drawn again.
    """
    own: Steps = ["grids", name, "settings"] if "seed" in grid.settings else ["simulation"]
    stated = grid.settings.get("seed", base["simulation"].get("seed", 0))
    validated(TABLES["simulation"], {"seed": stated}, lambda steps: [*own, *steps])  # cells get other seeds
    digest = hashlib.blake2b(json.dumps([[stated, drawn_from], name]).encode(), digest_size=16).digest()
    rng = np.random.default_rng(int.from_bytes(digest))
    fresh = ("seed",) if "functions" in base or "head_seed" in {*grid.domain, *grid.factors} else ("seed", "head_seed")
    found, known = list[list[Cell]](), set[str]()
    for _ in range(TRIES * grid.cells):
        drawn = {setting: each.draw(rng) for setting, each in grid.domain.items()}
        seeds = {each: int(rng.integers(1 << 62)) for each in fresh}
        if (key := repr(drawn)) in known:
            continue
        known.add(key)
        try:
            found.append(_crossed(base, name, grid, files, drawn | seeds))
        except DesignError as error:
            impossible = error
            if not found and len(known) > TRIES:
                break
        if len(found) == grid.cells:
            return [cell for cells in found for cell in cells]
    remedy = f"only {len(found)} different settings of the domain are possible; widen it, or ask for fewer cells"
    raise mistake(f"grids.{name}.cells", grid.cells, remedy) if found else impossible


def _crossed(base: Tables, name: str, grid: Grid, files: OwnFiles, drawn: dict[str, Any]) -> list[Cell]:
    cells, made = list[Cell](), dict[tuple[str, str], Any]()  # validated tables, by name and content
    for numbered in itertools.product(*map(enumerate, grid.factors.values())):
        levels = {factor: value for factor, (_, value) in zip(grid.factors, numbered, strict=True)}
        if any(all(levels[factor] == value for factor, value in each.items()) for each in grid.drop):
            continue
        # Copies of the raw tables, in which settings and their parameters are replaced.
        tables = {table: dict(content) for table, content in base.items()}
        functions = tables.get("functions")
        for stated, value in [*(grid.settings | drawn).items(), *levels.items()]:
            setting, _, parameter = stated.partition(".")
            # An entry of [functions] that [functions.parameters] also names is a parameter.
            if functions is not None and setting in OF_FUNCTIONS and setting not in functions["parameters"]:
                functions[setting] = value
            elif functions is not None and setting not in OF_ALL:
                functions["parameters"] = functions["parameters"] | {setting: value}
            else:
                table = tables[TABLE_OF[setting]]
                known = table.get(setting)
                whole = {"kind": known} if isinstance(known, str) else known if isinstance(known, dict) else {}
                table[setting] = {**whole, parameter: value} if parameter else value
        at = partial(_place, name, grid, [number for number, _ in numbered])
        held = {table: (table, repr(content)) for table, content in tables.items() if table in TABLES}
        known = {table: made[key] for table, key in held.items() if key in made}
        cell = validated(Cell, tables | known, at, context=files)
        made |= {key: getattr(cell, table) for table, key in held.items()}
        try:
            cell = read_contents(cell, files.folder) if cell.files else cell
            if wrong := impossibilities(cell) or (files.faults(cell) if cell.own else []):
                raise DesignError("", [Problem(setting, None, remedy) for setting, remedy in wrong])
        except DesignError as error:
            for number, (setting, _, remedy) in enumerate(error.problems):
                value = level(cell.coordinates, setting.rpartition(".")[2])
                steps = at([TABLE_OF.get(setting, "functions"), *setting.split(".")])
                error.problems[number] = Problem(path_of(steps), None if value == "" else value, remedy)
            raise DesignError("", error.problems) from None
        cells.append(cell)
    return cells


def _wrong_names(name: str, grid: Grid, has_functions: bool) -> Iterator[Problem]:
    """Yield unknown names of settings and factors; parameters of functions may have almost any name."""
    if name in ("settings", "verdicts", "comparisons"):
        yield Problem(f"grids.{name}", name, "is a name of results; give the grid another name")
    for section in ("settings", "factors", "domain"):
        for key, value in getattr(grid, section).items():
            (setting, dot, parameter), path = key.partition("."), f"grids.{name}.{section}.{key}"
            if not has_functions and (setting not in TABLE_OF or (dot and not parameter)):
                yield Problem.unknown(path, value, TABLE_OF)
            elif has_functions and section != "settings" and key in RESERVED:
                yield Problem(path, value, "is a name of results; give it another name")
            elif parameter in ("kind", "label") and section != "settings":
                remedy = f"is the kind or the label of a choice; write {setting} = […], a list of whole choices"
                yield Problem(path, None, remedy)
    for number, each in enumerate(grid.drop):
        if not each or each.keys() - grid.factors.keys():
            yield Problem(f"grids.{name}.drop[{number}]", each, f"state levels of factors: {', '.join(grid.factors)}")
    for twice in sorted(grid.domain.keys() & (grid.factors.keys() | grid.settings.keys())):
        yield Problem(f"grids.{name}.domain.{twice}", None, "also a factor or setting of the grid; state one")


def _place(name: str, grid: Grid, numbers: list[int], steps: Steps) -> Steps:
    """Return the place of an entry of a cell in the file: in a table, or as a setting or factor of the grid."""
    inside = steps[2:] if steps[:2] == ["functions", "parameters"] else steps[1:]
    for length in (2, 1):  # a parameter of a setting may be a factor
        stated = ".".join(map(str, inside[:length]))
        if stated in grid.factors:
            return ["grids", name, "factors", stated, numbers[[*grid.factors].index(stated)], *inside[length:]]
        for section in ("domain", "settings"):
            if stated in getattr(grid, section):
                return ["grids", name, section, stated, *inside[length:]]
    return steps


def impossibilities(cell: Cell) -> list[tuple[str, str]]:
    """Return setting and remedy for every rule that the combined settings of a cell break."""
    if cell.functions is None:
        found = [*_missing_settings(cell), *_wrong_sizes(cell)]
    else:
        remedy = "is another variable of results; give the number another name"
        named = [("measures", f"{name!r} {remedy}") for name in sorted({*cell.statistics} & RESERVED)]
        found = [*named, *cell.functions.impossibilities()]
    if (size := cell.simulation.batch_size) % N_BLOCKS and size not in ((4, 8) if cell.population else ()):
        found.append(("batch_size", "must be a multiple of 16, or 4 or 8 with a population"))
    return found


def _wrong_sizes(cell: Cell) -> Iterator[tuple[str, str]]:
    """Yield settings of sizes that do not fit, of arrays that are too large, and of distributions that lack moments.

    An estimate Σ w_i Y_i has bounded weights, so its tails are those of drawn noise and of m(X).  Noise t(ν) has
    moments below ν, and m of degree k with t(ν) keys has moments below ν/k.  The Monte Carlo error of a mean squared
    error needs a fourth moment.
    """
    data, heads, estimator, rows, spread = cell.data, cell.heads, cell.estimator, cell.file_rows, cell.data.noise_sd > 0
    d, p, n_heads = data.n_features, heads.head_dim, heads.n_heads
    keys, queries, combination = data.key_distribution, cell.queries.queries, estimator.combination
    components, values = (getattr(heads.value_projections, name, 0) for name in ("n_components", "value_dim"))
    entries: Any
    for setting, entries, noun, number, limit in (
        ("combination", getattr(combination, "weights", None), "weights", n_heads, "n_heads"),
        ("head_bandwidths", estimator.head_bandwidths, "factors", n_heads, "n_heads"),
        ("principal_angles", heads.principal_angles, "angles", p, "head_dim"),
        ("n_features", rows and rows.keys.T, "columns of the data", d, "n_features"),
    ):
        if entries is not None and len(entries) != number:
            yield setting, f"{len(entries)} {noun} for {limit} = {number}; state as many"
    needs = {"rotated": "angle", "scattered": "spread", "own": "heads_function"}
    required = needs.get(heads.arrangement, heads.arrangement)
    for setting in ("angle", "principal_angles", "spread", "file", "heads_function"):
        if (getattr(heads, setting) is None) == (setting == required):
            action = "state" if setting == required else "remove"
            yield setting, f'{action} {setting} for arrangement = "{heads.arrangement}"'
    at_most = [  # setting, its number, name of the number, its limit
        ("head_dim", p, "dimensions", d, "n_features"),
        ("n_heads", heads.features_needed if p <= d else 0, "features for so many heads", d, "n_features"),
        ("key_distribution", getattr(keys, "n_components", 0), "components", d, "n_features"),
        ("queries", max(map(len, getattr(queries, "points", [()]))), "coordinates of a point", d, "n_features"),
        ("learner", getattr(estimator.learner, "max_features", 0), "features at a split", d, "n_features"),
        ("transformation", getattr(estimator.transformation, "rank", 0), "as rank", p, "head_dim"),
        ("value_projections", values, "dimensions of a value", components, "n_components"),
        ("n_keys", 3 if estimator.learner.kind == "trained" else 0, "pairs for training", data.n_keys, "n_keys"),
    ]
    broken = [  # setting, true if it is impossible, the remedy
        ("total_dim", heads.total_dim not in (None, n_heads * p),
         f"must be n_heads·head_dim = {n_heads}·{p}; state a multiple, and one of the two alone"),
        ("combination", combination.kind == "optimal" and "heads" in cell.population,
         "follows from errors of fixed heads, and heads are a population; change one of the two"),
        ("noise", isinstance(data.noise, ResidualNoise) and not data.noise.paired and "rows" in cell.population,
         "of random rows does not belong to a population of rows; use paired = true"),
        ("bandwidth", not records.SMALLEST <= cell.bandwidth <= records.LARGEST,
         f"comes to {cell.bandwidth:g}, outside [{records.SMALLEST:g}, {records.LARGEST:g}]; change the rule"),
    ]  # fmt: skip
    for term in data.terms:
        lists = [getattr(term, name, ()) for name in ("coefficients", "direction")]
        coordinates = getattr(term, "coordinates", ())
        needed = max(*map(len, lists), getattr(term, "n_active", None) or 0, *coordinates)
        at_most.append(("regression", needed, f"coordinates of {term.kind}", d, "n_features"))
        broken += [
            ("regression", not any(getattr(term, "direction", [1.0])),
             "the direction of a ridge function must not be zero"),
            ("regression", len({*coordinates}) < len(coordinates),
             "the coordinates of an interaction must differ; a square is a quadratic function"),
        ]  # fmt: skip
    if isinstance(keys, FileKeys) and rows is not None:
        asked, pairs = getattr(queries, "count", 0), data.n_keys + getattr(combination, "n_validation", 0)
        kept = len(rows.keys) + len(rows.points) - keys.held_out
        at_most += [
            ("queries", asked if queries.kind == "held_out" else 0, "rows as queries", keys.held_out, "held_out"),
            ("n_keys", pairs if keys.sampling == "without" else 0, "pairs without replacement", kept, "rows"),
        ]
    for setting, number, noun, most, limit in at_most:
        if number > most:
            yield setting, f"{number} {noun}, but {limit} = {most}; lower the one or raise the other"
    degree = max(getattr(term, "degree", 0) for term in data.terms)
    degree = max(degree, int(spread and isinstance(data.noise, HeteroscedasticNoise)))
    noise = data.noise if spread and cell.simulation.noise_treatment == "drawn" else None
    for setting, tail, least in (("noise", noise, 4), ("key_distribution", keys, 4 * degree)):
        wrong = getattr(tail, "df", math.inf) <= least
        broken.append((setting, wrong, f"squared errors have no variance unless df > {least}; raise it"))
    numbers = {
        "n_keys": data.n_keys * max(d, n_heads * p),  # keys as drawn, and as projected by every head
        "queries": cell.n_queries * max(d, N_BLOCKS * n_heads**2),  # points, and moments of every pair of heads at each
        "n_heads": n_heads**2 * d * p,  # both bases of every pair of heads
        "value_projections": n_heads * values * max(components, n_heads * values),
    }
    for setting, count in numbers.items():
        array = f"one replicate needs an array of {8 * count / 2**30:.3g} GiB, above {MAX_ARRAY_BYTES >> 30}"
        broken.append((setting, 8 * count > MAX_ARRAY_BYTES, f"{array}; use fewer"))
    yield from ((setting, remedy) for setting, wrong, remedy in broken if wrong)


def _missing_settings(cell: Cell) -> Iterator[tuple[str, str]]:
    """Yield settings without others that they need to have a meaning or a known error."""
    estimator, combination, normaliser = cell.estimator, cell.estimator.combination, cell.estimator.normaliser
    heads, distance, dot_product = 'learner = "nadaraya_watson"', 'logits = "distance"', 'logits = "dot_product"'
    raw, drawn, untransformed = 'key_scale = "raw"', 'noise_treatment = "drawn"', 'transformation = "none"'
    keys, queries, fitted = 'key_distribution = "file"', 'queries = "held_out"', 'regression = "fitted"'
    exact = 'dtype = "float64"'  # (1 − |u|²)^9 falls below the smallest float32
    plain = (untransformed, 'normaliser = "softmax"', "no product of kernels")
    values = (heads, 'combination = "uniform"', 'reference = "none"')
    stated = (*cell.data, *estimator, *cell.queries, *cell.simulation)
    met = {f'{name} = "{getattr(value, "kind", value)}"' for name, value in stated}
    met |= {"no product of kernels"} if combination.kind != "product" else set()
    met |= {"weights that are not fitted"} if combination.kind != "fitted" else set()
    met |= {"fixed weights of heads"} if combination.kind not in ("optimal", "fitted", "product") else set()
    for setting, holds, needs in (
        ("regression", cell.data.regression.kind in ("file", "fitted"), (keys, queries)),  # known at the rows only
        ("noise", cell.data.noise.kind == "residuals", (fitted,)),
        ("queries", cell.queries.queries.kind == "held_out", (keys,)),
        ("learner", estimator.learner.kind != "nadaraya_watson", (drawn, *plain)),
        ("learner", estimator.learner.kind == "trained", (distance, raw)),
        ("normaliser", normaliser.kind == "compact", (distance,)),
        ("normaliser", isinstance(normaliser, CompactNormaliser) and normaliser.power > 8, (exact,)),
        ("transformation", getattr(estimator.transformation, "method", "") == "scores", (dot_product,)),
        ("head_bandwidths", estimator.head_bandwidths is not None, (heads, raw)),
        ("combination", combination.kind == "fitted", (heads, drawn)),
        ("reference", estimator.reference != "none", (heads, *plain, "fixed weights of heads")),
        ("mask", estimator.mask.kind != "none", (heads, untransformed, "weights that are not fitted")),
        ("value_projections", cell.heads.value_projections.kind != "none", values),
    ):
        for need in needs if holds else ():
            if need not in met:
                yield setting, f"needs {need}; change one of the two"
