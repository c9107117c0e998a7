"""Any process, methods and measures as functions of Python: their source becomes the file that a design names."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from simstudy.design.builder import Study
from simstudy.design.document import NAME
from simstudy.errors import UserError
from simstudy.execution.folder import Folder
from simstudy.execution.store import DEFAULT_OUTPUT, Store
from simstudy.interactive import run

GRID = "simulation"
MIN_REPLICATES = 1024
_CONSTANTS = (bool, int, float, str, type(None))


def simulate(
    name: str, process: Callable[..., Any], methods: Sequence[Callable[..., Any]],
    measures: Sequence[str | Callable[..., Any]], *, factors: Mapping[str, Sequence[Any]] | None = None,
    mcse: Mapping[str, float] | None = None, claims: Mapping[str, Mapping[str, Any]] | None = None,
    one_by_one: bool = False, time_limit: float | None = None, batch_size: int = 1024, seed: int = 0,
    min_replicates: int | None = None, max_replicates: int = 100_000, budget: Mapping[str, float] | None = None,
    output: str | Path = DEFAULT_OUTPUT, **how: Any,
) -> xr.Dataset:  # fmt: skip
    """Simulate methods on data of a process, under all combinations of factors, and judge claims.

    Parameters
    ----------
    name
        Name of the study and of its folder, in lower-case letters, digits and single hyphens.
    process
        Function of ``draw`` (many replicates) or ``rng`` (one) and of factors, which returns data by name.
    methods
        Functions of data and factors that return estimates, ends of intervals, or anything by name.
    measures
        Names of measures, and at most one function of data, results and factors.
    factors
        Levels by the name that the functions take.
    mcse
        Monte Carlo standard errors wanted, by measure; then replicates stop.
    claims
        As in designs, with factors ``instance.NAME`` and ``instance.method``; ``grid`` can be left out.
    one_by_one
        Whether methods take one replicate.
    time_limit
        Seconds after which one replicate has failed; with ``one_by_one``.
    batch_size, seed, min_replicates, max_replicates, budget
        As in designs.  Without ``mcse`` and claims, cells stop at ``min_replicates``.
    output, **how
        As for `simstudy.run`.

    Returns
    -------
    xarray.Dataset
        As of `simstudy.run`.

    Raises
    ------
    DesignError, UserError
        As by `simstudy.run`, and if a function rests on something that has no source.
    """
    if not re.fullmatch(NAME, name):
        raise UserError(f"name = {name!r}: lower-case letters, digits and single hyphens only")
    own = [each for each in measures if callable(each)]
    text = source_text([process, *methods, *own])
    instance = {
        "kind": "simulation", "path": "functions.py", "process": process.__name__, "one_by_one": one_by_one,
        "method": methods[0].__name__, "measures": [each.__name__ if callable(each) else each for each in measures],
    } | ({} if time_limit is None else {"time_limit": time_limit})  # fmt: skip
    study = Study(name, title=name, aim=f"Methods {', '.join(m.__name__ for m in methods)} on {process.__name__}.")
    study.simulation(batch_size=batch_size, seed=seed).system(instance=instance).budget(**(budget or {}))
    study.precision(
        absolute_mcse=dict(mcse or {}), min_replicates=min_replicates or min(MIN_REPLICATES, max_replicates),
        max_replicates=max_replicates, stop="both" if claims else "precision",
    )  # fmt: skip
    levels = {f"instance.{factor}": list(values) for factor, values in (factors or {}).items()}
    study.grid(GRID, {**levels, "instance.method": [method.__name__ for method in methods]})
    for claim, entries in (claims or {}).items():
        study.setdefault("claims", {})[claim] = {"grid": GRID, "statement": claim, **entries}
    folder, store = Path(output) / name, Store(Folder(Path(output), (name,)))
    store.write_text("functions.py", text)
    store.write_text("design.toml", study.toml())
    return run(folder / "design.toml", output=output, trust=[folder / "functions.py"], **how)


def source_text(functions: Sequence[Callable[..., Any]]) -> str:
    """Return a Python file that defines functions and everything of their modules that they use."""
    parts: dict[str, str] = {}
    for function in functions:
        if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>" or function.__closure__:
            raise UserError(f"{function!r}: give a function that is defined by def and uses no local name around it")
        _add(function.__name__, function, parts)
    return "\n\n".join(parts.values()) + "\n"


def _add(name: str, value: Any, parts: dict[str, str]) -> None:
    if name in parts:
        return
    if isinstance(value, types.ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
    elif isinstance(value, _CONSTANTS):
        parts[name] = f"{name} = {value!r}"
    elif isinstance(value, types.FunctionType) and _is_own(value):
        for used in _names(value.__code__):
            if used in value.__globals__ and value.__globals__[used] is not value:
                _add(used, value.__globals__[used], parts)
        parts[name] = _source(value)
    elif getattr(value, "__module__", None) and getattr(value, "__qualname__", "") == getattr(value, "__name__", None):
        parts[name] = f"from {value.__module__} import {value.__name__} as {name}"
    else:
        raise UserError(f"{name}, which a function uses, is {type(value).__name__}: define it inside the function")


def _is_own(function: types.FunctionType) -> bool:
    """Whether a function is of a script, a notebook or a file outside installed packages."""
    return "site-packages" not in function.__code__.co_filename and "lib/python" not in function.__code__.co_filename


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _source(function: types.FunctionType) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function)).rstrip()
    except OSError:
        raise UserError(f"{function.__name__}: has no source to read; define it in a file or a notebook") from None
