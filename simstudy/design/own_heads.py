"""Projections of heads, of values, and masks from the user's own files, read and checked into the cell."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simstudy.design.files import read_array, read_arrays, read_regular
from simstudy.design.settings import LARGEST
from simstudy.design.settings.cell import Cell, Matrices
from simstudy.design.settings.masks import FileMask
from simstudy.design.settings.records import Impossibility
from simstudy.design.settings.value_projections import FileValueProjections, Overlap
from simstudy.errors import UserError

Contents = Matrices | Overlap | tuple[str, ...]
"""What a cell holds of a file."""
MAX_BYTES = 64 << 20
"""Largest file that is read: every cell that uses it holds a copy."""
_CANCELLED = 1e-10
"""Squared size of a sum of maps, relative to those of its terms, below which rounding decides it."""


def read_heads(cell: Cell, folder: Path) -> tuple[Cell, list[Impossibility]]:
    """Read the arrays that the heads of a cell name, relative to the folder of its design, into the cell."""
    if cell.instance is not None:
        return cell, []
    heads, mask, values = cell.heads, cell.estimator.mask, cell.heads.value_projections
    stated = {
        "file": heads.file if heads.arrangement == "file" else None,
        "query_file": heads.query_file if heads.query_projections == "file" else None,
        "mask": mask.path if isinstance(mask, FileMask) else None,
        "value_projections": values.path if isinstance(values, FileValueProjections) else None,
    }
    found: dict[str, Contents] = {}
    problems: list[Impossibility] = []
    for setting, path in stated.items():
        field, read = _READERS[setting]
        try:
            found |= {} if path is None else {field: read(folder / path, cell)}
        except UserError as error:
            problems.append((setting, str(error)))
    return cell.model_copy(update=found), problems


def _head_projections(path: Path, cell: Cell) -> Matrices:
    """Return projections of full rank: a head that spans no p-space has no angles."""
    projections = _projections(path, cell)
    ranks = np.linalg.matrix_rank(np.array(projections))
    if (ranks < cell.heads.head_dim).any():
        head = int(np.argmin(ranks))
        raise UserError(f"head {head} has rank {ranks[head]}; give head_dim = {cell.heads.head_dim}")
    return projections


def _projections(path: Path, cell: Cell) -> Matrices:
    """Return projections (head, feature, dimension)."""
    shape = (cell.heads.n_heads, cell.data.n_features, cell.heads.head_dim)
    stored = _stored(path, shape, "(n_heads, n_features, head_dim)", "a float array of shape (H, d, p)")
    return tuple(tuple(tuple(map(float, row)) for row in head) for head in _real(stored))


def _mask(path: Path, cell: Cell) -> tuple[str, ...]:
    """Return a text of 0 and 1 for each query."""
    shape = (cell.n_queries, cell.data.n_keys)
    stored = _stored(path, shape, "(queries, n_keys)", "an array of booleans (queries, n_keys)")
    if stored.dtype != bool:
        raise UserError(f"must hold booleans, not {stored.dtype}; true where a query sees a key")
    if not (seen := stored.any(axis=1)).all():
        raise UserError(f"query {int(np.argmin(seen))} (counted from 0) sees no key; let it see one at least")
    return tuple("".join("1" if key else "0" for key in row) for row in stored)


def _value_overlap(path: Path, cell: Cell) -> Overlap:
    """Return tr(A_h'A_g) of the products A_h of value and output projections."""
    arrays, n_heads = _arrays(path), cell.heads.n_heads
    value, output = (arrays.get(name, np.zeros(0)) for name in ("W_V", "W_O"))
    three = len(arrays) == 2 and value.ndim == output.ndim == 3 and 0 not in (value.size, output.size)
    if not three or (n_heads, n_heads, value.shape[2]) != (len(value), len(output), output.shape[1]):
        held = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise UserError(f"holds {held}; save W_V of shape ({n_heads}, v, k) and W_O of shape ({n_heads}, k, c)")
    value, output = _real(value), _real(output)
    found = np.einsum("hva,gvb,hac,gbc->hg", value, value, output, output, optimize=True)
    if not (np.diagonal(found) > 0.0).all() or found.sum() <= _CANCELLED * np.trace(found):
        raise UserError("maps W_V W_O of a head, or their sum over heads, come to 0: no value comes out of them")
    return tuple(tuple(map(float, row)) for row in found)


def _real(stored: NDArray) -> NDArray[np.float64]:
    if stored.dtype.kind not in "fiu" or not (np.abs(numbers := np.array(stored, np.float64)) <= LARGEST).all():
        raise UserError(f"must hold real numbers only, none beyond ±{LARGEST:g}")
    return numbers


def _arrays(path: Path) -> dict[str, NDArray]:
    try:
        return read_arrays(io.BytesIO(read_regular(path, MAX_BYTES)), MAX_BYTES)
    except UserError:
        raise
    except Exception as error:  # a damaged file may raise nearly anything
        raise UserError(f"cannot be read as .npz ({error}); save the arrays W_V and W_O") from None


def _stored(path: Path, shape: tuple[int, ...], names: str, kind: str) -> NDArray:
    """Return the array of a file, refused unless it has this shape."""
    try:
        stored = read_array(io.BytesIO(read_regular(path, MAX_BYTES)), MAX_BYTES)
    except UserError:
        raise
    except Exception as error:  # a damaged header may raise nearly anything
        raise UserError(f"cannot be read as .npy ({error}); save {kind}") from None
    if stored.shape != shape:
        raise UserError(f"holds shape {stored.shape}; {names} = {shape} is stated")
    return stored


_READERS: dict[str, tuple[str, Callable[[Path, Cell], Contents]]] = {
    "file": ("file_projections", _head_projections),
    "query_file": ("file_query_projections", _projections),
    "mask": ("file_mask", _mask),
    "value_projections": ("file_value_overlap", _value_overlap),
}
"""For each setting that names a file, the field of a cell that holds its contents, and what reads them."""
