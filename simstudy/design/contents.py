"""Contents of the files that a design names: heads, masks and rows of data as arrays, and functions as text."""

import ast
import functools
import hashlib
import importlib.util
import io
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.files import read_arrays, read_regular, read_text
from simstudy.design.settings.cell import MAX_NUMBERS, Array, Cell, Matrices, Rows, split
from simstudy.design.settings.choices import FileKeys, FileRegression, FittedRegression
from simstudy.design.settings.functions import BY_VALUE, Code, Draw, Functions, OwnCode, OwnFunction, OwnHeads
from simstudy.design.settings.records import LARGEST, mistake
from simstudy.errors import UserError, require_extra

MAX_BYTES, MAX_DATA_BYTES, MAX_CODE_BYTES = 64 << 20, 1 << 28, 1 << 18
"""Largest files in bytes: heads and masks, rows of data, and Python, which is sent with every task."""
FEW, MANY = 5, 64
"""Replicates for a trial of functions, and for a second trial if all replicates of the first fail."""
_SHIPPED = ("diabetes", "breast_cancer", "digits", "wine", "iris")
_PREFIX = "sklearn:"
distributions = functools.cache(packages_distributions)


def read_contents(cell: Cell, folder: Path) -> Cell:
    """Return a cell with the contents of its files; `DesignError` names the setting if they do not fit."""
    read, found = {"file_projections": _read_heads, "file_mask": _read_mask, "file_rows": _read_rows}, dict[str, Any]()
    for field, (setting, path) in cell.files.items():
        try:
            found[field] = read[field](folder / path, cell)
        except UserError as error:
            raise mistake(setting, None, str(error)) from None
    return cell.model_copy(update=found)


def _array(content: bytes, shape: tuple[int, ...] | None = None, names: str = "") -> NDArray:
    try:
        if "" not in (arrays := read_arrays(io.BytesIO(content))):
            raise ValueError("it is an archive")
    except ValueError as error:
        raise UserError(f"cannot be read as .npy ({error}){names and f'; save an array {names}'}") from None
    if shape not in (None, stored := arrays[""].shape):
        raise UserError(f"holds shape {stored}; {names} = {shape} is stated")
    return arrays[""]


def _read_heads(path: Path, cell: Cell) -> Matrices:
    shape = cell.heads.n_heads, cell.data.n_features, cell.heads.head_dim
    stored = _array(read_regular(path, MAX_BYTES), shape, "(n_heads, n_features, head_dim)")
    if stored.dtype.kind not in "fiu" or not (np.abs(numbers := np.array(stored, np.float64)) <= LARGEST).all():
        raise UserError(f"must hold real numbers only, within ±{LARGEST:g}")
    if min(ranks := np.linalg.matrix_rank(numbers)) < cell.heads.head_dim:  # angles need heads of full rank
        raise UserError(f"head {np.argmin(ranks)} has rank {min(ranks)}; give head_dim = {cell.heads.head_dim}")
    return tuple(tuple(tuple(map(float, row)) for row in head) for head in numbers)


def _read_mask(path: Path, cell: Cell) -> tuple[str, ...]:
    stored = _array(read_regular(path, MAX_BYTES), (cell.n_queries, cell.data.n_keys), "(queries, n_keys)")
    if stored.dtype != bool:
        raise UserError(f"must hold booleans, not {stored.dtype}; true where a query sees a key")
    if not (seen := stored.any(axis=1)).all():
        raise UserError(f"query {int(np.argmin(seen))} (counted from 0) sees no key; let it see at least one")
    return tuple("".join("1" if key else "0" for key in row) for row in stored)


def _read_rows(path: Path, cell: Cell) -> Rows:
    """Return the rows from which keys are drawn, without held-out rows unless each batch splits them anew."""
    data, keys = cell.data, cell.data.key_distribution
    assert isinstance(keys, FileKeys)  # only these have rows
    if keys.path.startswith(_PREFIX):
        if (shipped := keys.path.removeprefix(_PREFIX)) not in _SHIPPED:
            raise UserError(f"scikit-learn ships no {shipped!r}; choose {', '.join(_SHIPPED)}")
        require_extra(f"path = '{keys.path}'", "sklearn", "learners")
        table = _columns(_PREFIX, shipped.encode())
    else:
        table = _columns(path.suffix.lower(), read_regular(path, MAX_DATA_BYTES))
    names = keys.columns or tuple(name for name in table if name != keys.response)
    if unknown := [name for name in (*names, keys.response) if name not in {*table, None}]:
        known = f"but {', '.join(table)}; name one, or separate columns by commas"
        raise UserError(f"the data have no column {unknown[0]!r}, {known}")
    if keys.response in names or len(set(names)) < len(names) or not names:
        raise UserError("columns must name each feature once, and not the response")
    responses = missing = np.full(len(table[names[0]]), np.nan)
    if isinstance(data.regression, FileRegression | FittedRegression):
        if keys.response is None:
            raise UserError(f'regression = "{data.regression.kind}" needs response = "COLUMN" of the data')
        responses = table[keys.response]
    features = np.column_stack([table[name] for name in names])
    raw = Rows(features, responses, missing, features[:0], responses[:0])
    rows = raw if "held_out" in cell.population else split(raw, data, cell.simulation.seed)
    constant = ", ".join(name for name, feature in zip(names, rows.keys.T, strict=True) if np.ptp(feature) == 0.0)
    if keys.standardise and constant:
        raise UserError(f"constant columns cannot be standardised: leave out {constant}, or use standardise = false")
    return rows


@functools.lru_cache(maxsize=8)
def _columns(kind: str, content: bytes) -> dict[str, Array]:
    """Return the columns of a table by name, or of an array by number."""
    import pandas as pd

    if kind == _PREFIX:
        from sklearn import datasets

        frame = getattr(datasets, f"load_{content.decode()}")(as_frame=True).frame
    elif kind == ".npy":
        array = _array(content)
        if array.ndim != 2:
            raise UserError(f"its array has shape {array.shape}; give rows and columns")
        frame = pd.DataFrame(array)
    elif kind == ".csv":
        try:  # Only empty entries are missing: "NA" may be a name.
            pd.read_csv(io.BytesIO(content), header=None, nrows=2)  # fails if the first row is longer than the header
            frame = pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=[""])
        except Exception as error:  # a damaged file may raise nearly anything
            raise UserError(f"cannot be read as .csv ({' '.join(str(error).split())})") from None
    else:
        raise UserError(f"has an unknown file type; give .npy, .csv, or {_PREFIX}NAME")
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


class OwnFiles:
    """Python files of a study, each read once; only code of trusted files may run.

    Functions of shipped studies are trusted and not tried here: tests call them, and some load models.
    """

    def __init__(self, folder: Path, trust: Iterable[str | Path], shipped: bool, functions: str | None = None) -> None:
        named, own = [trust] if isinstance(trust, str | Path) else trust, folder.glob("*.py") if shipped else ()
        self._trusted = {_text(Path(path), f"--trust {path}") for path in (*named, *sorted(own))}
        self._text = functools.cache(_text)
        self.folder, self._trial, self._functions = folder, not shipped, functions
        self._seconds = defaultdict[Any, float](float)

    def number(self, function: Any, parameters: dict[str, Any]) -> float:
        """Return the result of a function in functions.py; UserError if it raises or returns no number."""
        call = (code := self.code("functions.py", [function])).function(function)
        try:
            return float(0.0 + call(**parameters))  # a text raises
        except (Exception, SystemExit) as error:
            raise UserError(f"{code.place}: {function} raises {type(error).__name__}: {error}") from None

    def code(self, name: str, functions: Iterable[Any]) -> Code:
        """Return the code of a file; UserError if it does not define these functions."""
        path = self.folder / name
        text = self._text(path, str(path)) if self._functions is None else self._functions
        by_value = BY_VALUE.get(text, {})  # callables of this process are trusted
        code = Code(text, str(path), bool(by_value) or text in self._trusted, tuple(by_value.items()))
        for each in functions:
            if each not in (known := [*code.functions]):
                raise UserError(f"{path}: defines no function {each!r}; known are {', '.join(known) or 'none'}")
        return code

    def faults(self, cell: Cell) -> list[tuple[str, str]]:
        """Return setting and fault of a trusted function that fails a trial; slow functions are tried in few cells."""
        for setting, piece in cell.own if self._trial else ():
            used, start = (piece.path, piece.uses_functions), time.monotonic()
            if piece.code.trusted and self._seconds[used] < 1.0:  # the first cell is always tried
                try:
                    _try(piece, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim)
                except (UserError, ArithmeticError, np.linalg.LinAlgError) as error:
                    return [(setting, str(error))]
                self._seconds[used] += time.monotonic() - start
        return []


def _text(path: Path, place: str) -> str:
    """Return the text of a file, with versions or digests of the packages it imports; local modules are refused."""
    try:
        nodes = list(ast.walk(ast.parse(text := read_text(path, MAX_CODE_BYTES))))
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UserError(f"{place}: not Python: {' '.join(str(error).split())}") from None
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    names, packages = {name.partition(".")[0] for name in names}, []
    for name in sorted(names - {"numpy", "scipy", "numba", path.stem} - sys.stdlib_module_names):
        if (path.parent / f"{name}.py").exists() or (path.parent / name).is_dir():
            remedy = "which would not identify the computation; write it into this file, or install it as a package"
            raise UserError(f"{place}: imports {name} from its own folder, {remedy}")
        packages += [f"{package} {version(package)}" for package in sorted({*distributions().get(name, ())})]
        found = None if name in ("simstudy", "__main__") else importlib.util.find_spec(name)
        origin = str(found.origin) if found and found.has_location else sys.prefix
        if "-packages" not in origin and not origin.startswith((sys.prefix, sys.base_prefix)):  # installed for editing
            folders = map(Path, getattr(found, "submodule_search_locations", None) or ())
            files = sorted(each for folder in folders for each in folder.rglob("*.py")) or [Path(origin)]
            digest = hashlib.blake2b(repr([read_regular(one, MAX_DATA_BYTES) for one in files]).encode(), digest_size=8)
            packages.append(f"{name} {digest.hexdigest()}")
    return f"{text}\n# rests on {', '.join(packages)}\n" if packages else text


@functools.lru_cache(maxsize=64)
def _try(piece: OwnCode, n_features: int, n_heads: int, head_dim: int) -> None:
    """Call a function on a few random arrays; UserError if the result is not as required."""
    draw = np.random.Generator(np.random.Philox(key=1))
    x = draw.standard_normal((n_features, 3, FEW))
    if isinstance(piece, Functions):
        also = ["interval_length"] * ("coverage" in piece.measures)  # ends may differ although coverage does not
        tried = piece.model_copy(update={"measures": (*piece.measures, *also)})
        _check(piece, piece.method, lambda part: np.stack([*tried.numbers(Draw(range(FEW)[part])).values()], axis=-1))
        for name in piece.of_means.keys() & {*piece.uses_functions}:
            piece.of_means[name]({each: np.ones(1) for each in piece.measured})
    elif isinstance(piece, OwnHeads):
        normals = draw.standard_normal((n_heads, n_features, head_dim))
        _check(piece, piece.name, lambda part: piece.call(normals.shape, normals)[part])
        if (np.linalg.matrix_rank(piece.call(normals.shape, normals)) < head_dim).any():
            piece.refuse(f"{piece.name} returns a head of a rank below head_dim = {head_dim}")
    elif isinstance(piece, OwnFunction):
        _check(piece, piece.name, lambda part: piece.call(x[0, part].shape, x[:, part]))
        if not np.array_equal(piece.call((1, 2), x[:, :1, :2]), piece.call((3, FEW), x)[:1, :2]):
            fault = "gives a point another value among other points; add features one by one, as x[0] + x[1]"
            piece.refuse(f"{piece.name} {fault}")


def _check(piece: OwnCode, name: str, compute: Callable[[slice], NDArray]) -> None:
    """Refuse results that are not finite, or depend on more than the arguments of their own replicate."""
    whole, may_fail = compute(slice(None)), isinstance(piece, Functions)
    if isinstance(piece, Functions) and not np.isfinite(whole).all(axis=-1).any():
        why: list[str] = []
        failed: NDArray = ~np.isfinite([*piece.numbers(Draw(range(MANY)), note=why.append).values()])
        measures = ", ".join(each for each, fails in zip(piece.measured, failed, strict=True) if fails.all())
        fault = f"{name} gives no finite numbers in any of {MANY} replicates on which it was tried"
        if failed.any(axis=0).all():
            piece.refuse(f"{fault}: {next(iter(why), measures)}")
    if not may_fail and not np.isfinite(whole).all():
        piece.refuse(f"{name} returns values that are not finite")
    if not np.array_equal(whole, compute(slice(None)), equal_nan=True):
        piece.refuse(f"{name} returns other values when it is called again; it must depend on its arguments alone")
    if not np.allclose(whole[1:], compute(slice(1, None)), rtol=1e-9, atol=1e-12 if may_fail else 0.0, equal_nan=True):
        fault = "gives a replicate other numbers among other replicates; no replicate may see another"
        piece.refuse(f"{name} {fault}, and the first axis of arrays is that of replicates")
