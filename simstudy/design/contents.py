"""Whether a cell can be: the contents of the files that it names, and the rules that tie several settings together."""

import functools
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.files import read_arrays, read_regular
from simstudy.design.measures import RESERVED
from simstudy.design.settings.cell import N_BLOCKS, Cell, Heads, Matrices
from simstudy.design.settings.mechanisms import FileMask, RandomValueProjections
from simstudy.design.settings.processes import FileKeys, FileRegression, FittedRegression, ResidualNoise
from simstudy.design.settings.records import LARGEST, SMALLEST, Impossible
from simstudy.design.settings.rows import MAX_NUMBERS, Array, Rows, split
from simstudy.errors import UserError, require_extra

MAX_BYTES, MAX_DATA_BYTES = 64 << 20, 1 << 28
"""Largest files that are read: of heads and masks, a copy of which every cell holds that uses it; of rows of data."""
MAX_ARRAY_BYTES = 8 << 30
"""Largest array that one replicate may need: beyond it, no worker of usual size finishes a batch."""
Broken = Iterator[tuple[str, str]]
"""Of each rule that is broken, the setting to change and the remedy."""
_SHIPPED = ("diabetes", "breast_cancer", "digits", "wine", "iris")
_PREFIX = "sklearn:"


def contents(cells: Iterable[Cell]) -> dict[str, str]:
    """Return digests of the contents of the files that cells name, and of functions in them, each with its file."""
    cells = list(cells)
    read = {}
    for content, path in ((getattr(cell, field), path) for cell in cells for _, path, (field, _) in named_files(cell)):
        if isinstance(content, Rows):
            read[content.digest] = path
        elif content is not None:
            read[hashlib.blake2b(np.array(content).data, digest_size=8).hexdigest()] = path
    pieces = (piece for cell in cells for _, piece in cell.own)
    return read | {piece.code.label: piece.path for piece in pieces if piece.code is not None}


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
        yield "file", heads.file, ("file_projections", _read_heads)
    if isinstance(mask := cell.estimator.mask, FileMask):
        yield "mask", mask.path, ("file_mask", _read_mask)
    if isinstance(keys, FileKeys):
        yield "key_distribution", keys.path, ("file_rows", _read_rows)


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


def _read_heads(path: Path, cell: Cell) -> Matrices:
    shape = cell.heads.n_heads, cell.data.n_features, cell.heads.head_dim
    stored = _of_shape(path, shape, "(n_heads, n_features, head_dim)")
    if stored.dtype.kind not in "fiu" or not (np.abs(numbers := np.array(stored, np.float64)) <= LARGEST).all():
        raise UserError(f"must hold real numbers only, none beyond ±{LARGEST:g}")
    if min(ranks := np.linalg.matrix_rank(numbers)) < cell.heads.head_dim:  # a head that spans no p-space has no angles
        raise UserError(f"head {np.argmin(ranks)} has rank {min(ranks)}; give head_dim = {cell.heads.head_dim}")
    return tuple(tuple(tuple(map(float, row)) for row in head) for head in numbers)


def _read_mask(path: Path, cell: Cell) -> tuple[str, ...]:
    stored = _of_shape(path, (cell.n_queries, cell.data.n_keys), "(queries, n_keys)")
    if stored.dtype != bool:
        raise UserError(f"must hold booleans, not {stored.dtype}; true where a query sees a key")
    if not (seen := stored.any(axis=1)).all():
        raise UserError(f"query {int(np.argmin(seen))} (counted from 0) sees no key; let it see one at least")
    return tuple("".join("1" if key else "0" for key in row) for row in stored)


def _read_rows(path: Path, cell: Cell) -> Rows:
    """Return the rows that keys are drawn from: split once, unless each batch holds out its own rows."""
    data, keys = cell.data, cell.data.key_distribution
    assert isinstance(keys, FileKeys)  # no others have rows
    if keys.path.startswith(_PREFIX):
        if (shipped := keys.path.removeprefix(_PREFIX)) not in _SHIPPED:
            raise UserError(f"scikit-learn ships no {shipped!r}; choose {', '.join(_SHIPPED)}")
        require_extra(f"path = '{keys.path}'", "sklearn", "learners")
        table = _columns(_PREFIX, shipped.encode())
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
def _columns(kind: str, content: bytes) -> dict[str, Array]:
    """Return the columns of a table by name, those of an array by number."""
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
        try:  # Only empty entries are missing: "NA" may be a name that somebody meant.
            frame = pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=[""])
        except Exception as error:  # a damaged file may raise nearly anything
            raise UserError(f"cannot be read as .csv ({error})") from None
    else:
        raise UserError(f"has no file type that is read; give .npy, .csv, or {_PREFIX}NAME")
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


def features_needed(heads: Heads) -> int:
    """Return the smallest d: p directions for the first head, and for each other one more for each nonzero angle."""
    turned = {
        "orthogonal": heads.head_dim,
        "rotated": heads.head_dim if heads.angle else 0,
        "principal_angles": sum(angle > 0 for angle in heads.principal_angles or ()),
    }
    return heads.head_dim + (heads.n_heads - 1) * turned.get(heads.arrangement, 0)


def impossibilities(cell: Cell) -> list[tuple[str, str]]:
    """Return the setting and the remedy of every rule that the settings of a cell break together."""
    if cell.functions is not None:
        remedy = "is the name of something else in the results; give the number another name"
        named = [("measures", f"{name!r} {remedy}") for name in {*cell.statistics} & RESERVED]
        return [*named, *cell.functions.impossibilities(), *_sizes(cell)]
    found = [broken for rule in (_rows, _heads, _estimator, _sizes) for broken in rule(cell)]
    # What settings need of others: without it they have no meaning, or errors that nobody has derived.
    estimator, noise, combination = cell.estimator, cell.data.noise, cell.estimator.combination
    heads, distance, dot_product = 'learner = "nadaraya_watson"', 'logits = "distance"', 'logits = "dot_product"'
    raw, drawn, untransformed = 'key_scale = "raw"', 'noise_treatment = "drawn"', 'transformation = "none"'
    plain = (untransformed, 'normaliser = "softmax"', "no product of kernels")
    met = {f'{name} = "{getattr(value, "kind", value)}"' for name, value in (*estimator, *cell.simulation)}
    met |= {f'a population without "{name}"' for name in ("heads", "rows") if name not in cell.population}
    met |= {"no product of kernels"} if combination.kind != "product" else set()
    met |= {"weights that are not fitted"} if combination.kind != "fitted" else set()
    met |= {"fixed weights of heads"} if combination.kind not in ("optimal", "fitted", "product") else set()
    values = (heads, 'combination = "uniform"', 'reference = "none"')
    for setting, holds, needs in (
        ("learner", estimator.learner.kind != "nadaraya_watson", (drawn, *plain)),
        ("learner", estimator.learner.kind == "trained", (distance, raw)),
        ("normaliser", estimator.normaliser.kind == "compact", (distance,)),
        ("transformation", getattr(estimator.transformation, "method", "") == "scores", (dot_product,)),
        ("head_bandwidths", estimator.head_bandwidths is not None, (heads, raw)),
        ("combination", combination.kind == "fitted", (heads, drawn)),
        ("combination", combination.kind == "optimal", ('a population without "heads"',)),
        ("noise", isinstance(noise, ResidualNoise) and not noise.paired, ('a population without "rows"',)),
        ("reference", estimator.reference != "none", (heads, *plain, "fixed weights of heads")),
        ("mask", estimator.mask.kind != "none", (heads, untransformed, "weights that are not fitted")),
        ("value_projections", cell.heads.value_projections.kind != "none", values),
    ):
        found += [(setting, f"needs {need}; change one of the two") for need in needs if holds and need not in met]
    return found


def _rows(cell: Cell) -> Broken:
    keys, data, queries, rows = cell.data.key_distribution, cell.data, cell.queries.queries, cell.file_rows
    by_rows, fitted = isinstance(data.regression, FileRegression | FittedRegression), data.regression.kind == "fitted"
    if isinstance(data.noise, ResidualNoise) and not fitted:
        yield "noise", 'residuals are those of a fit; use regression = "fitted"'
    if by_rows and queries.kind != "held_out":
        yield "queries", f'regression = "{data.regression.kind}" is known at rows only; use kind = "held_out"'
    if not isinstance(keys, FileKeys) or rows is None:
        if by_rows or queries.kind == "held_out":
            remedy = 'speaks of rows of data; use key_distribution = { kind = "file", path = "FILE" }'
            yield "regression" if by_rows else "queries", remedy
        return
    if queries.kind == "held_out" and queries.count > keys.held_out:
        remedy = f"count = {queries.count} exceeds held_out = {keys.held_out}; lower count or raise held_out"
        yield "queries", remedy
    if data.n_features != (found := rows.keys.shape[1]):
        yield "n_features", f"the data have {found} columns of features; state their number, or other columns"
    needed = data.n_keys + getattr(cell.estimator.combination, "n_validation", 0)
    kept = len(rows.keys) + len(rows.points) - keys.held_out
    if keys.sampling == "without" and needed > kept:
        yield "n_keys", f"{needed} pairs without replacement, but the data have {kept} rows; use fewer"


def _heads(cell: Cell) -> Broken:
    heads, d, p, angles = cell.heads, cell.data.n_features, cell.heads.head_dim, cell.heads.principal_angles
    needed = features_needed(heads)
    if p > d:
        yield "head_dim", f"exceeds n_features = {d}; lower head_dim or raise n_features"
    elif d < needed:
        them = f'{heads.n_heads} "{heads.arrangement}" heads of head_dim {p} take up {needed} features'
        yield "n_heads", f"{them}; n_features is {d}: raise it, or use fewer or smaller heads"
    if heads.total_dim not in (None, heads.n_heads * p):
        remedy = f"must be n_heads·head_dim = {heads.n_heads}·{p}; state a multiple, and one of the two alone"
        yield "total_dim", remedy
    needs = {"rotated": "angle", "scattered": "spread", "own": "heads_function"}
    wanted = needs.get(heads.arrangement, heads.arrangement)
    for setting in ("angle", "principal_angles", "spread", "file", "heads_function"):
        if (getattr(heads, setting) is None) == (setting == wanted):
            what = "state" if setting == wanted else "remove"
            yield setting, f'{what} {setting} for arrangement = "{heads.arrangement}"'
    if angles is not None and len(angles) != p:
        yield "principal_angles", f"state head_dim = {p} angles"


def _estimator(cell: Cell) -> Broken:
    estimator, n_heads, d, p = cell.estimator, cell.heads.n_heads, cell.data.n_features, cell.heads.head_dim
    combination, factors, learner = estimator.combination, estimator.head_bandwidths, estimator.learner
    normaliser, transformation, values = estimator.normaliser, estimator.transformation, cell.heads.value_projections
    if combination.kind == "given" and len(combination.weights) != n_heads:
        remedy = f"{len(combination.weights)} weights for n_heads = {n_heads}; state one for each head"
        yield "combination", remedy
    if factors is not None and len(factors) != n_heads:
        yield "head_bandwidths", f"{len(factors)} factors for n_heads = {n_heads}; state one for each head"
    if learner.kind == "random_forest" and learner.max_features > d:
        yield "learner", f"max_features = {learner.max_features} exceeds n_features = {d}; lower it"
    if learner.kind == "trained" and cell.data.n_keys < 3:
        yield "n_keys", "training leaves one pair out; use at least 3"
    if normaliser.kind == "compact" and normaliser.power > 8 and cell.simulation.dtype == "float32":
        yield "dtype", f"(1 − |u|²)^{normaliser.power} falls below the smallest float32; use float64"
    if transformation.kind == "low_rank" and transformation.rank > p:
        yield "transformation", f"rank = {transformation.rank} exceeds head_dim = {p}; lower it"
    if isinstance(values, RandomValueProjections) and values.value_dim > values.n_components:
        remedy = f"value_dim = {values.value_dim} of n_components = {values.n_components}; lower it"
        yield "value_projections", remedy


def _sizes(cell: Cell) -> Broken:
    data, n_heads, p = cell.data, cell.heads.n_heads, cell.heads.head_dim
    d, keys, queries = data.n_features, data.key_distribution, cell.queries.queries
    if keys.kind == "mixture" and keys.n_components > d:
        yield "key_distribution", f"n_components = {keys.n_components} needs as many features; n_features is {d}"
    if queries.kind == "points" and max(map(len, queries.points)) > d:
        yield "queries", f"a query point has more coordinates than n_features = {d}; shorten it"
    for term in data.terms:
        lists = [getattr(term, name, ()) for name in ("coefficients", "direction")]
        coordinates = getattr(term, "coordinates", ())
        needed = max(*map(len, lists), getattr(term, "n_active", None) or 0, *coordinates)
        if needed > d:
            yield "regression", f"{term.kind} uses coordinate {needed}; n_features is {d}"
        if term.kind == "ridge" and not any(term.direction):
            yield "regression", "the direction of a ridge function must not be zero"
        if len({*coordinates}) < len(coordinates):
            yield "regression", "the coordinates of an interaction must differ; a square is a quadratic function"
    if not SMALLEST <= cell.bandwidth <= LARGEST:
        yield "bandwidth", f"comes to {cell.bandwidth:g}, outside [{SMALLEST:g}, {LARGEST:g}]; change the rule"
    size, short = cell.simulation.batch_size, (4, 8) if cell.population else ()
    if size % N_BLOCKS and size not in short:
        yield "batch_size", "must be a multiple of 16; of a population also 4 or 8"
    numbers = {
        # Keys as drawn, and as projected by every head.
        "n_keys": data.n_keys * max(d, n_heads * p),
        # Query points, and the moments of every pair of heads at each.
        "queries": cell.n_queries * max(d, N_BLOCKS * n_heads**2),
        # Both bases of every pair of heads.
        "n_heads": n_heads**2 * d * p,
    }
    if isinstance(values := cell.heads.value_projections, RandomValueProjections):
        numbers["value_projections"] = n_heads * values.value_dim * max(values.n_components, n_heads * values.value_dim)
    for setting, count in numbers.items():
        if 8 * count > MAX_ARRAY_BYTES:
            array = f"one replicate needs an array of {8 * count / 2**30:.3g} GiB, above {MAX_ARRAY_BYTES >> 30}"
            yield setting, f"{array}; use fewer"
