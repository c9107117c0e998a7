"""Contents of the files that a design names, read and checked into its cells: heads, masks, rows of data."""

import functools
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.files import read_arrays, read_regular
from simstudy.design.own_code import read_code
from simstudy.design.settings.cell import Cell, Matrices
from simstudy.design.settings.mechanisms import FileMask, FileValueProjections, Overlap
from simstudy.design.settings.processes import FileKeys, FileRegression, FittedRegression
from simstudy.design.settings.records import LARGEST, Impossible
from simstudy.design.settings.rows import MAX_NUMBERS, Array, Rows, split
from simstudy.errors import UserError, require_extra

MAX_BYTES = 64 << 20
"""Largest file of heads or masks that is read: every cell that uses it holds a copy."""
MAX_DATA_BYTES = 1 << 28
"""Largest data file that is read."""
_CANCELLED = 1e-10
"""Squared size of a sum of maps, relative to those of its terms, below which rounding decides it."""
_SHIPPED = ("diabetes", "breast_cancer", "digits", "wine", "iris")
_PREFIX = "sklearn:"
_KINDS = (".npy", ".npz", ".csv", ".parquet")


def read_contents(cell: Cell, folder: Path, trusted: frozenset[str] = frozenset(), trial: bool = False) -> Cell:
    """Return a cell with the contents of its files; raises Impossible if they are not what it states.

    On trial, functions of trusted texts are tried.
    """
    found: dict[str, Any] = {}
    for setting, path, (field, read) in named_files(cell):
        try:
            found[field] = read(path if path.startswith(_PREFIX) else str(folder / path), cell)
        except UserError as error:
            raise Impossible(setting, str(error)) from None
    return read_code(cell.model_copy(update=found) if found else cell, folder, trusted, trial)


def named_files(cell: Cell) -> Iterator[tuple[str, str, tuple[str, Callable[[str, Cell], Any]]]]:
    """Yield the settings that name a file, its path, the field of a cell that holds its contents, and what reads it."""
    heads, keys = cell.heads, cell.data.key_distribution
    if heads.arrangement == "file" and heads.file is not None:
        yield "file", heads.file, ("file_projections", _projections)
    if heads.query_projections == "file" and heads.query_file is not None:
        yield "query_file", heads.query_file, ("file_query_projections", _projections)
    if isinstance(mask := cell.estimator.mask, FileMask):
        yield "mask", mask.path, ("file_mask", _mask)
    if isinstance(values := heads.value_projections, FileValueProjections):
        yield "value_projections", values.path, ("file_value_overlap", _value_overlap)
    if isinstance(keys, FileKeys):
        yield "key_distribution", keys.path, ("file_rows", _rows)


def _parsed(kind: str, content: bytes, remedy: str = "") -> dict[str, NDArray]:
    """Arrays of a file by name: that of a .npy file, which has none, by the empty one; of a table, its columns."""
    file = io.BytesIO(content)
    try:
        if kind in (".npy", ".npz"):
            arrays = read_arrays(file)
            if (kind == ".npy") != ("" in arrays):
                raise ValueError("it is one of the other kind")
            return arrays
        import pandas as pd

        # Only empty entries are missing: "NA" may be a name that somebody meant.
        read_csv = functools.partial(pd.read_csv, keep_default_na=False, na_values=[""])
        frame = pd.read_parquet(file) if kind == ".parquet" else read_csv(file)
        return {str(name): frame[name].to_numpy() for name in frame}
    except ImportError:
        raise UserError(f"{kind} needs another package: pip install 'simstudy[parquet]'") from None
    except Exception as error:  # a damaged file may raise nearly anything
        raise UserError(f"cannot be read as {kind} ({error}){remedy}") from None


# ---------------------------------------------------------------- heads and masks


def _projections(path: str, cell: Cell) -> Matrices:
    shape = (cell.heads.n_heads, cell.data.n_features, cell.heads.head_dim)
    stored = _array(path, shape, "(n_heads, n_features, head_dim)")
    return tuple(tuple(tuple(map(float, row)) for row in head) for head in _real(stored))


def _mask(path: str, cell: Cell) -> tuple[str, ...]:
    stored = _array(path, (cell.n_queries, cell.data.n_keys), "(queries, n_keys)")
    if stored.dtype != bool:
        raise UserError(f"must hold booleans, not {stored.dtype}; true where a query sees a key")
    if not (seen := stored.any(axis=1)).all():
        raise UserError(f"query {int(np.argmin(seen))} (counted from 0) sees no key; let it see one at least")
    return tuple("".join("1" if key else "0" for key in row) for row in stored)


def _value_overlap(path: str, cell: Cell) -> Overlap:
    """Return tr(A_h'A_g) of the products A_h of value and output projections."""
    arrays = _parsed(".npz", read_regular(Path(path), MAX_BYTES), "; save the arrays W_V and W_O")
    n_heads, (value, output) = cell.heads.n_heads, (arrays.get(name, np.zeros(0)) for name in ("W_V", "W_O"))
    three = len(arrays) == 2 and value.ndim == output.ndim == 3 and 0 not in (value.size, output.size)
    if not three or (n_heads, n_heads, value.shape[2]) != (len(value), len(output), output.shape[1]):
        held = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise UserError(f"holds {held}; save W_V of shape ({n_heads}, v, k) and W_O of shape ({n_heads}, k, c)")
    value, output = _real(value), _real(output)
    found = np.einsum("hva,gvb,hac,gbc->hg", value, value, output, output, optimize=True)
    if not (np.diagonal(found) > 0.0).all() or found.sum() <= _CANCELLED * np.trace(found):
        raise UserError("the map W_V W_O of a head, or their sum over heads, is 0; give other maps")
    return tuple(tuple(map(float, row)) for row in found)


def _real(stored: NDArray) -> Array:
    if stored.dtype.kind not in "fiu" or not (np.abs(numbers := np.array(stored, np.float64)) <= LARGEST).all():
        raise UserError(f"must hold real numbers only, none beyond ±{LARGEST:g}")
    return numbers


def _array(path: str, shape: tuple[int, ...], names: str) -> NDArray:
    stored = _parsed(".npy", read_regular(Path(path), MAX_BYTES), f"; save an array {names}")[""]
    if stored.shape != shape:
        raise UserError(f"holds shape {stored.shape}; {names} = {shape} is stated")
    return stored


# ---------------------------------------------------------------- rows of data


def _rows(path: str, cell: Cell) -> Rows:
    """Return the rows that keys are drawn from: split once, unless each batch holds out its own rows."""
    data, keys = cell.data, cell.data.key_distribution
    assert isinstance(keys, FileKeys)  # no others have rows
    table = _table(path)
    names = keys.columns or tuple(name for name in table if name != keys.response)
    for name in filter(None, (*names, keys.response)):
        if name not in table:
            known = f"but {', '.join(table)}; name one, or separate columns by commas"
            raise UserError(f"the data have no column {name!r}, {known}")
    if keys.response in names or len(set(names)) < len(names) or not names:
        raise UserError("columns must name each feature once, and not the response")
    none = np.full(len(table[names[0]]), np.nan)
    responses = none
    if isinstance(data.regression, FileRegression | FittedRegression):
        if keys.response is None:
            raise UserError(f'regression = "{data.regression.kind}" needs response = "COLUMN" of the data')
        responses = table[keys.response]
    raw = Rows(np.column_stack([*(table[name] for name in names), responses, none]), 0)
    rows = split(raw, data, cell.simulation.seed)
    rows = raw if "held_out" in cell.population else rows
    constant = [name for name, feature in zip(names, rows.keys.T, strict=True) if np.ptp(feature) == 0.0]
    if keys.standardise and constant:
        left_out = ", ".join(constant)
        raise UserError(f"constant columns cannot be standardised: leave out {left_out}, or use standardise = false")
    return rows


def _table(path: str) -> dict[str, Array]:
    if path.startswith(_PREFIX):
        return _of_scikit_learn(path.removeprefix(_PREFIX))
    kind = Path(path).suffix.lower()
    if kind not in _KINDS:
        raise UserError(f"has no file type that is read; give {', '.join(_KINDS)}, or {_PREFIX}NAME")
    return _columns(kind, read_regular(Path(path), MAX_DATA_BYTES))


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
    columns: dict[str, Any] = {}
    for name, array in _parsed(kind, content).items():
        if array.ndim == 2:
            columns |= {f"{name}.{j}".lstrip("."): column for j, column in enumerate(array.T)}
        elif array.ndim == 1 and name:
            columns[name] = array
        else:
            which = f"array {name!r}" if name else "its array"
            raise UserError(f"{which} has shape {array.shape}; give columns, or arrays of rows and columns")
    if len({len(column) for column in columns.values()}) > 1:
        raise UserError("arrays have different numbers of rows")
    if not columns or sum(map(len, columns.values())) > MAX_NUMBERS:
        raise UserError(f"must hold between 1 and {MAX_NUMBERS} numbers")
    return {name: _numbers(name, values) for name, values in columns.items()}


def _numbers(name: str, found: NDArray) -> Array:
    if found.dtype.kind not in "fiub":
        import pandas as pd

        numbers = pd.to_numeric(pd.Series(found), errors="coerce").to_numpy(np.float64)
        wrong = np.flatnonzero(np.isnan(numbers))[0]
        raise UserError(f"column {name!r} holds {found[wrong]!r} in row {wrong + 1}; give numbers only")
    numbers = found.astype(np.float64)
    wrong = np.flatnonzero(~(np.abs(numbers) <= LARGEST))
    if wrong.size:
        entry = f"{numbers[wrong[0]]:g} in row {wrong[0] + 1}, the first of {wrong.size} such rows"
        remedy = f"give finite numbers within ±{LARGEST:g}, or leave these rows out"
        raise UserError(f"column {name!r} holds {entry}; {remedy}")
    return numbers
