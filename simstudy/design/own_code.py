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
from simstudy.design.settings.code import BY_VALUE, Code, OwnCode, OwnFunction, OwnHeads
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
    sizes = cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim
    with_code = functools.partial(_with_code, folder=folder, trusted=trusted, tried_on=sizes if trial else None)
    found: dict[str, Any] = {}
    for name, value in cell:
        if name in TABLES:
            changed = {setting: new for setting, old in value if (new := with_code(setting, old)) is not old}
            found |= {name: value.model_copy(update=changed)} if changed else {}
        elif isinstance(value, Functions):
            found[name] = with_code("functions", value)
    return cell.model_copy(update=found) if found else cell


def _with_code(
    setting: str, value: Any, folder: Path, trusted: frozenset[str], tried_on: tuple[Any, ...] | None
) -> Any:
    if isinstance(value, Sum):
        terms = tuple(_with_code(setting, term, folder, trusted, tried_on) for term in value.terms)
        return value if terms == value.terms else value.model_copy(update={"terms": terms})
    if not isinstance(value, OwnCode):
        return value
    try:
        piece = value.model_copy(update={"code": _read(folder / value.path, value, trusted)})
        for wrong in piece.impossibilities() if isinstance(piece, Functions) else ():
            raise Impossible(*wrong)  # before the trial: it is not what functions make of them that is wrong
        if tried_on is not None and piece.code is not None and piece.code.trusted:
            _try(piece, *tried_on)
    except UserError as error:
        raise (error if isinstance(error, Impossible) else Impossible(setting, str(error))) from None
    return piece


def value_of(stated: dict[str, Any], folder: Path, trusted: frozenset[str]) -> float:
    """Return the number that ``{ function = "NAME", PARAMETER = … }`` of functions.py gives."""
    path, name = folder / "functions.py", stated["function"]
    code = Code(_text(path, str(path)), str(path))
    if name not in list(code.functions):  # a list is no key
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


def _read(path: Path, piece: OwnCode, trusted: frozenset[str]) -> Code:
    """Return the code of a file that defines the functions, as far as that shows without running it."""
    by_value = BY_VALUE.get(text := _text(path, str(path)), {})  # code of this very process needs no trust
    code = Code(text, str(path), bool(by_value) or text in trusted, tuple(by_value.items()))
    for name in piece.uses_functions:
        if name not in code.functions:
            known = (*code.functions, *piece.builtin)
            raise UserError(f"{path}: defines no function {name!r}; known are {', '.join(known) or 'none'}")
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


@functools.lru_cache(maxsize=64)
def _try(piece: OwnCode, n_features: int, n_heads: int, head_dim: int) -> None:
    """Hold a function against its contract on a few made-up arrays; raises UserError if it breaks it."""
    n_replicates, n_keys = 3, 5
    draw = np.random.Generator(np.random.Philox(key=1))
    x = draw.standard_normal((n_features, n_replicates, n_keys))
    if isinstance(piece, Functions):
        numbers = piece.numbers
        _hold(piece, piece.method, lambda part: np.stack([*numbers(Draw(range(n_keys)[part])).values()], axis=-1))
        for name in piece.of_means.keys() & {*piece.uses_functions}:
            piece.of_means[name]({each: np.ones(1) for each in piece.measured})
    elif isinstance(piece, OwnHeads):
        normals = draw.standard_normal((n_heads, n_features, head_dim))
        _hold(piece, piece.name, lambda part: piece.call(normals.shape, normals)[part])
        if (np.linalg.matrix_rank(piece.call(normals.shape, normals)) < head_dim).any():
            _refuse(piece, piece.name, f"returns a head of a rank below head_dim = {head_dim}")
    elif isinstance(piece, OwnFunction):

        def at(points: NDArray) -> NDArray:
            return piece.call(points.shape[1:], points)

        _hold(piece, piece.name, lambda part: at(x[:, part]))
        if not np.array_equal(at(x[:, :1, :2]), at(x)[:1, :2]):
            fault = "gives another value at a point among other points; add up features one by one, as x[0] + x[1]"
            _refuse(piece, piece.name, fault)


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
