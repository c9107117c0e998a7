"""Any process, methods and measures as functions of Python: their source becomes the file that a design names."""

import builtins
import dis
import inspect
import math
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from simstudy.design.builder import Study
from simstudy.design.document import NAME
from simstudy.design.settings.cell import OF_FUNCTIONS
from simstudy.design.written import read_design
from simstudy.errors import UserError
from simstudy.execution.folder import Folder
from simstudy.execution.store import DEFAULT_OUTPUT, Store
from simstudy.interactive import run

GRID = "simulation"
MIN_REPLICATES = 1024
_CONSTANTS = (bool, int, float, str, type(None), np.float64)
_FUTURE = "from __future__ import annotations"


def simulate(
    name: str,
    process: Callable[..., Any],
    methods: Sequence[Callable[..., Any]],
    measures: Sequence[str | Callable[..., Any]],
    *,
    factors: Mapping[str, Sequence[Any]] | None = None,
    mcse: Mapping[str, float] | None = None,
    claims: Mapping[str, Mapping[str, Any]] | None = None,
    one_by_one: bool = False,
    time_limit: float | None = None,
    batch_size: int = 1024,
    seed: int = 0,
    min_replicates: int | None = None,
    max_replicates: int = 100_000,
    budget: Mapping[str, float] | None = None,
    output: str | Path = DEFAULT_OUTPUT,
    **how: Any,
) -> xr.DataTree:
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
        Names of numbers that the methods return, of built-in measures (bias, mean_squared_error, variance, coverage,
        interval_length, rejection_rate), and functions of data, results and factors.
    factors
        Levels by the name that the functions take.
    mcse
        Monte Carlo standard errors wanted, by measure; then replicates stop.
    claims
        As in designs, of factors and ``method``; ``grid`` can be left out.
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
    xarray.DataTree
        As of `simstudy.run`: the grid is ``simulation``, and its dimension of methods ``estimator``.

    Raises
    ------
    DesignError, UserError
        As by `simstudy.run`, and if a function rests on something that has no source.
    """
    if not re.fullmatch(NAME, name):
        raise UserError(f"name = {name!r}: lower-case letters, digits and single hyphens only")
    factors, mcse, claims, budget = factors or {}, mcse or {}, claims or {}, budget or {}
    _require(Mapping, "dict", {"factors": factors, "mcse": mcse, "claims": claims, "budget": budget})
    _require(Mapping, "dict", {f"claims.{claim}": entries for claim, entries in claims.items()})
    _require(Iterable, "list", {"methods": methods, "measures": measures, **factors})
    if not methods:
        raise UserError("methods = []: give at least one function")
    for each in measures:
        if not (callable(each) or isinstance(each, str)):
            raise UserError(f"measures = {each!r}: give names and functions")
    if taken := {*factors} & {*OF_FUNCTIONS, "seed", "batch_size"}:
        raise UserError(f"factors: {min(taken)!r} is an argument of simulate; give the factor another name")
    own = [each for each in measures if callable(each)]
    text = source_text([process, *methods, *own])
    functions: dict[str, Any] = {
        "process": process.__name__,
        "one_by_one": one_by_one,
        "measures": [each.__name__ if callable(each) else each for each in measures],
    } | ({} if time_limit is None else {"time_limit": time_limit})
    study = Study(name, title=name, aim=f"Methods {', '.join(m.__name__ for m in methods)} on {process.__name__}.")
    study.simulation(batch_size=batch_size, seed=seed).functions(**functions).budget(**budget)
    study.precision(
        absolute_mcse={**mcse},
        min_replicates=min_replicates or min(MIN_REPLICATES, max_replicates),
        max_replicates=max_replicates,
        stop="both" if claims else "precision",
    )
    levels = {**factors, "method": [method.__name__ for method in methods]}
    study.grid(GRID, {factor: list(values) for factor, values in levels.items()})
    for claim, entries in claims.items():
        study.claim(claim, **{"grid": GRID, "statement": claim, **entries})
    return _run_in_own_folder(study, text, output, **how)


def _run_in_own_folder(study: Study, functions: str, output: str | Path, **how: Any) -> xr.DataTree:
    """Write a study with its functions into a folder of its name, and run it."""
    name = study["study"]["name"]
    folder, store = Path(output) / name, Store(Folder(Path(output), (name,)))
    design = read_design(study).text  # first: a design that is refused leaves no functions behind
    store.write_text("functions.py", functions)
    store.write_text("design.json", design)
    return run(folder / "design.json", output=output, trust=[folder / "functions.py"], **how)


def _require(kind: type, wanted: str, given: Mapping[str, Any]) -> None:
    for place, each in given.items():
        if isinstance(each, str) or not isinstance(each, kind):
            raise UserError(f"{place} = {each!r}: give a {wanted}")


def source_text(functions: Sequence[Callable[..., Any]]) -> str:
    """Return a Python file that defines functions and everything of their modules that they use."""
    known: dict[str, Any] = {}
    texts = [_FUTURE]
    for function in functions:
        if not isinstance(function, types.FunctionType):
            raise UserError(f"{function!r}: give a function that is defined by def")
        _add(function.__name__, function, "a design", known, texts)
    return "\n\n".join(texts) + "\n"


def _add(name: str, value: Any, user: str, known: dict[str, Any], texts: list[str]) -> None:
    """Add the text that defines a name, after the texts of what it needs."""
    if name in known:
        if known[name] is value or (type(value) in _CONSTANTS and repr(known[name]) == repr(value)):
            return
        raise UserError(f"{name}, which {user} uses, is the name of another object too: rename one of them")
    known[name] = value
    is_module = isinstance(value, types.ModuleType)
    module = value.__name__ if is_module else getattr(value, "__module__", None) or ""
    if vars(builtins).get(name) is value:
        return
    if type(value) in _CONSTANTS:
        shown = repr(float(value)) if isinstance(value, float) else repr(value)
        endless = isinstance(value, float) and not math.isfinite(value)
        texts.append(f"{name} = " + (f'float("{shown}")' if endless else shown))
    elif isinstance(value, types.FunctionType) and not _installed(module):
        _add_function(name, value, user, known, texts)
    elif not is_module and (not module or getattr(value, "__qualname__", "") != getattr(value, "__name__", None)):
        raise UserError(f"{name}, which {user} uses, is {type(value).__name__}: define it inside {user}")
    elif not _installed(module):
        remedy = f"put what {user} uses of it into the same file" if is_module else f"define it inside {user}"
        raise UserError(f"{name}, which {user} uses, is of {module}, which is not installed: {remedy}, or install it")
    else:
        texts.append(f"import {module} as {name}" if is_module else f"from {module} import {value.__name__} as {name}")


def _add_function(name: str, function: types.FunctionType, user: str, known: dict[str, Any], texts: list[str]) -> None:
    own = function.__name__
    if own == "<lambda>" or function.__closure__:
        raise UserError(
            f"{name}, which {user} uses, is {function!r}: give a function that is defined by def and uses "
            "no local name around it"
        )
    if own != name:
        _add(own, function, user, known, texts)
        texts.append(f"{name} = {own}")
        return
    try:
        source = textwrap.dedent(inspect.getsource(function)).rstrip()
        code = compile(f"{_FUTURE}\n{source}", own, "exec")
    except (OSError, SyntaxError):
        raise UserError(f"{own}: has no source to read; define it in a file or a notebook") from None
    for module in _named(code, "IMPORT_NAME"):
        if not _installed(module):
            raise UserError(
                f"{own} imports {module}, which is not installed: put what it uses of it into the same "
                "file, or install it"
            )
    for used in _named(code, "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
        if used in function.__globals__ or hasattr(builtins, used):
            _add(used, function.__globals__.get(used, getattr(builtins, used, None)), own, known, texts)
    texts.append(source)


def _installed(module: str) -> bool:
    """Whether a module is Python's or an installed package's, for which a version stands in the identity of results."""
    top, file = module.partition(".")[0], getattr(sys.modules.get(module), "__file__", None)
    if top == __name__.partition(".")[0]:
        return True
    if top not in sys.stdlib_module_names and top not in packages_distributions():
        return False
    # A file of the user's own may have the name of an installed one.
    return file is None or "-packages" in file or file.startswith((sys.prefix, sys.base_prefix))


def _named(code: types.CodeType, *operations: str) -> Iterator[str]:
    yield from (step.argval for step in dis.get_instructions(code) if step.opname in operations)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _named(constant, *operations)
