"""Results of a study for analysis scripts: load them, and lay them out by factor.

Imports NumPy, xarray, cells, labels, layout, problems and store only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from simstudy.cells import level
from simstudy.labels import factors_of
from simstudy.layout import require_layout
from simstudy.problems import UserError
from simstudy.store import read_results


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
        If there are no results of a study at the path, or another version of simstudy laid them out in another way.
    """
    path = Path(path)
    path = path / "results.nc" if path.is_dir() else path
    results = read_results(path)
    require_layout(results, path)
    return results


def to_grid(results: xr.Dataset, grid: str | None = None) -> xr.Dataset:
    """Lay out one grid of a study by its factors: one dimension for each, in place of ``cell``.

    Coordinates of the dimensions are the levels of the factors.  If some bandwidth of the grid follows a rule, the
    levels of ``bandwidth`` are text ("attention", "0.5"): the number that a rule gives differs from cell to cell.

    Parameters
    ----------
    results
        What `open_results` or `run` returned.
    grid
        Name of the grid; may be left out if the study has only one.

    Raises
    ------
    UserError
        If the grid does not exist, if it is left out although there are several, or if these are not the results of
        a study.
    """
    if not isinstance(results, xr.Dataset):
        raise UserError(f"results are of type {type(results).__name__}; give what open_results or run returned")
    factors = factors_of(results)
    if grid is None and len(factors) > 1:
        raise UserError(f"grid: left out, but these results have several; choose one of {', '.join(factors)}")
    grid = next(iter(factors)) if grid is None else grid
    if grid not in factors:
        raise UserError(f"grid = {grid!r}: not in these results; they have {', '.join(factors)}")
    names = factors[grid]
    _require_factors(results, names)
    inside = results.isel(cell=np.flatnonzero(results.grid.values == grid))
    levels = {name: ("cell", _levels(inside, name)) for name in names}
    settings = [name for name, values in inside.coords.items() if values.dims == ("cell",)]
    inside = inside.drop_vars(settings).assign_coords(levels)
    combinations = list(zip(*(inside[name].values.tolist() for name in names), strict=True))
    if len(set(combinations)) < len(combinations) or inside.sizes["cell"] == 0:
        raise UserError(f"grid = {grid!r}: its cells in these results repeat levels of {', '.join(names)}, or are gone")
    if len(names) > 1:
        return inside.set_index(cell=names).unstack("cell")
    return inside.swap_dims(cell=names[0]) if names else inside.isel(cell=0)


def _require_factors(results: xr.Dataset, names: tuple[str, ...]) -> None:
    """Refuse results whose cells are not labelled with the factors that they record."""
    wanted = ["grid", *names, *(["bandwidth_rule"] if "bandwidth" in names else [])]
    for name in wanted:
        if name not in results.coords or results[name].dims != ("cell",):
            raise UserError(f"{name}: no coordinate along cell; these are not the results of a study")


def _levels(inside: xr.Dataset, factor: str) -> np.ndarray:
    """Levels of a factor, cell by cell; all of them text if some are."""
    if factor != "bandwidth":
        return inside[factor].values
    pairs = zip(inside.bandwidth.values.tolist(), inside.bandwidth_rule.values.tolist(), strict=True)
    levels = [level({"bandwidth": value, "bandwidth_rule": rule}, factor) for value, rule in pairs]
    if any(isinstance(entry, str) for entry in levels):
        levels = [entry if isinstance(entry, str) else f"{entry:.15g}" for entry in levels]
    return np.array(levels)
