"""Any process, methods and measures as callables of Python.

The source of plain functions becomes the file that a design names.  Of others, such as partials, closures and methods,
the file states the digest of what they rest on, and they travel by value.
"""

import builtins
import dis
import functools
import hashlib
import inspect
import math
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import xarray as xr

from simstudy.design.builder import Study
from simstudy.design.document import NAME
from simstudy.design.settings.cell import OF_FUNCTIONS
from simstudy.design.settings.code import BY_VALUE
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
    methods: Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
    measures: Sequence[str | Callable[..., Any]],
    *,
    version: str | None = None,
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
        Callable of ``draw`` (many replicates) or ``rng`` (one) and of factors, which returns data by name.
    methods
        Callables of data and factors that return estimates, ends of intervals, or anything by name; those without a
        name of their own in a dict by name.
    measures
        Names of numbers that the methods return, of built-in measures (bias, mean_squared_error, variance, coverage,
        interval_length, rejection_rate, failure_rate), and functions of data, results and factors.
    version
        Identifies what callables rest on, where that has no source: change it when they change.
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
    named = methods if isinstance(methods, Mapping) else _by_name("methods", methods)
    own = _by_name("measures", [each for each in measures if callable(each)])
    drawn = _by_name("process", [process], "process")
    if twice := {*named} & {*own} | {*drawn} & ({*named} | {*own}):
        raise UserError(f"{min(twice)} is the name of two functions; give one of them another name")
    text = source_text(drawn | {**named} | own, version)
    functions: dict[str, Any] = {
        "process": next(iter(drawn)),
        "one_by_one": one_by_one,
        "measures": [_name_of(each) if callable(each) else each for each in measures],
    } | ({} if time_limit is None else {"time_limit": time_limit})
    study = Study(name, title=name, aim=f"Methods {', '.join(named)} on {next(iter(drawn))}.")
    study.simulation(batch_size=batch_size, seed=seed).functions(**functions).budget(**budget)
    study.precision(
        absolute_mcse={**mcse},
        min_replicates=min_replicates or min(MIN_REPLICATES, max_replicates),
        max_replicates=max_replicates,
        stop="both" if claims else "precision",
    )
    levels = {**factors, "method": [*named]}
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


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _by_name(place: str, given: Iterable[Callable[..., Any]], otherwise: str = "") -> dict[str, Callable[..., Any]]:
    """Callables by their own names, refused where two have one name or one has none."""
    found: dict[str, Callable[..., Any]] = {}
    for each in given:
        name = _name_of(each) if callable(each) else ""
        name = name if name.isidentifier() else otherwise
        if not name or name in found:
            remedy = "give methods as a dict by name" if place == "methods" else "give a function with a name"
            raise UserError(f"{place}: {each!r} has no name of its own; {remedy}")
        found[name] = each
    return found


def source_text(
    functions: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]], version: str | None = None
) -> str:
    """Return a Python file that defines functions: by the source of all that they use, or by what they rest on."""
    known: dict[str, Any] = {}
    texts = [_FUTURE]
    named = functions if isinstance(functions, Mapping) else {_name_of(each): each for each in functions}
    for name, function in named.items():
        plain = isinstance(function, types.FunctionType) and not function.__closure__
        if plain and function.__name__ == name:
            _add(name, function, "a design", known, texts)
        else:
            texts.append(_stand_in(name, function, version))
    return "\n\n".join(texts) + "\n"


def _stand_in(name: str, function: Callable[..., Any], version: str | None) -> str:
    """Return the text of a function that calls one by value, whose digest it states."""
    if not callable(function):
        raise UserError(f"{name} = {function!r}: give a function")
    try:
        takes = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        raise UserError(f"{name}: what it takes is unknown; wrap it in a function that is defined by def") from None
    rests_on = [f"version {version}"] if version is not None else [*_rests_on(name, function, {})]
    digest = hashlib.blake2b("\0".join([name, *rests_on]).encode(), digest_size=16).hexdigest()
    modules = {sys.modules.get(getattr(each, "__module__", None) or "") for each in (function, _unbound(function))}
    own = [each for each in modules if each and each.__name__ != "__main__" and not _installed(each.__name__)]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        BY_VALUE[digest] = cloudpickle.dumps(function)
    except Exception as error:
        raise UserError(f"{name}: cannot be sent to workers: {type(error).__name__}: {error}") from None
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
    kinds = inspect.Parameter
    takes = [each for each in takes if each.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)]
    first = sum(each.kind is kinds.POSITIONAL_ONLY for each in takes)
    stated = [each.name + ("" if each.default is kinds.empty else "=...") for each in takes]
    n_positional = sum(each.kind is not kinds.KEYWORD_ONLY for each in takes)
    if n_positional < len(stated):
        stated.insert(n_positional, "*")
    return f"def {name}({', '.join(stated)}):\n    return _call({digest!r}, locals(), {first})"


def _unbound(function: Any) -> Any:
    """What a partial or method is of; of an object its class."""
    if isinstance(function, functools.partial):
        return _unbound(function.func)
    return function if isinstance(function, types.FunctionType | types.MethodType | type) else type(function)


def _rests_on(name: str, value: Any, seen: dict[int, Any]) -> Iterator[str]:
    """Yield texts that change with whatever a callable rests on: sources of modules, and values that are bound."""
    if isinstance(value, (*_CONSTANTS, complex, bytes, np.generic)):
        yield repr(value)
    elif id(value) not in seen:
        seen[id(value)] = value  # kept, so that no other value has its id
        text, parts = _taken_apart(name, value)
        yield f"{type(value).__name__} {text}("
        for part in parts:
            yield from _rests_on(name, part, seen)
        yield ")"


def _taken_apart(name: str, value: Any) -> tuple[str, Iterable[Any]]:
    match value:
        case functools.partial():
            return "", (value.func, *value.args, value.keywords)
        case types.MethodType():
            return "", (value.__func__, value.__self__)
        case types.FunctionType():
            used = inspect.getclosurevars(value)
            bound = {**used.nonlocals, **used.globals}, value.__defaults__, value.__kwdefaults__
            return f"{value.__qualname__} of {_source_of(name, value)}", bound if not _installed(
                value.__module__
            ) else ()
        case np.ndarray() if value.dtype.kind != "O":
            return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}", ()
        case Mapping():
            return "", (list(value.keys()), list(value.values()))
        case list() | tuple() | set() | frozenset():
            return "", value if isinstance(value, list | tuple) else sorted(value, key=repr)
        case type() | types.ModuleType():
            return f"{value.__name__} of {_source_of(name, value)}", ()
    if hasattr(value, "__dict__"):
        return "", (type(value), vars(value))
    if not hasattr(value, "__name__"):
        raise _without_source(name, value)
    return _source_of(name, value), ()


def _without_source(name: str, value: Any) -> UserError:
    remedy = "give version=TEXT, and another text when it changes"
    return UserError(f"{name} rests on {type(value).__name__}, which has no source; {remedy}")


def _source_of(name: str, value: Any) -> str:
    """The source of the module that defines something, its version where that is installed; of a script its own."""
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    top = module.partition(".")[0]
    try:
        if module == "__main__":
            return inspect.getsource(value)
        if top and _installed(module):
            own = f"{module}.{getattr(value, '__qualname__', '')}"
            return f"{own} {[version_of(each) for each in sorted({*packages_distributions().get(top, ())})]}"
        return inspect.getsource(sys.modules[module])
    except (OSError, TypeError, KeyError):
        raise _without_source(name, value) from None


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
