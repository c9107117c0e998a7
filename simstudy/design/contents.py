"""Contents of the files that a design names, read and checked into its cells: heads, masks, and rows of data."""

import functools
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.files import read_arrays, read_regular
from simstudy.design.settings.cell import Cell, Matrices
from simstudy.design.settings.mechanisms import FileMask
from simstudy.design.settings.processes import FileKeys, FileRegression, FittedRegression
from simstudy.design.settings.records import LARGEST, Impossible
from simstudy.design.settings.rows import MAX_NUMBERS, Array, Rows, split
from simstudy.errors import UserError, require_extra

MAX_BYTES = 64 << 20
"""Largest file of heads or masks that is read: every cell that uses it holds a copy."""
MAX_DATA_BYTES = 1 << 28
"""Largest data file that is read."""
_SHIPPED = ("diabetes", "breast_cancer", "digits", "wine", "iris")
_PREFIX = "sklearn:"


def read_contents(cell: Cell, folder: Path) -> Cell:
    """Return a cell with the contents of its files; raises Impossible if they are not what it states."""
    found: dict[str, Any] = {}
    for setting, path, (field, read) in named_files(cell):
        try:
            found[field] = read(folder / path, cell)
        except UserError as error:
            raise Impossible(setting, str(error)) from None
    return cell.model_copy(update=found) if found else cell


def named_files(cell: Cell) -> Iterator[tuple[str, str, tuple[str, Callable[[Path, Cell], Any]]]]:
    """Yield the settings that name a file, its path, the field of a cell that holds its contents, and what reads it."""
    heads, keys = cell.heads, cell.data.key_distribution
    if heads.arrangement == "file" and heads.file is not None:
        yield "file", heads.file, ("file_projections", _projections)
    if isinstance(mask := cell.estimator.mask, FileMask):
        yield "mask", mask.path, ("file_mask", _mask)
    if isinstance(keys, FileKeys):
        yield "key_distribution", keys.path, ("file_rows", _rows)


def _array(content: bytes, remedy: str = "") -> NDArray:
    try:
        if "" not in (arrays := read_arrays(io.BytesIO(content))):
            raise ValueError("it is an archive")
        return arrays[""]
    except ValueError as error:
        raise UserError(f"cannot be read as .npy ({error}){remedy}") from None


def _of_shape(path: Path, shape: tuple[int, ...], names: str) -> NDArray:
    stored = _array(read_regular(path, MAX_BYTES), f"; save an array {names}")
    if stored.shape != shape:
        raise UserError(f"holds shape {stored.shape}; {names} = {shape} is stated")
    return stored


def _projections(path: Path, cell: Cell) -> Matrices:
    shape = cell.heads.n_heads, cell.data.n_features, cell.heads.head_dim
    stored = _of_shape(path, shape, "(n_heads, n_features, head_dim)")
    if stored.dtype.kind not in "fiu" or not (np.abs(numbers := np.array(stored, np.float64)) <= LARGEST).all():
        raise UserError(f"must hold real numbers only, none beyond ±{LARGEST:g}")
    return tuple(tuple(tuple(map(float, row)) for row in head) for head in numbers)


def _mask(path: Path, cell: Cell) -> tuple[str, ...]:
    stored = _of_shape(path, (cell.n_queries, cell.data.n_keys), "(queries, n_keys)")
    if stored.dtype != bool:
        raise UserError(f"must hold booleans, not {stored.dtype}; true where a query sees a key")
    if not (seen := stored.any(axis=1)).all():
        raise UserError(f"query {int(np.argmin(seen))} (counted from 0) sees no key; let it see one at least")
    return tuple("".join("1" if key else "0" for key in row) for row in stored)


def _rows(path: Path, cell: Cell) -> Rows:
    """Return the rows that keys are drawn from: split once, unless each batch holds out its own rows."""
    data, keys = cell.data, cell.data.key_distribution
    assert isinstance(keys, FileKeys)  # no others have rows
    if keys.path.startswith(_PREFIX):
        table = _of_scikit_learn(keys.path.removeprefix(_PREFIX))
    else:
        table = _columns(path.suffix.lower(), read_regular(path, MAX_DATA_BYTES))
    names = keys.columns or tuple(name for name in table if name != keys.response)
    for name in filter(None, (*names, keys.response)):
        if name not in table:
            known = f"but {', '.join(table)}; name one, or separate columns by commas"
            raise UserError(f"the data have no column {name!r}, {known}")
    if keys.response in names or len(set(names)) < len(names) or not names:
        raise UserError("columns must name each feature once, and not the response")
    responses = none = np.full(len(table[names[0]]), np.nan)
    if isinstance(data.regression, FileRegression | FittedRegression):
        if keys.response is None:
            raise UserError(f'regression = "{data.regression.kind}" needs response = "COLUMN" of the data')
        responses = table[keys.response]
    features = np.column_stack([table[name] for name in names])
    raw = Rows(features, responses, none, features[:0], responses[:0])
    rows = split(raw, data, cell.simulation.seed)
    rows = raw if "held_out" in cell.population else rows
    constant = [name for name, feature in zip(names, rows.keys.T, strict=True) if np.ptp(feature) == 0.0]
    if keys.standardise and constant:
        left_out = ", ".join(constant)
        raise UserError(f"constant columns cannot be standardised: leave out {left_out}, or use standardise = false")
    return rows


@functools.lru_cache(maxsize=8)
def _of_scikit_learn(name: str) -> dict[str, Array]:
    if name not in _SHIPPED:
        raise UserError(f"scikit-learn ships no {name!r}; choose {', '.join(_SHIPPED)}")
    require_extra(f"path = '{_PREFIX}{name}'", "sklearn", "learners")
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    features = zip(map(str, found.feature_names), found.data.T, strict=True)
    return {**dict(features), "target": found.target.astype(np.float64)}


@functools.lru_cache(maxsize=8)
def _columns(kind: str, content: bytes) -> dict[str, Array]:
    """Return the columns of a table by name, those of an array by number."""
    if kind not in (".npy", ".csv"):
        raise UserError(f"has no file type that is read; give .npy, .csv, or {_PREFIX}NAME")
    import pandas as pd

    if kind == ".npy":
        array = _array(content)
        if array.ndim != 2:
            raise UserError(f"its array has shape {array.shape}; give rows and columns")
        frame = pd.DataFrame(array)
    else:
        try:  # Only empty entries are missing: "NA" may be a name that somebody meant.
            frame = pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=[""])
        except Exception as error:  # a damaged file may raise nearly anything
            raise UserError(f"cannot be read as .csv ({error})") from None
    if not 0 < frame.size <= MAX_NUMBERS:
        raise UserError(f"must hold between 1 and {MAX_NUMBERS} numbers")
    columns: dict[str, Array] = {}
    for name, column in frame.items():
        numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
        if (wrong := np.flatnonzero(~(np.abs(numbers) <= LARGEST))).size:
            entry = f"{column.tolist()[wrong[0]]!r} in row {wrong[0] + 1}, the first of {wrong.size} such rows"
            remedy = f"give finite numbers within ±{LARGEST:g}, or leave these rows out"
            raise UserError(f"column {str(name)!r} holds {entry}; {remedy}")
        columns[str(name)] = numbers
    return columns
