"""The user's own Python files, each read once, and their functions held against their contract."""

import ast
import functools
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.files import read_text
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.code import BY_VALUE, Code, OwnCode, OwnFunction, OwnHeads
from simstudy.design.settings.functions import Draw, Functions
from simstudy.design.settings.records import Impossible
from simstudy.errors import UserError

MAX_CODE_BYTES = 1 << 18
"""Largest file of Python that is read: it travels with every task."""
_IDENTIFIED = {"numpy", "scipy", "numba"}
distributions = functools.cache(packages_distributions)


class OwnFiles:
    """Python files of a study, each read once: code of those that are trusted may run, and is tried where ``trial``.

    Functions of shipped studies are trusted, and not on trial: tests have tried them, and some load models.
    """

    def __init__(self, folder: Path, trust: Iterable[str | Path], shipped: bool) -> None:
        named = [trust] if isinstance(trust, str | Path) else trust
        named = [*named, *(sorted(folder.glob("*.py")) if shipped else ())]
        self._trusted = {_text(Path(path), f"--trust {path}") for path in named}
        self._text = functools.cache(_text)
        self.folder, self.trial = folder, not shipped

    def read(self, piece: OwnCode) -> None:
        """Give functions the code of their file, which defines them as far as that shows without running it."""
        path = self.folder / piece.path
        by_value = BY_VALUE.get(text := self._text(path, str(path)), {})  # code of this very process needs no trust
        code = Code(text, str(path), bool(by_value) or text in self._trusted, tuple(by_value.items()))
        object.__setattr__(piece, "code", code)
        for name in piece.uses_functions:
            if name not in code.functions:
                known = (*code.functions, *piece.builtin)
                raise UserError(f"{path}: defines no function {name!r}; known are {', '.join(known) or 'none'}")

    def number(self, function: Any, parameters: dict[str, Any]) -> float:
        """Return the number that a function of functions.py gives."""
        path = self.folder / "functions.py"
        code = Code(text := self._text(path, str(path)), str(path), text in self._trusted)
        if function not in list(code.functions):  # a list is no key
            raise UserError(f"{path}: defines no function {function!r}; known are {', '.join(code.functions)}")
        call = code.function(function)
        try:
            return float(0.0 + call(**parameters))  # no text
        except Exception as error:
            raise UserError(f"{path}: {function} raises {type(error).__name__}: {error}") from None


def try_functions(cell: Cell) -> None:
    """Hold the trusted functions of a cell against their contract; raises Impossible if they break it."""
    for setting, piece in cell.own:
        if piece.code is not None and piece.code.trusted:
            try:
                _try(piece, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim)
            except UserError as error:
                raise Impossible(setting, str(error)) from None


def _text(path: Path, place: str) -> str:
    """The text of a file, with a line on the packages it rests on; what rests on files beside it is refused."""
    try:
        nodes = list(ast.walk(ast.parse(text := read_text(path, MAX_CODE_BYTES))))
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
            piece.refuse(f"{piece.name} returns a head of a rank below head_dim = {head_dim}")
    elif isinstance(piece, OwnFunction):

        def at(points: NDArray) -> NDArray:
            return piece.call(points.shape[1:], points)

        _hold(piece, piece.name, lambda part: at(x[:, part]))
        if not np.array_equal(at(x[:, :1, :2]), at(x)[:1, :2]):
            fault = "gives another value at a point among other points; add up features one by one, as x[0] + x[1]"
            piece.refuse(f"{piece.name} {fault}")


def _hold(piece: OwnCode, name: str, compute: Callable[[slice], NDArray]) -> None:
    """Hold a function against its contract: finite numbers of replicates that follow from its arguments alone.

    In some replicates a simulation may fail.
    """
    whole, fails = compute(slice(None)), isinstance(piece, Functions)
    if fails and np.isnan(whole).any(axis=-1).all():
        piece.refuse(f"{name} gives no finite numbers in any of {len(whole)} replicates on which it was tried")
    if not fails and not np.isfinite(whole).all():
        piece.refuse(f"{name} returns values that are not finite")
    if not np.array_equal(whole, compute(slice(None)), equal_nan=True):
        piece.refuse(f"{name} returns other values when it is called again; it must follow from its arguments alone")
    slack = 1e-12 if fails else 0.0
    if not np.allclose(whole[1:], compute(slice(1, None)), rtol=1e-9, atol=slack, equal_nan=True):
        fault = "gives a replicate other numbers among other replicates; no replicate may see another"
        piece.refuse(f"{name} {fault}, and the first axis of arrays is that of replicates")
