"""The user's own functions: read from their files, and held against their contract where they are trusted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.design.files import read_regular
from simstudy.design.settings import Sum
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.code import TAKEN, Code, Own, OwnFunction, OwnMeasure
from simstudy.design.settings.records import Impossibility
from simstudy.errors import UserError
from simstudy.text import printable

MAX_BYTES = 1 << 18
"""Largest Python file that is read: it travels with every task."""
_PROBES = 3, 5
"""Replicates and keys on which a function is tried."""


def texts_of(trust: Iterable[str | Path]) -> frozenset[str]:
    """Return the texts of the files that a user trusts: what is trusted is what was there to be read.

    Raises
    ------
    UserError
        If one of them cannot be read.
    """
    if isinstance(trust, (str, Path)):
        trust = [trust]
    return frozenset(_text(Path(path), f"--trust {path}: ") for path in trust)


def own_pieces(cell: Cell) -> Iterator[tuple[str, Own]]:
    """Yield the user's own functions of a cell, each with the setting that states it."""
    regression, measure = cell.data.regression, cell.estimator.measure_function
    for term in regression.terms if isinstance(regression, Sum) else (regression,):
        if isinstance(term, Own):
            yield "regression", term
    if measure is not None:
        yield "measure_function", measure


def read_code(cell: Cell, folder: Path, trusted: frozenset[str]) -> tuple[Cell, list[Impossibility]]:
    """Read the files of the functions of a cell, relative to the folder of its design, into the cell.

    Functions of trusted texts are tried; no other one is run.
    """
    problems: list[Impossibility] = []
    read: dict[Own, Own] = {}
    for setting, piece in own_pieces(cell):
        try:
            if piece.code is not None:
                raise UserError("code is read from the file at path; leave it out of the design")
            code = _read(folder / piece.path, piece)
            read[piece] = piece.model_copy(update={"code": Code(code.text, code.place, code.text in trusted)})
            if code.text in trusted:
                _try(read[piece], cell.data.n_features, cell.n_queries, cell.n_members)
        except UserError as error:
            problems.append((setting, printable(str(error))))
    return _replaced(cell, lambda piece: read.get(piece, piece)), problems


def with_word(cell: Cell, trusted: frozenset[str]) -> Cell:
    """Return a stored cell whose functions may run if their texts are trusted."""

    def spoken(piece: Own) -> Own:
        text = "" if piece.code is None else piece.code.text
        return piece.model_copy(update={"code": Code(text, piece.path, text in trusted)})

    return _replaced(cell, spoken)


def require_word(cells: Iterable[Cell]) -> None:
    """Refuse to compute cells with functions that the user did not say may run.

    Raises
    ------
    UserError
        With the file, and how to give the word.
    """
    for cell in cells:
        for setting, piece in own_pieces(cell):
            if piece.code is None or not piece.code.trusted:
                place = piece.path if piece.code is None else piece.code.place
                remedy = f"which runs on your word only: read that file, then add --trust {place}"
                raise UserError(printable(f"{setting} is code of {place}, {remedy}"))


def _replaced(cell: Cell, change: Callable[[Own], Own]) -> Cell:
    if not any(own_pieces(cell)):
        return cell
    regression: Any = cell.data.regression
    measure = cell.estimator.measure_function
    if isinstance(regression, Sum):
        terms = tuple(change(term) if isinstance(term, Own) else term for term in regression.terms)
        regression = regression.model_copy(update={"terms": terms})
    elif isinstance(regression, Own):
        regression = change(regression)
    changed = {
        "data": cell.data.model_copy(update={"regression": regression}),
        "estimator": cell.estimator.model_copy(update={"measure_function": measure and change(measure)}),
    }
    # Made anew: a copy would keep what the cell has already worked out of the former functions.
    return Cell(**{name: getattr(cell, name) for name in Cell.model_fields} | changed)


def _text(path: Path, before: str = "") -> str:
    try:
        return read_regular(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{before or path}: not UTF-8 text; save it as UTF-8") from None
    except UserError as error:
        raise UserError(f"{before or f'{path}: '}{error}") from None


def _read(path: Path, piece: Own) -> Code:
    """Return the code of a file that defines the function, as far as that shows without running it."""
    code = Code(_text(path), str(path))
    try:
        defined = code.functions
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not Python: {' '.join(str(error).split())}") from None
    if piece.name not in defined:
        raise UserError(f"{path}: defines no function {piece.name!r}; it has {', '.join(defined) or 'none'}")
    if isinstance(piece, OwnMeasure) and (unknown := set(defined[piece.name]) - set(TAKEN)):
        raise UserError(f"{path}: {piece.name} takes {', '.join(sorted(unknown))}; it may take {', '.join(TAKEN)}")
    return code


@functools.lru_cache(maxsize=64)
def _try(piece: Own, n_features: int, n_queries: int, n_heads: int) -> None:
    """Hold a function against its contract on a few made-up arrays; raises UserError if it breaks it."""
    n_replicates, n_keys = _PROBES
    draw = np.random.Generator(np.random.Philox(key=1)).standard_normal
    keys = draw((n_features, n_replicates, n_keys))
    if isinstance(piece, OwnFunction):
        _hold(piece, lambda part: piece.call(keys[:, part].shape[1:], keys[:, part]))
        inside = piece.call((1, 2), keys[:, :1, :2])
        if not np.array_equal(inside, piece.call(keys.shape[1:], keys)[:1, :2]):
            _refuse(piece, "gives another value at a point among other points; add up features one by one, as x[0]")
    elif isinstance(piece, OwnMeasure):
        _try_measure(piece, keys, n_queries, n_heads)


def _try_measure(piece: OwnMeasure, keys: NDArray, n_queries: int, n_heads: int) -> None:
    (n_features, n_replicates, n_keys), draw = keys.shape, np.random.Generator(np.random.Philox(key=2)).standard_normal
    estimates, values = draw((n_replicates, n_queries, n_heads)), draw((n_replicates, n_keys))
    fixed = {"target": draw(n_queries), "queries": draw((n_features, n_queries))}
    _hold(piece, lambda part: piece.of(estimates=estimates[part], values=values[part], keys=keys[:, part], **fixed))


def _hold(piece: Own, compute: Callable[[slice], NDArray]) -> None:
    whole = compute(slice(None))
    if not np.isfinite(whole).all():
        _refuse(piece, "returns values that are not finite")
    if not np.array_equal(whole, compute(slice(None))):
        _refuse(piece, "returns other values when it is called again; it must follow from its arguments alone")
    if not np.allclose(whole[1:], compute(slice(1, None)), rtol=1e-9, atol=0.0):
        _refuse(piece, "gives another value for a replicate among other replicates; no replicate may see another")


def _refuse(piece: Own, what: str) -> None:
    raise UserError(f"{piece.path}: {piece.name} {what}")
