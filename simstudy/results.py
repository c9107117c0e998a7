"""Results of a study for analysis scripts: load them, and lay them out by factor."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import xarray as xr

from simstudy.design.claims import Verdict
from simstudy.design.measures import ATTRIBUTES, INDICES, OCCASIONAL, SOURCES, VARIABLES, coordinates_of, registry
from simstudy.design.mistakes import hint
from simstudy.design.settings.levels import Coordinates, level
from simstudy.errors import UserError
from simstudy.execution.store import read_results


def open_results(path: str | Path) -> xr.Dataset:
    """Load the results of a study.

    Parameters
    ----------
    path
        ``results.nc``, or the folder that holds it.  (``xarray.open_dataset`` opens the file as well.)

    Returns
    -------
    xarray.Dataset
        One entry along ``cell`` for each combination of factor values.

    Raises
    ------
    UserError
        If there are no results of a study at the path, or another version of simstudy wrote them in a different layout.
    """
    path = Path(path)
    path = path / "results.nc" if path.is_dir() else path
    results = read_results(path)
    require_layout(results, path)
    return results


def to_grid(results: xr.Dataset, grid: str | None = None) -> xr.Dataset:
    """Arrange one grid of a study by its factors: one dimension for each factor, in place of ``cell``.

    Coordinates of the dimensions are the levels of the factors.  If some bandwidth of the grid follows a rule, the
    levels of ``bandwidth`` are text ("attention", "0.5"): the number that a rule gives differs from cell to cell.

    Parameters
    ----------
    results
        What `open_results` or `run` returned.
    grid
        Name of the grid; may be left out if the study has only one.

    Returns
    -------
    xarray.Dataset
        A dimension for each factor, its unit in the attributes of the coordinate (angles: degrees); NaN where the
        design has no such cell.

    Raises
    ------
    UserError
        If the grid does not exist, if it is left out although there are several, or if these are not the results of
        a study.
    """
    if not isinstance(results, xr.Dataset):
        raise UserError(f"results are of type {type(results).__name__}; give what open_results or run returned")
    grid, names = named_grid(results, grid)
    for name in ("grid", *names, *(["bandwidth_rule"] if "bandwidth" in names else [])):
        if name not in results.coords or results[name].dims != ("cell",):
            raise UserError(f"{name}: no coordinate along cell; these are not the results of a study")
    inside = results.isel(cell=np.flatnonzero(results.grid.values == grid))
    rows = coordinates_of(inside)
    levels = {name: ("cell", _levels(rows, name)) for name in names}
    settings = [name for name, values in inside.coords.items() if values.dims == ("cell",)]
    inside = inside.drop_vars(settings).assign_coords(levels)
    combinations = list(zip(*(inside[name].values.tolist() for name in names), strict=True))
    if len(set(combinations)) < len(combinations) or inside.sizes["cell"] == 0:
        raise UserError(
            f"grid = {grid!r}: cells are missing or repeat levels of {', '.join(names)}; give one run's results"
        )
    if len(names) > 1:
        return inside.set_index(cell=names).unstack("cell")
    return inside.swap_dims(cell=names[0]) if names else inside.isel(cell=0)


def named_grid(results: xr.Dataset, grid: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the name of a grid, which may be left out if there is only one, and its factors."""
    factors = factors_of(results)
    if grid is None and len(factors) > 1:
        raise UserError(f"grid: left out, but these results have several; choose one of {', '.join(factors)}")
    grid = next(iter(factors)) if grid is None else grid
    if grid not in factors:
        raise UserError(f"grid = {grid!r}: not in these results; {hint(grid, list(factors))}")
    return grid, factors[grid]


def _levels(rows: list[Coordinates], factor: str) -> np.ndarray:
    """Levels of a factor, cell by cell; all of them text if some are."""
    levels = [level(row, factor) for row in rows]
    if any(isinstance(entry, str) for entry in levels):
        levels = [entry if isinstance(entry, str) else f"{entry:.15g}" for entry in levels]
    return np.array(levels)


def factors_of(results: xr.Dataset) -> dict[str, tuple[str, ...]]:
    """Return the names of the factors of each grid, as the results record them."""
    recorded = results.attrs.get("factors")
    if not isinstance(recorded, str) or "grid" not in results.coords:
        raise UserError("these are not the results of a study (no grids and factors); give the results.nc of a run")
    entries = (entry.partition(":") for entry in recorded.split("; "))
    return {grid: tuple(names.replace(",", " ").split()) for grid, _, names in entries}


def text_of(row: Coordinates, name: str) -> Any:
    """Level of a setting, such that levels that mean nothing are equal."""
    value = level(row, name)
    return "" if isinstance(value, float) and math.isnan(value) else value


_KINDS = {"text": "OTU", "bool": "b"}
"""Kinds of NumPy types, by unit; of what is neither text nor truth, whole numbers if they count, or else any."""


MAX_NAMED = 4
"""Differences that the message names; one renamed dimension may make a hundred."""


def require_layout(results: xr.Dataset, path: Path) -> None:
    """Refuse results that another version has laid out in another way."""
    # Of variables alone: to take an array of a data set copies its coordinates, which took a quarter of opening it.
    try:
        found = _of_layout(results) or [*_of_values(results)]
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    found += [f"no attribute {name}" for name in ATTRIBUTES if name not in results.attrs]
    found += [f"attribute {name} is not text" for name, text in results.attrs.items() if not isinstance(text, str)]
    if found:
        more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        version, commit = (results.attrs.get(name) or "unknown" for name in ("simstudy_version", "commit"))
        message = f"{path}: laid out by another version of simstudy ({version}, commit {commit})"
        raise UserError(f"{message}: {', '.join(found[:MAX_NAMED])}{more}; run the study again")


def _of_layout(results: xr.Dataset) -> list[str]:
    """How variables differ from the registered ones, and coordinates: settings of cells, names of what has names."""
    present = {str(name) for name in results.data_vars}
    known = registry(results.attrs)
    own = known.keys() - VARIABLES.keys()
    always = VARIABLES.keys() - set().union(*_OCCASIONAL)
    wanted = always.union(own, *(group for group in _OCCASIONAL if group & present))
    factors = [factor for names in factors_of(results).values() for factor in names]
    settings = dict.fromkeys(["grid", "seed", "batch_size", *factors])
    used = dict.fromkeys(dimension for name in results.data_vars for dimension in results.variables[name].dims)
    return [
        *(f"no {name}" for name in known if name in wanted - present),
        *(f"unknown {name}" for name in sorted(present - known.keys())),
        *(f"{name} along ({', '.join(map(str, results[name].dims))}) instead of ({', '.join(known[name].dims)})"
          for name in known if name in present and results.variables[name].dims != known[name].dims),
        *(f"no {name} along cell" for name in settings
          if name not in results.coords or results.variables[name].dims != ("cell",)),
        *(f"other names along {name}" for name, names in (("source", SOURCES), ("index", INDICES))
          if name not in results.coords or results[name].values.tolist() != list(names)),
        *(f"nothing along {name}" for name in results.indexes if name not in used),
        *(f"no names along {name}" for name in used if name not in results.coords and name != "cell"),
    ]  # fmt: skip


def _of_values(results: xr.Dataset) -> Iterator[str]:
    """Which variables hold other values than the registered kind: text, truth, counts, or real numbers."""
    known = registry(results.attrs)
    for name in results.data_vars:
        described, dtype = known[str(name)], results.variables[name].dtype
        kinds = _KINDS.get(described.unit, "iu" if str(name).startswith("n_") else "iuf")
        if dtype.kind not in kinds:
            yield f"{name} of type {dtype}"
    for name in ("grid", "bandwidth_rule", "claim", "figure"):
        if name in results.coords and results[name].dtype.kind not in _KINDS["text"]:
            yield f"{name} of type {results[name].dtype}"
    for name in ("verdict", "expected_verdict"):
        if unknown := set(results.get(name, xr.DataArray([])).values.tolist()) - set(get_args(Verdict)):
            yield f"{name} {min(map(repr, unknown))}"


def _along(dimension: str) -> frozenset[str]:
    return frozenset(name for name, variable in VARIABLES.items() if dimension in variable.dims)


_OCCASIONAL: tuple[frozenset[str], ...] = (
    _along("claim") | _along("comparison"),
    frozenset({"optimum_share"}),
    frozenset({"estimator"}),
    frozenset({"interval"}),
    frozenset({"wrong_pair_share", "wrong_pair_share_mcse"}),
    *(frozenset({name, f"{name}_mcse"}) for name in OCCASIONAL),
)
"""Variables that only some designs ask for: results have all of a set, or none."""
