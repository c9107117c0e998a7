"""The user's own functions: read from their files, and held against their contract where they are trusted."""

import ast
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.files import read_text
from simstudy.design.settings.cell import TABLES, Cell
from simstudy.design.settings.code import Code, Own, OwnCode, OwnHeads, OwnKeys, OwnMeasure
from simstudy.design.settings.ensembles import GradientBoostingLearner, RandomForestLearner
from simstudy.design.settings.functions import Draw, Functions
from simstudy.design.settings.processes import Sum
from simstudy.design.settings.records import Impossibility
from simstudy.design.written import FILE, is_shipped
from simstudy.errors import UserError, require_extra

MAX_BYTES = 1 << 18
"""Largest Python file that is read: it travels with every task."""
_IDENTIFIED = {"numpy", "scipy", "numba"}
_distributions = functools.cache(packages_distributions)


def texts_of(trust: Iterable[str | Path]) -> frozenset[str]:
    """Return the texts of the files that a user trusts: what was there to be read."""
    if isinstance(trust, (str, Path)):
        trust = [trust]
    return frozenset(_text(Path(path), f"--trust {path}") for path in trust)


def own_pieces(cell: Cell) -> Iterator[tuple[str, OwnCode]]:
    """Yield the user's own functions of a cell, each with the setting that states it."""
    if cell.functions is not None:
        yield "functions", cell.functions
    for setting, value in (entry for table in TABLES for entry in getattr(cell, table)):
        for piece in value.terms if isinstance(value, Sum) else (value,):
            if isinstance(piece, OwnCode):
                yield setting, piece


def read_code(cell: Cell, folder: Path, trusted: frozenset[str]) -> tuple[Cell, list[Impossibility]]:
    """Read the files of the functions of a cell into it; functions of trusted texts are tried, no other one is run.

    Those of shipped studies are not: tests have tried them, and some load models.
    """
    problems: list[Impossibility] = []
    trial = not is_shipped(folder / FILE)
    read: dict[OwnCode, OwnCode] = {}
    for setting, piece in own_pieces(cell):
        try:
            if piece.code is not None:
                raise UserError("code is read from the file at path; leave it out of the design")
            code = _read(folder / piece.path, piece)
            read[piece] = piece.model_copy(update={"code": Code(code.text, code.place, code.text in trusted)})
            # Where parameters are wrong, that is told, and not what functions make of them.
            known = read[piece]
            if trial and code.text in trusted and not (isinstance(known, Functions) and any(known.impossibilities())):
                heads = cell.heads.n_heads, cell.heads.head_dim
                _try(read[piece], cell.data.n_features, cell.n_queries, cell.n_members, heads)
        except UserError as error:
            problems.append((setting, str(error)))
    return _replaced(cell, read), problems


def value_of(stated: dict[str, Any], folder: Path, trusted: frozenset[str]) -> float:
    """Return the number that ``{ function = "NAME", PARAMETER = … }`` of functions.py gives."""
    path, name = folder / "functions.py", stated["function"]
    code, defined = _code(path)
    if name not in [*defined]:
        raise UserError(f"{path}: defines no function {name!r}; known are {', '.join(defined)}")
    function = Code(code.text, code.place, code.text in trusted).function(name)
    try:
        return float(function(**{k: v for k, v in stated.items() if k != "function"}))
    except Exception as error:
        raise UserError(f"{path}: {name} raises {type(error).__name__}: {error}") from None


def require_word(cells: Iterable[Cell]) -> None:
    """Refuse to compute cells with functions that the user did not say may run, or that need what is not installed."""
    for cell in cells:
        if cell.estimator.reference.startswith("torch"):
            otherwise = ", or choose a profile that compares with multi_head_attention"
            require_extra(f'reference = "{cell.estimator.reference}"', "torch", "models", otherwise)
        if isinstance(cell.estimator.learner, RandomForestLearner | GradientBoostingLearner):
            require_extra("estimator.learner", "sklearn", "learners")
        for setting, piece in own_pieces(cell):
            if piece.code is None or not piece.code.trusted:
                place = piece.path if piece.code is None else piece.code.place
                remedy = f"which runs only if you trust it: read that file, then add --trust {place}"
                raise UserError(f"{setting} is code of {place}, {remedy}")


def _replaced(cell: Cell, pieces: dict[OwnCode, OwnCode]) -> Cell:
    def renewed(value: Any) -> Any:
        if isinstance(value, Sum):
            return value.model_copy(update={"terms": tuple(map(renewed, value.terms))})
        return pieces.get(value, value) if isinstance(value, OwnCode) else value

    tables = {name: getattr(cell, name) for name in TABLES if pieces}
    changed = {
        name: {setting: new for setting, value in table if (new := renewed(value)) is not value}
        for name, table in tables.items()
    }
    update: dict[str, Any] = {name: tables[name].model_copy(update=new) for name, new in changed.items()}
    if cell.functions in pieces:
        update["functions"] = pieces[cell.functions]
    return cell.model_copy(update=update)


def _code(path: Path) -> tuple[Code, dict[str, dict[str, bool]]]:
    """Return the code of a file, and the functions that it defines with what they take."""
    code = Code(_text(path, str(path)), str(path))
    try:
        return code, code.functions
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not Python: {' '.join(str(error).split())}") from None


def _read(path: Path, piece: OwnCode) -> Code:
    """Return the code of a file that defines the functions, as far as that shows without running it."""
    code, defined = _code(path)
    for name, takes in piece.uses_functions.items():
        if name not in defined:
            known = (*defined, *piece.needless)
            raise UserError(f"{path}: defines no function {name!r}; known are {', '.join(known) or 'none'}")
        if takes and (unknown := set(defined[name]) - set(takes)):
            raise UserError(f"{path}: {name} takes {', '.join(sorted(unknown))}; it may take {', '.join(takes)}")
    return code


@functools.lru_cache(maxsize=64)
def _try(piece: OwnCode, n_features: int, n_queries: int, n_members: int, heads: tuple[int, int]) -> None:
    """Hold a function against its contract on a few made-up arrays; raises UserError if it breaks it."""
    n_replicates, n_keys = 3, 5
    if isinstance(piece, Functions):
        numbers = piece.numbers
        _hold(piece, piece.method, lambda part: np.stack([*numbers(Draw(range(n_keys)[part])).values()], axis=-1))
        return
    assert isinstance(piece, Own)  # there is nothing else
    draw = np.random.Generator(np.random.Philox(key=1))
    if isinstance(piece, OwnHeads):
        normals = draw.standard_normal((heads[0], n_features, heads[1]))
        _hold(piece, piece.name, lambda part: piece.of(normals.shape, normals=normals)[part])
        if (np.linalg.matrix_rank(piece.of(normals.shape, normals=normals)) < heads[1]).any():
            _refuse(piece, piece.name, f"returns a head of a rank below head_dim = {heads[1]}")
        return
    x = draw.standard_normal((n_features, n_replicates, n_keys))
    if not piece.takes:
        _try_points(piece, x)
        return
    fixed = {"target": draw.standard_normal(n_queries), "queries": draw.standard_normal((n_features, n_queries))}
    redrawn = {
        "estimates": draw.standard_normal((n_replicates, n_queries, n_members)),
        "values": draw.standard_normal((n_replicates, n_keys)),
        "uniforms": draw.random((n_replicates, n_members, n_keys)),
    }
    one = () if isinstance(piece, OwnMeasure) else (n_queries, n_members)

    def compute(part: slice) -> NDArray:
        shape = (len(redrawn["values"][part]), *one)
        return piece.of(shape, keys=x[:, part], **fixed, **{name: array[part] for name, array in redrawn.items()})

    _hold(piece, piece.name, compute)


def _try_points(piece: Own, x: NDArray) -> None:
    """Hold a function of points against its contract: the same bits at a point, wherever it stands."""
    features = x.shape[:1] if isinstance(piece, OwnKeys) else ()

    def compute(points: NDArray) -> NDArray:
        return np.moveaxis(piece.call((*features, *points.shape[1:]), points), [-2, -1], [0, 1])

    _hold(piece, piece.name, lambda part: compute(x[:, part]))
    if not np.array_equal(compute(x[:, :1, :2]), compute(x)[:1, :2]):
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


def _refuse(piece: OwnCode, name: str, what: str) -> None:
    raise UserError(f"{piece.path}: {name} {what}")


# ---------------------------------------------------------------- what identifies a text


def _text(path: Path, place: str) -> str:
    """The text of a file, with a line on the packages it rests on; what rests on files beside it is refused."""
    try:
        text = read_text(path, MAX_BYTES)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    rests = []
    for name in sorted(_imported(text) - _IDENTIFIED - {path.stem} - sys.stdlib_module_names):
        if (path.parent / f"{name}.py").exists() or (path.parent / name).is_dir():
            remedy = "which would not identify what is computed; write it into this file, or install it as a package"
            raise UserError(f"{place}: imports {name} from beside it, {remedy}")
        rests += [f"{package} {version(package)}" for package in sorted({*_distributions().get(name, ())})]
    return f"{text}\n# rests on {', '.join(rests)}\n" if rests else text


def _imported(text: str) -> set[str]:
    """Names of the packages that a file imports anywhere; of what is not Python, none."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in names}
