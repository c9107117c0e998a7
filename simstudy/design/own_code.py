"""The user's own functions: read from their files, and held against their contract where they are trusted."""

import ast
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from simstudy.design.files import read_text
from simstudy.design.settings.cell import TABLES, Cell
from simstudy.design.settings.code import BY_VALUE, Code, OwnCode, OwnFunction, OwnHeads, OwnMeasure
from simstudy.design.settings.ensembles import GradientBoostingLearner, RandomForestLearner
from simstudy.design.settings.functions import Draw, Functions
from simstudy.design.settings.processes import Sum
from simstudy.design.settings.records import Impossible
from simstudy.errors import UserError, require_extra

MAX_BYTES = 1 << 18
"""Largest Python file that is read: it travels with every task."""
_IDENTIFIED = {"numpy", "scipy", "numba"}
distributions = functools.cache(packages_distributions)


def trusted_texts(trust: Iterable[str | Path]) -> frozenset[str]:
    """Return the texts of the files that a user trusts: what was there to be read."""
    return frozenset(_text(Path(path), f"--trust {path}") for path in trust)


def own_functions(cell: Cell) -> Iterator[tuple[str, OwnCode]]:
    """Yield the user's own functions of a cell, each with the setting that states it."""
    if cell.functions is not None:
        yield "functions", cell.functions
    for setting, value in (entry for table in TABLES for entry in getattr(cell, table)):
        for piece in value.terms if isinstance(value, Sum) else (value,):
            if isinstance(piece, OwnCode):
                yield setting, piece


def read_code(cell: Cell, folder: Path, trusted: frozenset[str], trial: bool) -> Cell:
    """Return a cell with the code of its functions; on trial, those of trusted texts are tried.  No other one is run.

    Raises
    ------
    Impossible
        If a file cannot be read, or its functions break their contract.
    """
    read: dict[OwnCode, OwnCode] = {}
    for setting, piece in own_functions(cell):
        try:
            code = _read(folder / piece.path, piece)
            by_value = BY_VALUE.get(code.text, {})  # code of this very process needs no trust
            code = Code(code.text, code.place, bool(by_value) or code.text in trusted, tuple(by_value.items()))
            read[piece] = piece.model_copy(update={"code": code})
        except UserError as error:
            raise Impossible(setting, str(error)) from None
    tables = {name: _replaced(getattr(cell, name), read) for name in TABLES} if read else {}
    functions = None if cell.functions is None else read[cell.functions]
    cell = cell.model_copy(update=tables | {"functions": functions})
    for wrong in () if cell.functions is None else cell.functions.impossibilities():
        raise Impossible(*wrong)  # before the trial: it is not what functions make of them that is wrong
    for setting, piece in own_functions(cell) if trial else ():
        try:
            if piece.code is not None and piece.code.trusted:
                heads = cell.heads.n_heads, cell.heads.head_dim
                _try(piece, cell.data.n_features, cell.n_queries, cell.n_members, heads)
        except UserError as error:
            raise Impossible(setting, str(error)) from None
    return cell


def value_of(stated: dict[str, Any], folder: Path, trusted: frozenset[str]) -> float:
    """Return the number that ``{ function = "NAME", PARAMETER = … }`` of functions.py gives."""
    path, name = folder / "functions.py", stated["function"]
    code = Code(_text(path, str(path)), str(path))
    if name not in code.functions:
        raise UserError(f"{path}: defines no function {name!r}; known are {', '.join(code.functions)}")
    function = Code(code.text, code.place, code.text in trusted).function(name)
    try:
        return float(function(**{k: v for k, v in stated.items() if k != "function"}))
    except Exception as error:
        raise UserError(f"{path}: {name} raises {type(error).__name__}: {error}") from None


def require_trust(cells: Iterable[Cell]) -> None:
    """Refuse to compute cells with functions that the user did not say may run, or that need what is not installed."""
    for cell in cells:
        if cell.estimator.reference.startswith("torch"):
            otherwise = ", or choose a profile that compares with multi_head_attention"
            require_extra(f'reference = "{cell.estimator.reference}"', "torch", "models", otherwise)
        if isinstance(cell.estimator.learner, RandomForestLearner | GradientBoostingLearner):
            require_extra("estimator.learner", "sklearn", "learners")
        for _, piece in own_functions(cell):
            if piece.code is not None:
                piece.code.require_trust()


def _replaced(table: Any, read: dict[OwnCode, OwnCode]) -> Any:
    """A table with the code of its functions."""

    def renewed(value: Any) -> Any:
        if isinstance(value, Sum):
            return value.model_copy(update={"terms": tuple(map(renewed, value.terms))})
        return read[value] if isinstance(value, OwnCode) else value

    changed = {setting: new for setting, value in table if (new := renewed(value)) is not value}
    return table.model_copy(update=changed) if changed else table


def _read(path: Path, piece: OwnCode) -> Code:
    """Return the code of a file that defines the functions, as far as that shows without running it."""
    code = Code(_text(path, str(path)), str(path))
    for name, takes in piece.uses_functions.items():
        if name not in code.functions:
            known = (*code.functions, *piece.builtin)
            raise UserError(f"{path}: defines no function {name!r}; known are {', '.join(known) or 'none'}")
        if takes and (unknown := set(code.functions[name]) - set(takes)):
            raise UserError(f"{path}: {name} takes {', '.join(sorted(unknown))}; it may take {', '.join(takes)}")
    return code


def _text(path: Path, place: str) -> str:
    """The text of a file, with a line on the packages it rests on; what rests on files beside it is refused."""
    try:
        nodes = list(ast.walk(ast.parse(text := read_text(path, MAX_BYTES))))
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UserError(f"{place}: not Python: {' '.join(str(error).split())}") from None
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    imported = {name.partition(".")[0] for name in names}
    rests = []
    for name in sorted(imported - _IDENTIFIED - {path.stem} - sys.stdlib_module_names):
        if (path.parent / f"{name}.py").exists() or (path.parent / name).is_dir():
            remedy = "which would not identify what is computed; write it into this file, or install it as a package"
            raise UserError(f"{place}: imports {name} from beside it, {remedy}")
        rests += [f"{package} {version(package)}" for package in sorted({*distributions().get(name, ())})]
    return f"{text}\n# rests on {', '.join(rests)}\n" if rests else text


# ---------------------------------------------------------------- the contract


@functools.lru_cache(maxsize=64)
def _try(piece: OwnCode, n_features: int, n_queries: int, n_members: int, heads: tuple[int, int]) -> None:
    """Hold a function against its contract on a few made-up arrays; raises UserError if it breaks it."""
    n_replicates, n_keys = 3, 5
    draw = np.random.Generator(np.random.Philox(key=1))
    x = draw.standard_normal((n_features, n_replicates, n_keys))
    if isinstance(piece, Functions):
        numbers = piece.numbers
        _hold(piece, piece.method, lambda part: np.stack([*numbers(Draw(range(n_keys)[part])).values()], axis=-1))
        for name in piece.of_means.keys() & piece.uses_functions.keys():
            piece.of_means[name]({each: np.ones(1) for each in piece.measured})
    elif isinstance(piece, OwnHeads):
        normals = draw.standard_normal((heads[0], n_features, heads[1]))
        _hold(piece, piece.name, lambda part: piece.of(normals.shape, normals=normals)[part])
        if (np.linalg.matrix_rank(piece.of(normals.shape, normals=normals)) < heads[1]).any():
            _refuse(piece, piece.name, f"returns a head of a rank below head_dim = {heads[1]}")
    elif isinstance(piece, OwnFunction):

        def at(points: NDArray) -> NDArray:
            return piece.call(points.shape[1:], points)

        _hold(piece, piece.name, lambda part: at(x[:, part]))
        if not np.array_equal(at(x[:, :1, :2]), at(x)[:1, :2]):
            fault = "gives another value at a point among other points; add up features one by one, as x[0] + x[1]"
            _refuse(piece, piece.name, fault)
    elif isinstance(piece, OwnMeasure):
        fixed = {"target": draw.standard_normal(n_queries), "queries": draw.standard_normal((n_features, n_queries))}
        estimates = draw.standard_normal((n_replicates, n_queries, n_members))
        values = draw.standard_normal((n_replicates, n_keys))

        def compute(part: slice) -> NDArray:
            some = {"keys": x[:, part], "values": values[part], "estimates": estimates[part]}
            return piece.of((len(some["values"]),), **fixed, **some)

        _hold(piece, piece.name, compute)


def _hold(piece: OwnCode, name: str, compute: Callable[[slice], NDArray]) -> None:
    """Hold a function against its contract: finite numbers of replicates that follow from its arguments alone.

    In some replicates a simulation may fail.
    """
    whole, fails = compute(slice(None)), isinstance(piece, Functions)
    if fails and np.isnan(whole).any(axis=-1).all():
        _refuse(piece, name, f"gives no finite numbers in any of {len(whole)} replicates on which it was tried")
    if not fails and not np.isfinite(whole).all():
        _refuse(piece, name, "returns values that are not finite")
    if not np.array_equal(whole, compute(slice(None)), equal_nan=True):
        _refuse(piece, name, "returns other values when it is called again; it must follow from its arguments alone")
    slack = 1e-12 if fails else 0.0
    if not np.allclose(whole[1:], compute(slice(1, None)), rtol=1e-9, atol=slack, equal_nan=True):
        fault = "gives a replicate other numbers among other replicates; no replicate may see another"
        _refuse(piece, name, f"{fault}, and the first axis of arrays is that of replicates")


def _refuse(piece: OwnCode, name: str, what: str) -> NoReturn:
    raise UserError(f"{piece.path}: {name} {what}")
