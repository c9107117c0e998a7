"""The user's own data: read and checked, into the rows that travel with a cell."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simstudy.design.files import read_array, read_arrays, read_regular
from simstudy.design.settings import (
    LARGEST,
    FileKeys,
    FileRegression,
    FittedRegression,
    Rows,
)
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.records import Impossibility
from simstudy.design.settings.rows import MAX_NUMBERS, Array
from simstudy.design.settings.splits import split
from simstudy.design.settings.tables import Data
from simstudy.errors import UserError, require_extra
from simstudy.text import printable

MAX_BYTES = 1 << 28
"""Largest data file that is read."""
_SHIPPED = ("diabetes", "breast_cancer", "digits", "wine", "iris")
_PREFIX = "sklearn:"


class Table(NamedTuple):
    """Columns by name, as one array (row, column)."""

    names: tuple[str, ...]
    numbers: Array

    def column(self, name: str) -> Array:
        """Return a column.

        Raises
        ------
        UserError
            If there is none of that name.
        """
        if name not in self.names:
            raise UserError(f"the data have no column {name!r}, but {_listed(self.names)}")
        return self.numbers[:, self.names.index(name)]


def read_rows(cell: Cell, folder: Path) -> tuple[Cell, list[Impossibility]]:
    """Read the data that the keys of a cell are drawn from, relative to the folder of its design, into the cell."""
    data = cell.data
    if not isinstance(data.key_distribution, FileKeys):
        return cell, []
    try:
        table = _read(data.key_distribution.path, folder)
        raw = _stated(table, data)
        rows = split(raw, data, cell.simulation.seed)
        rows = raw if "held_out" in cell.population else rows
        if data.key_distribution.standardise:
            _refuse_constant(rows.keys, data.key_distribution.columns or table.names)
    except UserError as error:
        return cell, [("key_distribution", printable(str(error)))]
    return cell.model_copy(update={"file_rows": rows}), []


def _read(path: str, folder: Path) -> Table:
    if path.startswith(_PREFIX):
        return _shipped(path.removeprefix(_PREFIX))
    suffix = Path(path).suffix.lower()
    if suffix not in _READERS:
        raise UserError(f"of no kind that is read; give {_listed(_READERS)}, or {_PREFIX}NAME")
    return _parsed(suffix, read_regular(folder / path, MAX_BYTES))


@functools.lru_cache(maxsize=8)
def _shipped(name: str) -> Table:
    if name not in _SHIPPED:
        raise UserError(f"scikit-learn ships no {name!r}; choose {_listed(_SHIPPED)}")
    require_extra(f"path = '{_PREFIX}{name}'", "sklearn", "learners")
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    return Table((*map(str, found.feature_names), "target"), np.column_stack([found.data, found.target]))


@functools.lru_cache(maxsize=8)
def _parsed(suffix: str, content: bytes) -> Table:
    try:
        columns = _READERS[suffix](io.BytesIO(content))
    except UserError:
        raise
    except ImportError:
        raise UserError(f"{suffix} needs another package: pip install 'simstudy[parquet]'") from None
    except Exception as error:  # a damaged file may raise nearly anything
        raise UserError(f"cannot be read as {suffix} ({error})") from None
    if not columns or sum(map(len, columns.values())) > MAX_NUMBERS:
        raise UserError(f"must hold between 1 and {MAX_NUMBERS} numbers")
    return Table(tuple(columns), np.column_stack([_numbers(name, values) for name, values in columns.items()]))


def _numbers(name: str, values: Any) -> Array:
    """Column of numbers; raises UserError at the first entry that is none."""
    found = np.asarray(values)
    if found.dtype.kind not in "fiub":
        import pandas as pd

        numbers = pd.to_numeric(pd.Series(found), errors="coerce").to_numpy(np.float64)
        wrong = np.flatnonzero(np.isnan(numbers))[0]
        raise UserError(f"column {name!r} holds {found[wrong]!r} in row {wrong + 1}; give numbers only")
    numbers = found.astype(np.float64)
    wrong = np.flatnonzero(~(np.abs(numbers) <= LARGEST))
    if wrong.size:
        where = (
            f"column {name!r} holds {numbers[wrong[0]]:g} in row {wrong[0] + 1}, the first of {wrong.size} such rows"
        )
        raise UserError(f"{where}; give finite numbers within ±{LARGEST:g}, or leave these rows out")
    return numbers


def _from_array(file: io.BytesIO) -> dict[str, Any]:
    array = read_array(file, MAX_BYTES)
    if array.ndim != 2:
        raise UserError(f"holds an array of shape {array.shape}; give one of rows and columns")
    return {str(j): array[:, j] for j in range(array.shape[1])}


def _from_arrays(file: io.BytesIO) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, array in read_arrays(file, MAX_BYTES).items():
        if array.ndim not in (1, 2):
            raise UserError(f"array {name!r} has shape {array.shape}; give columns, or arrays of rows and columns")
        columns |= {name: array} if array.ndim == 1 else {f"{name}.{j}": array[:, j] for j in range(array.shape[1])}
    if len({len(column) for column in columns.values()}) > 1:
        raise UserError("arrays have different numbers of rows")
    return columns


def _from_text(file: io.BytesIO) -> dict[str, Any]:
    import pandas as pd

    # Only empty entries are missing: "NA" may be a name that somebody meant.
    frame = pd.read_csv(file, keep_default_na=False, na_values=[""])
    return {str(name): frame[name].to_numpy() for name in frame}


def _from_parquet(file: io.BytesIO) -> dict[str, Any]:
    import pandas as pd

    frame = pd.read_parquet(file)
    return {str(name): frame[name].to_numpy() for name in frame}


_READERS: dict[str, Callable[[io.BytesIO], dict[str, Any]]] = {
    ".npy": _from_array, ".npz": _from_arrays, ".csv": _from_text, ".parquet": _from_parquet,
}  # fmt: skip


def _stated(table: Table, data: Data) -> Rows:
    """All rows as they are in the file."""
    keys = data.key_distribution
    assert isinstance(keys, FileKeys)
    features, responses = _selected(table, keys)
    none = np.full(len(features), np.nan)
    if not isinstance(data.regression, FileRegression | FittedRegression):
        responses = none
    elif responses is None:
        raise UserError(f'regression = "{data.regression.kind}" needs response = "COLUMN" of the data')
    return Rows(np.column_stack([features, responses, none]), 0)


def _selected(table: Table, keys: FileKeys) -> tuple[Array, Array | None]:
    """Features (row, column), and responses if there are any."""
    names = keys.columns or tuple(name for name in table.names if name != keys.response)
    responses = None if keys.response is None else table.column(keys.response)
    if keys.response in names or len(set(names)) < len(names) or not names:
        raise UserError("columns must name each feature once, and not the response")
    return np.column_stack([table.column(name) for name in names]), responses


def _refuse_constant(keys: Array, names: Iterable[str]) -> None:
    constant = np.ptp(keys, axis=0) == 0.0
    if constant.any():
        found = _listed(name for name, same in zip(names, constant, strict=False) if same)
        raise UserError(f"constant columns cannot be standardised: leave out {found}, or use standardise = false")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
