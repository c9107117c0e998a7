"""Results of a study as a tree, with a dimension for each factor of a grid, and as a table with a row for each cell."""

import math
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from simstudy.design import measures
from simstudy.design.answerable import Coordinates, level, selected
from simstudy.design.measures import VARIABLES, Variable, coordinates_of, described, labelled, registry
from simstudy.errors import UserError
from simstudy.execution.store import DEFAULT_OUTPUT, RESULTS_FILE, Store, read_tree

LAYOUT = "tree 3"  # version of the layout by `tree_of`, an attribute of results
ERRORS, THEORY, RUN, FIGURES = "errors", "theory", "run", "figures"
SETTINGS, VERDICTS, COMPARISONS = "settings", "verdicts", "comparisons"
_SHOWN = ("n_replicates", "n_failed", "precision_reached")  # shown with measures; other counts are in the group `run`
METHOD, ESTIMATOR = "method", "estimator"
"""Factor of the methods of a study, and the name of its dimension, as ``method`` is an argument of xarray's ``sel``."""
_DIMENSIONS = {METHOD: ESTIMATOR}
DERIVED = ("bandwidth_rule", "total_dim")  # settings that are computed from others
SPARSE = 4  # combinations of factors for each cell, beyond which a grid is a list of cells
_NAMED = ("index", "look", "drawn", "end", "figure")  # dimensions that are not factors
_OPTIONAL = {f"{name}{ending}" for name in measures.OCCASIONAL for ending in ("", "_mcse")} | {
    name for name, variable in VARIABLES.items() if {"figure", "drawn"} & {*variable.dims} or name == "control_variate"
}
"""Variables that a table has only if at least one cell has them."""

Where = Mapping[str, Any] | int
"""One cell: levels of settings that no other cell has, or its number."""
Results = xr.DataTree | xr.Dataset | str | Path
"""Results of `simstudy.run` or `open_results`, or the folder, file or name of a study."""


def setting_of(dimension: str) -> str:
    """Return the name, in designs and tables, of the setting along a dimension of results."""
    return METHOD if dimension == ESTIMATOR else dimension


def open_results(path: str | Path | xr.DataTree) -> xr.DataTree:
    """Load the results of a study.

    Parameters
    ----------
    path
        Folder of results, its ``results.nc``, or the folder of a study or its name in ``outputs`` (its quick profile).
        Or a tree from ``xarray.open_datatree``, which opens the file as well.

    Returns
    -------
    xarray.DataTree
        A group for each grid, whose dimensions are its factors: estimates by the names of measures, and as further
        groups ``errors`` (Monte Carlo standard errors), ``theory``, ``run`` and ``figures``.  Next to the grids:
        ``verdicts`` and ``comparisons``.  Settings that do not vary are attributes of a grid.

    Raises
    ------
    UserError
        If there are no results of a study at the path, or another version of simstudy wrote them in a different layout.
    """
    if isinstance(path, xr.DataTree):
        return checked(path, Path("results"))
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"results = {path!r:.60}: give results of run or open_results, or the folder of a study")
    place = Path(path)
    if len(place.parts) == 1 and not any(map(os.path.isfile, (place, place / RESULTS_FILE))):  # the name of a study
        place = DEFAULT_OUTPUT / place / "quick"
    files = place / RESULTS_FILE, place / "quick" / RESULTS_FILE
    place = next(filter(os.path.isfile, files), files[0]) if os.path.isdir(place) else place
    return checked(read_tree(place), place)


def checked(results: xr.DataTree, path: Path) -> xr.DataTree:
    """Return results; UserError if their layout is that of another version."""
    grids, known = results.children.keys() - {SETTINGS, VERDICTS, COMPARISONS}, str(results.attrs.get("factors"))
    whole = "cell" in results.children.get(SETTINGS, xr.DataTree()) and all(f"{name}: " in known for name in grids)
    if "design_hash" not in results.attrs or not whole:
        raise UserError(f"{path}: these are not the results of a study; give the results.nc of a run")
    stated = map(results.attrs.get, measures.ATTRIBUTES)
    if results.attrs.get("layout") != LAYOUT or not all(isinstance(each, str) for each in stated):
        version, commit = (str(results.attrs.get(name) or "unknown") for name in ("simstudy_version", "commit"))
        message = f"{path}: layout of another version of simstudy ({version}, commit {commit})"
        raise UserError(f"{message}; run the study again")
    return results


def cells_of(results: Results) -> xr.Dataset:
    """Return results as a table along ``cell``, as the other layers of the package use them."""
    if not isinstance(results, xr.Dataset):
        return _flat(open_results(results))
    factors_of(results)  # UserError if these are no results
    return results


def read_results(store: Store) -> xr.DataTree:
    """Return the results in the folder of a study."""
    path = store.folder / RESULTS_FILE
    return checked(read_tree(path, store.files), path)


def factors_of(results: xr.Dataset) -> dict[str, tuple[str, ...]]:
    """Return the names of the factors of each grid, recorded in the results."""
    if not isinstance(recorded := results.attrs.get("factors"), str) or "grid" not in results.coords:
        raise UserError("these are not the results of a study; give results of run or open_results, or the folder")
    entries = (entry.partition(":") for entry in recorded.split("; "))
    return {grid: tuple(names.replace(",", " ").split()) for grid, _, names in entries}


def text_of(row: Coordinates, name: str) -> Any:
    """Return the level of a setting; empty if it does not apply."""
    value = level(row, name)
    return "" if isinstance(value, float) and math.isnan(value) else value


def one_cell(rows: list[Coordinates], where: Where, name: str) -> int:
    """Return the number of the only cell with these levels; UserError, with ``name``, if none or several have them."""
    if not isinstance(where, Mapping):
        if isinstance(where, bool) or not isinstance(where, int | np.integer) or not 0 <= where < len(rows):
            raise UserError(f"{name} = {where!r}: give levels by setting, or a number below {len(rows)}")
        return int(where)
    where = {setting_of(key): value for key, value in where.items()}
    known = list(dict.fromkeys(chain(*rows)))
    if unknown := [key for key in where if key not in known]:
        raise UserError(f"{name}.{unknown[0]}: no setting of these cells; they have {', '.join(known)}")
    if len(found := [cell for cell, row in enumerate(rows) if selected(row, where)]) == 1:
        return found[0]
    inside = [rows[cell] for cell in found] or rows
    levels = {key: [*dict.fromkeys(repr(text_of(row, key)) for row in inside)] for key in (known if found else where)}
    several = {key: each for key, each in levels.items() if not found or (len(each) > 1 and key not in DERIVED)}
    options = "; ".join(f"{key} ({', '.join(each)})" for key, each in several.items())
    fit = f"{len(found)} cells fit; choose one by stating more of" if found else "no cell fits; the cells have"
    raise UserError(f"{name} = {where}: {fit} {options}")


def tree_of(cells: xr.Dataset) -> xr.DataTree:
    """Return results in a table as a tree, without variables that are undefined in all cells of a grid."""
    arrays = cells.variables  # labelled arrays would take ten times as long
    settings = {name: arrays[name] for name in cells.coords if arrays[name].dims == ("cell",)}
    groups = {
        "/": xr.Dataset(attrs=cells.attrs | {"layout": LAYOUT}),
        f"/{SETTINGS}": described(xr.Dataset(coords={"cell": np.arange(cells.sizes["cell"]), **settings})),
    }
    rows = coordinates_of(cells)
    for name, factors in factors_of(cells).items():
        numbers = np.flatnonzero(cells.grid.values == name)
        groups |= {f"/{name}{end}": each for end, each in _groups(cells, numbers, [rows[i] for i in numbers], factors)}
    for dimension, group in (("claim", VERDICTS), ("comparison", COMPARISONS)):
        if dimension in cells.dims:
            columns = [name for name in cells.data_vars if arrays[name].dims == (dimension,)]
            own = {str(name).removeprefix("comparison_"): arrays[name] for name in columns}
            groups[f"/{group}"] = xr.Dataset(own, coords={dimension: arrays[dimension]})
    return xr.DataTree.from_dict(groups)


def _groups(
    cells: xr.Dataset, numbers: np.ndarray, rows: list[Coordinates], factors: tuple[str, ...]
) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield the groups of a grid: estimates with their levels and settings, and the groups below."""
    # Levels along each dimension, and the index of each cell's level.
    axes = {_DIMENSIONS.get(factor, factor): _levels(rows, factor) for factor in factors}
    if math.prod(len(levels) for levels, _ in axes.values()) > SPARSE * len(numbers):
        axes = {"cell": (numbers, np.arange(len(numbers)))}
    shape = tuple(len(levels) for levels, _ in axes.values())

    def spread(variable: xr.Variable, missing: Any = None, drawn: bool = False) -> xr.Variable | None:
        """Return a variable along the factors and its other dimensions; None if it is empty and not for a figure."""
        others = [dimension for dimension in variable.dims if dimension != "cell"]
        values = variable.transpose("cell", *others).values[numbers]
        if values.dtype.kind in "OTU":
            values = values.astype(str)
        elif values.dtype.kind == "b" or (missing is None and math.prod(shape) > len(numbers)):
            values = values.astype(float)
        if not drawn and ((values == "").all() or (values.dtype.kind == "f" and np.isnan(values).all())):
            return None
        fill = "" if values.dtype.kind == "U" else np.nan if values.dtype.kind == "f" else missing or 0
        made = np.full((*shape, *values.shape[1:]), fill, values.dtype)
        made[tuple(places for _, places in axes.values())] = values if axes else values[0]
        return xr.Variable((*axes, *others), made, variable.attrs)

    measured = {name for name in cells.data_vars if "cell" in cells.variables[name].dims}
    groups: dict[str, dict[str, Any]] = {"": {}, ERRORS: {}, THEORY: {}, RUN: {}, FIGURES: {}}
    for name, variable in registry(cells.attrs).items():
        for group, own_name, sources in _places(name, variable) if name in measured else ():
            part = cells.variables[name] if sources is ... else cells.variables[name].isel(source=sources)
            groups[group][own_name] = spread(part, drawn=group == FIGURES and not part.notnull().any())
    # Other settings that vary among the cells, and settings that are the same in all cells.
    others, fixed = {"cell": xr.Variable("cell", np.arange(cells.sizes["cell"]))}, dict[str, Any]()
    for name in (each for each in rows[0] if each != "grid"):
        own, known = [row[name] for row in rows], _DIMENSIONS.get(name, name)
        if known in axes:
            levels, places = axes[known]
            if own != levels[places].tolist():  # numbers computed from a rule, which is the level
                others[f"{known}_value"] = cells.variables[name]
        elif len(set(map(repr, own))) == 1:
            fixed[known] = own[0]
        else:
            others[known] = cells.variables[name]
    levels_of: dict[str, Any] = {name: (name, levels) for name, (levels, _) in axes.items()}
    varying = {name: spread(column, missing=-1) for name, column in others.items() if name not in axes}
    levels_of |= {name: made for name, made in varying.items() if made is not None}
    for group, each in groups.items():
        variables = {name: made for name, made in each.items() if made is not None}
        used = {str(dimension) for made in variables.values() for dimension in made.dims}
        names: dict[str, Any] = {each: cells.variables[each] for each in _NAMED if each in used}
        names |= {"source": xr.Variable("source", list(measures.THEORIES))} if "source" in used else {}
        if not group:
            yield "", described(xr.Dataset(variables, levels_of | names, fixed))
        elif variables:
            yield f"/{group}", described(xr.Dataset(variables, names))


def _places(name: str, variable: Variable) -> list[tuple[str, str, Any]]:
    """Return the places of a variable of the table in a grid: group, name, and selected sources."""
    if "source" in variable.dims:
        return [*([] if name == "inapplicable" else [("", name, 0)]), (THEORY, name, slice(1, None))]
    if "figure" in variable.dims or "drawn" in variable.dims:
        return [(FIGURES, name, ...)]
    if name.endswith("_mcse"):
        return [(ERRORS, name.removesuffix("_mcse"), ...)]
    if name.endswith("_numerical_error"):
        return [(THEORY, name, ...)]
    return [("" if name in _SHOWN or name == "hdi" else RUN, name, ...)]


def _levels(rows: list[Coordinates], factor: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the levels of a factor, sorted if they are numbers, and the place of each cell; text if any level is."""
    levels = [text_of(row, factor) for row in rows]
    if not any(isinstance(entry, str) for entry in levels):
        return np.unique(levels, return_inverse=True)
    texts = np.array([each if isinstance(each, str) else f"{each:.15g}" for each in levels], object)
    places, found = pd.factorize(texts)
    return found.astype(str), places


def _flat(results: xr.DataTree) -> xr.Dataset:
    """Return the table of a tree by `tree_of`, for the cells that remain in the tree."""
    attrs = {str(name): text for name, text in results.attrs.items() if name != "layout"}
    grids = [node for name, node in results.children.items() if name not in (SETTINGS, VERDICTS, COMPARISONS)]
    groups = [{name: each.to_dataset() for name, each in {"": node, **node.children}.items()} for node in grids]
    numbers = [each[""]["cell"].values for each in groups]
    kept = np.sort(np.concatenate([each[each >= 0] for each in numbers]))
    settings = results[SETTINGS].to_dataset().sel(cell=kept).drop_vars("cell")
    coords: dict[str, Any] = {str(name): settings.variables[name] for name in settings.coords}
    coords |= {"source": np.array(measures.SOURCES), "index": np.array(measures.INDICES)}
    for dimension in ("look", "drawn", "end", "figure"):
        found = [node[dimension].values for each in groups for node in each.values() if dimension in node.dims]
        coords |= {dimension: max(found, key=len)} if found else {}
    arrays: dict[str, Any] = {}
    for name, variable in registry(attrs).items():
        others = [dimension for dimension in variable.dims if dimension != "cell"]
        if len(others) == len(variable.dims) or not all(dimension in coords for dimension in others):
            continue
        counts, text = name.startswith(("n_", "look_")), variable.unit == "text"
        shape = [len(kept), *(len(coords[each]) for each in others)]
        made = np.full(shape, "" if text else 0 if counts else np.nan, object if text else float)
        stored = name not in _OPTIONAL
        for nodes, places in zip(groups, numbers, strict=True):
            held = places >= 0
            for group, own_name, sources in _places(name, variable):
                if group in nodes and own_name in nodes[group].data_vars:
                    made[np.searchsorted(kept, places[held]), sources] = nodes[group].variables[own_name].values[held]
                    stored = True
        if stored:
            kind = int if counts else bool if variable.unit == "bool" else made.dtype
            arrays[name] = np.moveaxis(made, 0, variable.dims.index("cell")).astype(kind)
    for dimension, group, prefix in (("claim", VERDICTS, ""), ("comparison", COMPARISONS, "comparison_")):
        if group in results.children:
            own = results[group].to_dataset()
            coords[dimension] = own[dimension].values
            arrays |= {f"{prefix}{name}": own.variables[name].values for name in own.data_vars}
    # Texts of the type that they have when read from a file.
    coords = {name: each.astype(object) if each.dtype.kind == "U" else each for name, each in coords.items()}
    cells = labelled(arrays, coords, attrs)
    cells.encoding = dict(results.encoding)
    return cells
