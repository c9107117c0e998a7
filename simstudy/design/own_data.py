"""The user's own data: read, checked, split, scaled and fitted once, into the rows that travel with a cell."""

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
    ResidualNoise,
    Rows,
)
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.records import Impossibility
from simstudy.design.settings.rows import MAX_NUMBERS, Array
from simstudy.errors import UserError, require_extra
from simstudy.text import printable

MAX_BYTES = 1 << 28
"""Largest data file that is read."""
FOLDS = 5
"""Parts of the rows, each predicted by a fit to the others."""
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
        of_rows = data.regression if isinstance(data.regression, FileRegression | FittedRegression) else None
        crossed = isinstance(data.noise, ResidualNoise)
        # Cells that draw the same rows in another way, or under another label, share one fit.
        keys = data.key_distribution.model_copy(update={"label": "", "sampling": "with_replacement"})
        rows = _rows(_Held(table), keys, of_rows, crossed, cell.simulation.seed)
    except UserError as error:
        return cell, [("key_distribution", printable(str(error)))]
    return cell.model_copy(update={"file_rows": rows}), []


class _Held:
    """A table, compared by what it is rather than by what it holds: those of one file are one."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and self.table is other.table

    def __hash__(self) -> int:
        return id(self.table)


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


@functools.lru_cache(maxsize=64)
def _rows(
    held: _Held, keys: FileKeys, regression: FileRegression | FittedRegression | None, crossed: bool, seed: int
) -> Rows:
    """Rows of the population, then those held out: the first of an order that the seed alone decides."""
    table = held.table
    features, responses = _selected(table, keys)
    # The raw words of the generator, which no version of NumPy may change.
    order = np.argsort(np.random.Philox(key=seed).random_raw(len(features)), kind="stable")
    out, kept = order[: keys.held_out], np.sort(order[keys.held_out :])
    if len(kept) < 2:
        raise UserError(f"{len(features)} rows are too few: held_out = {keys.held_out}, and 2 others at least")
    if keys.standardise:
        features = _standardised(features, kept, keys.columns or table.names)
    values, residuals = np.full((2, len(features)), np.nan)
    if regression is not None:
        if responses is None:
            raise UserError(f'regression = "{regression.kind}" needs response = "COLUMN" of the data')
        values = responses
    if isinstance(regression, FittedRegression):
        values, residuals[kept] = _fitted(regression, features, values, kept, crossed)
    contents = np.column_stack([features, values, residuals])
    return Rows(contents[np.concatenate([kept, out])], keys.held_out)


def _selected(table: Table, keys: FileKeys) -> tuple[Array, Array | None]:
    """Features (row, column), and responses if there are any."""
    names = keys.columns or tuple(name for name in table.names if name != keys.response)
    responses = None if keys.response is None else table.column(keys.response)
    if keys.response in names or len(set(names)) < len(names) or not names:
        raise UserError("columns must name each feature once, and not the response")
    return np.column_stack([table.column(name) for name in names]), responses


def _standardised(features: Array, kept: np.ndarray, names: Iterable[str]) -> Array:
    population = features[kept]
    constant = np.ptp(population, axis=0) == 0.0
    if constant.any():
        found = _listed(name for name, same in zip(names, constant, strict=False) if same)
        raise UserError(f"constant columns cannot be standardised: leave out {found}, or use standardise = false")
    return (features - population.mean(axis=0)) / population.std(axis=0)


def _fitted(
    regression: FittedRegression, features: Array, responses: Array, kept: np.ndarray, crossed: bool
) -> tuple[Array, Array]:
    """Predictions for all rows by a fit to the population, and residuals of it from fits to other parts."""
    require_extra("regression", "sklearn", "learners")
    from sklearn.model_selection import KFold, cross_val_predict

    if len(kept) < 2 * FOLDS:
        raise UserError(f"{len(kept)} rows are too few to be fitted; {2 * FOLDS} are needed")
    x, y = features[kept], responses[kept]
    predicted = _learner(regression.learner).fit(x, y).predict(features)
    if not crossed:
        return predicted, np.full(len(kept), np.nan)
    folds = KFold(FOLDS, shuffle=True, random_state=0)
    residuals = y - cross_val_predict(_learner(regression.learner), x, y, cv=folds)
    if not np.ptp(residuals) > 0.0:
        raise UserError(f"{regression.learner} leaves no residuals; use another noise")
    return predicted, residuals - residuals.mean()


def _learner(name: str) -> Any:
    from sklearn import ensemble, linear_model, neighbors

    return {
        "linear": linear_model.LinearRegression(),
        "nearest_neighbours": neighbors.KNeighborsRegressor(n_neighbors=5),
        "random_forest": ensemble.RandomForestRegressor(max_features=1 / 3, min_samples_leaf=5, random_state=0),
        "gradient_boosting": ensemble.HistGradientBoostingRegressor(random_state=0),
    }[name]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
