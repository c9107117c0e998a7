"""Results of a study for analysis scripts: load them, and lay them out by factor.

Imports xarray, problems and store only.
"""

from __future__ import annotations

from pathlib import Path

import xarray as xr

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
        If there are no results at the path.
    """
    path = Path(path)
    return read_results(path / "results.nc" if path.is_dir() else path)


def to_grid(results: xr.Dataset, grid: str | None = None) -> xr.Dataset:
    """Lay out one grid of a study by its factors: one dimension for each, in place of ``cell``.

    Parameters
    ----------
    results
        What `open_results` or `run` returned.
    grid
        Name of the grid; may be left out if the study has only one.

    Raises
    ------
    UserError
        If the grid does not exist.
    """
    factors = dict(entry.split(": ") for entry in results.attrs["factors"].split("; "))
    grid = grid or next(iter(factors))
    if grid not in factors:
        raise UserError(f"grid = {grid!r}: not in these results; they have {', '.join(factors)}")
    names = [name for name in factors[grid].split(", ") if name]
    inside = results.isel(cell=(results.grid == grid).values)
    constant = [name for name, values in inside.coords.items() if values.dims == ("cell",) and name not in names]
    inside = inside.drop_vars(constant)
    return inside.set_index(cell=names).unstack("cell") if len(names) > 1 else _single(inside, names)


def _single(inside: xr.Dataset, names: list[str]) -> xr.Dataset:
    return inside.swap_dims(cell=names[0]) if names else inside
