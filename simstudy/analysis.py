"""Details of one cell, and exploratory comparisons of two cells after a run."""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from simstudy.design.measures import LENGTHS, averaged_measures, coordinates_of, described, stated_measures
from simstudy.errors import UserError
from simstudy.execution.store import DETAILS_FILE, read_tree
from simstudy.results import Results, Where, cells_of, factors_of, one_cell, text_of
from simstudy.verdicts.assemble import measured_in
from simstudy.verdicts.comparisons import at, paired
from simstudy.verdicts.estimates import estimates_from
from simstudy.verdicts.evidence import interval, why_no_verdict


class ExploratoryContrast(NamedTuple):
    """Exploratory comparison of two cells after a run: not a claim stated before it, and not a verdict."""

    statistic: str  # The estimated quantity, in words
    estimate: float  # Difference or ratio, in the unit of the measure or 1
    mcse: float  # Monte Carlo standard error of the estimate
    lower: float  # 95 % confidence interval at all looks at the study, for this contrast alone; infinite if undefined
    upper: float
    paired: bool  # True if the cells share replicates: the error is then computed from differences block by block
    reason: str = ""  # Why the interval is undefined; empty if it is defined

    def __repr__(self) -> str:
        pairing = "paired block by block" if self.paired else "independent cells"
        reach = self.reason or f"95 % at all looks: {self.lower:.6g} to {self.upper:.6g}"
        return f"exploratory: {self.statistic} = {self.estimate:.6g} ± {self.mcse:.2g} ({pairing}; {reach})"


def details(results: Results, where: Where) -> xr.Dataset:
    """Return the details of one cell: contributions of blocks, heads, pairs of heads and query points.

    Contributions of blocks of replicates to the error of every measure lie along ``block``, errors and weights of heads
    along ``head``, and products of errors along ``head_i`` and ``head_j``.  If the grid has ``by_query = true``,
    measures at each query point lie along ``query``.

    Parameters
    ----------
    results
        Results of `run` or `open_results`, or the folder or name of a study, which must still hold ``details.nc``.
    where
        One cell: levels of settings that no other cell has, as ``{"grid": "rotation", "angle": 60}``, or its number.

    Returns
    -------
    xarray.Dataset
        Variables with unit and meaning in their attributes, such as head covariances (head_i, head_j) in Y².

    Raises
    ------
    UserError
        If no cell or several have these levels, or the details cannot be read.
    """
    cells = cells_of(results)
    return _read(cells, one_cell(coordinates_of(cells), where, "where"))


def contrast(results: Results, a: Where, b: Where, measure: str, ratio: bool = False) -> ExploratoryContrast:
    """Compare two cells: the difference a − b of a measure, or the ratio a/b, with a paired Monte Carlo standard error.

    Cells of one seed and batch size use the same replicates, block by block, in any study.  Errors are then
    those of differences of contributions, as in verdicts.  Other cells share at most the points of a control variate.

    Parameters
    ----------
    results
        As for `details`.
    a, b
        One cell each: levels of settings that no other cell has, or its number.
    measure
        Name of a measure, such as ``mse``.
    ratio
        True for the ratio, with its error by the delta method and its interval by Fieller's theorem.

    Returns
    -------
    ExploratoryContrast
        Estimate, Monte Carlo standard error, and confidence interval, in the unit of the measure.

    Raises
    ------
    UserError
        If no cell or several have these levels, the measure is unknown, the details cannot be read or are of another
        run, or the cells share replicates in batches of different sizes, so that their covariance is unknown.
    """
    results = cells_of(results)
    if measure not in (known := averaged_measures(results)):
        raise UserError(f"measure = {measure!r}: not in these results; they have {', '.join(known)}")
    rows, factors = coordinates_of(results), factors_of(results)
    cells, measured = [one_cell(rows, where, name) for where, name in ((a, "a"), (b, "b"))], list[Any]()
    coordinates = one, other = [rows[cell] for cell in cells]
    if one["seed"] == other["seed"] and one["batch_size"] != other["batch_size"]:
        sizes = f"batch_size = {one['batch_size']:g} and {other['batch_size']:g}"
        fault = f"a and b share replicates (seed = {one['seed']}) in batches of different sizes ({sizes})"
        raise UserError(f"{fault}, so their covariance is unknown; use one size")
    for cell in cells:
        if not (inside := _read(results, cell)).n_blocks:
            raise UserError(f"cell {cell}: no replicate of this cell has an estimate; choose another")
        measured.append(measured_in(results.isel(cell=cell), inside, measure))
    streams = [(int(row["seed"]), int(row["batch_size"])) for row in coordinates]
    estimates = estimates_from(coordinates, streams, measured, measure, None, measure in stated_measures(results.attrs))
    both, word = paired(estimates, 0, 1, "ratio" if ratio else "difference")
    one_names, other_names = (["grid", *(name for name in factors[row["grid"]] if name in row)] for row in coordinates)
    differing = [name for name in other_names if text_of(one, name) != text_of(other, name)] or other_names[1:]
    text = at(one, one_names[one["grid"] == other["grid"] :]) + word + at(other, differing).removeprefix(" at")
    # At most 5 % of intervals miss the truth at some look.
    numbers = float(both.value), float((both.mcse + both.few) * both.widening), *interval(both, 0.05 / 2)
    return ExploratoryContrast(measure + text, *numbers, bool(one["seed"] == other["seed"]), why_no_verdict(both))


def _read(results: xr.Dataset, cell: int) -> xr.Dataset:
    """Return the details of one cell, from the file next to the results."""
    row, path, places = coordinates_of(results)[cell], results.encoding.get("source"), []
    if path:
        file = Path(path).with_name(DETAILS_FILE)
        state = file.stat() if file.exists() else None  # `read_tree` raises if it is missing
        part = _stored(file, state and (state.st_mtime_ns, state.st_size))
        same = all(part.attrs.get(name) == results.attrs[name] for name in ("study", "profile", "engine"))
        if same and part.attrs["numbers"] != results.attrs.get("numbers"):
            raise UserError(f"{DETAILS_FILE}: belongs to another run than these results; open the results again")
        rows = enumerate(coordinates_of(part) if same else ())
        places = [place for place, each in rows if all(text_of(row, name) == text_of(each, name) for name in each)]
    if not places:
        remedy = "open the results with simstudy.open_results, and keep details.nc next to results.nc"
        raise UserError(f"no details of cell {cell} ({path or 'the results were not read from a file'}); {remedy}")
    # Select the rows of the cell, and unstack its pairs of heads.
    for dimension, count in LENGTHS.items():
        if dimension in part.dims:
            start, length = int(part[count][: places[0]].sum()), int(part[count][places[0]])
            part = part.isel({dimension: slice(start, start + length)})
    part = part.isel(cell=places[0])
    heads = pd.MultiIndex.from_product(2 * [range(int(part.n_members))], names=["head_i", "head_j"])
    part = part.assign_coords(xr.Coordinates.from_pandas_multiindex(heads, "pair")).unstack("pair")
    part = part.isel(feature=slice(int(part.get("n_features", 0))), missing_dims="ignore")
    part = part.drop_dims("query") if part.sizes.get("query") == 0 else part
    unnamed = {name: size for name, size in part.sizes.items() if name != "index" and name not in part.coords}
    return described(part.assign_coords({name: np.arange(size) for name, size in unnamed.items()}))


@lru_cache(maxsize=4)
def _stored(file: Path, _state: tuple[int, int] | None) -> xr.Dataset:
    """Return the details of all cells, cached while time and size of the file stay the same."""
    return read_tree(file).to_dataset()
