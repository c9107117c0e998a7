"""Simulation with Python callables, which are sent to workers by value and identified by their dependencies."""

import contextlib
import copyreg
import dis
import functools
import hashlib
import inspect
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, cast

import cloudpickle
import numpy as np
import xarray as xr

from simstudy.design.contents import MAX_CODE_BYTES, distributions
from simstudy.design.document import NAME
from simstudy.design.load import Study, load_design, read_design
from simstudy.design.settings.cell import OF_FUNCTIONS
from simstudy.design.settings.functions import BY_VALUE, STAND_INS
from simstudy.errors import UserError
from simstudy.execution.folder import Folder
from simstudy.execution.store import DEFAULT_OUTPUT
from simstudy.study import folder_of, run_loaded

GRID, FILES = "simulation", ("functions.py", "design.json")
MIN_REPLICATES = 1024
_WRAPPED = "__wrapped__", "py_func", "pyfunc", "otypes", "excluded", "signature"  # by functools, Numba and np.vectorize
_NO_SOURCE = "which has no source; give version=TEXT, and another text when it changes"


def simulate(
    name: str,
    process: Callable[..., Any],
    methods: Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
    measures: Sequence[str | Callable[..., Any]],
    *,
    version: str | None = None,
    factors: Mapping[str, Sequence[Any]] | None = None,
    drop: Callable[[dict[str, Any]], bool] | Iterable[Mapping[str, Any]] = (),
    independent: Sequence[str] = (),
    mcse: Mapping[str, float] | None = None,
    claims: Mapping[str, Mapping[str, Any]] | None = None,
    one_by_one: bool = False,
    batch_size: int | None = None,
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
        Callables of data and factors that return estimates, ends of intervals, or other numbers by name; callables
        without a name are given in a dict by name.
    measures
        Names of numbers that the methods return, of built-in measures (bias, relative_bias, variance, empirical_se,
        mean_squared_error, root_mean_squared_error, model_se, relative_error_of_model_se, coverage, interval_length,
        rejection_rate, failure_rate), and functions of data, results and factors, or of ``mean_NAME`` of measures.
    version
        Text that identifies the callables if their source is not available: change it when they change.
    factors
        Levels of each argument of the functions, by name.  Combinations that are the same for all functions are run
        once.
    drop
        Impossible combinations: a function of the dict of levels, which includes ``method``, or a list of such dicts.
    independent
        Factors whose levels have different random numbers; levels of other factors share them.
    mcse
        Target Monte Carlo standard errors, by measure; cells that reach them stop.
    claims
        Claims as in designs, about levels of factors and of ``method``; ``grid`` can be left out.
    one_by_one
        True if methods and measures take one replicate at a time.
    batch_size, seed, min_replicates, max_replicates, budget
        As in designs.  Without ``mcse`` and claims, cells stop at ``min_replicates``, by default four batches of 1024.
    output, **how
        As for `simstudy.run`.

    Returns
    -------
    xarray.DataTree
        As from `simstudy.run`: the grid is ``simulation``, and its dimension of methods ``estimator``.

    Raises
    ------
    DesignError, UserError
        As by `simstudy.run`, and if a function depends on something without source.
    """
    if not (isinstance(name, str) and re.fullmatch(NAME, name)):
        raise UserError(f"name = {name!r}: lower-case letters, digits and single hyphens only")
    factors, mcse, claims, budget = {} if factors is None else factors, mcse or {}, claims or {}, budget or {}
    _require(Mapping, "dict", {"factors": factors, "mcse": mcse, "claims": claims, "budget": budget})
    _require(Mapping, "dict", {f"claims.{claim}": entries for claim, entries in claims.items()})
    whole = {"max_replicates": max_replicates, "min_replicates": min_replicates or 1}
    _require(int | np.integer, "whole number", whole)
    _require(Iterable, "list", {"methods": methods, "measures": measures, "independent": independent, **factors})
    measures, factors = [*measures], {factor: [*levels] for factor, levels in factors.items()}
    if not methods:
        raise UserError("methods = []: give at least one function")
    if others := [each for each in measures if not (callable(each) or isinstance(each, str))]:
        raise UserError(f"measures = {others[0]!r}: give names and functions")
    if taken := {*factors} & {"method", "seed", "batch_size"}:
        raise UserError(f"factors: {min(taken)!r} is an argument of simulate; give the factor another name")
    named = methods if isinstance(methods, Mapping) else _by_name("methods", methods)
    if invalid := [each for each in named if not str(each).isidentifier()]:
        raise UserError(f"methods: {invalid[0]!r} cannot name a function; give letters, digits and underscores")
    own = _by_name("measures", [each for each in measures if callable(each)])
    drawn = _by_name("process", [process], "process")
    if repeated := {*named} & {*own} | {*drawn} & ({*named} | {*own}):
        raise UserError(f"{min(repeated)} is the name of two functions; give one of them another name")
    text = stand_ins(drawn | {**named} | own, version)
    study = Study(name, title=name, aim=f"Methods {', '.join(named)} on {next(iter(drawn))}.").functions(
        process=next(iter(drawn)),
        one_by_one=one_by_one,
        measures=[_name_of(each) if callable(each) else each for each in measures],
        independent=[*independent],
        # Stated here, they are parameters even if [functions] has an entry of the same name.
        parameters={name: levels[0] for name, levels in factors.items() if name in OF_FUNCTIONS and levels},
    )
    most = max_replicates if mcse or claims or not min_replicates else min(max(min_replicates, 1), max_replicates)
    batch_size = min(MIN_REPLICATES, -(-most // 64) * 16) if batch_size is None else batch_size
    study.simulation(batch_size=batch_size, seed=seed).precision(stop="both" if claims else "precision")
    least = min(MIN_REPLICATES, max_replicates) if min_replicates is None else min_replicates
    study.precision(absolute_mcse={**mcse}, min_replicates=least, max_replicates=max_replicates).budget(**budget)
    levels = {**factors, "method": [*named]}
    crossed = (dict(zip(levels, each, strict=True)) for each in itertools.product(*levels.values()))
    dropped = [each for each in crossed if drop(each)] if callable(drop) else [*drop]
    _require(Mapping, "dict", {f"drop[{place}]": each for place, each in enumerate(dropped)})
    study.grid(GRID, levels, drop=[*map(dict, dropped)])
    for claim, entries in claims.items():
        study.claim(claim, **{"kind": None, "grid": GRID, "statement": claim, **entries})
    folder = Folder(folder_of(output), (name,))
    place = folder.path / FILES[1]
    head = folder.read(FILES[0], MAX_CODE_BYTES) if FILES[0] in (names := folder.names()) else b""
    if "design.toml" in names or ({*FILES} & {*names} and not head.startswith(STAND_INS.encode())):
        raise UserError(f"{folder.path}: has a design or functions of your own; give another name, or another output")
    written = read_design(study)._replace(place=str(place), path=place, functions=text)

    def write() -> None:
        for file, content in zip(FILES, (text, written.text), strict=True):
            folder.write(file, content.encode())

    return run_loaded(load_design(written, confirm=how.pop("confirm", None)), output=output, prepare=write, **how)


def _require(kind: Any, noun: str, given: Mapping[str, Any]) -> None:
    for place, each in given.items():
        if isinstance(each, str) or not isinstance(each, kind):
            raise UserError(f"{place} = {' '.join(repr(each).split())}: give a {noun}")


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _by_name(place: str, given: Iterable[Callable[..., Any]], otherwise: str = "") -> dict[str, Callable[..., Any]]:
    """Return callables by name; UserError if two have the same name or one has none."""
    found: dict[str, Callable[..., Any]] = {}
    for each in given:
        name = own if callable(each) and (own := _name_of(each)).isidentifier() else otherwise
        if not name or name in found:
            remedy = "give methods as a dict by name" if place == "methods" else "give a function with a name"
            raise UserError(f"{place}: {each!r} has no name of its own; {remedy}")
        found[name] = each
    return found


def stand_ins(functions: Mapping[str, Callable[..., Any]], version: str | None = None) -> str:
    """Return the text of a Python file whose functions call others by value, by digests of their dependencies."""
    _require(Callable, "function", functions)
    texts, pickled = [f"{STAND_INS}, by digests of what they rest on: call it again to run them."], dict[str, bytes]()
    for name, function in functions.items():
        try:
            takes = [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):
            raise UserError(f"{name}: its arguments are unknown; wrap it in a function defined by def") from None
        own: dict[str, types.ModuleType | None] = {}
        dependencies = [*_identity(name, function, {}, own)] if version is None else [f"version {version}"]
        digest = hashlib.blake2b("\0".join([name, *dependencies]).encode(), digest_size=16).hexdigest()
        with contextlib.ExitStack() as stack:
            for module in filter(None, own.values()):
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
            try:
                pickled[digest] = cloudpickle.dumps(function)
            except Exception as error:
                raise UserError(f"{name}: cannot be sent to workers: {type(error).__name__}: {error}") from None
        first = sum(each.kind is each.POSITIONAL_ONLY for each in takes)
        # Arguments as they are defined; the value of a default is not needed.
        named = [each for each in takes if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        stated = [each.name + ("" if each.default is each.empty else "=...") for each in named]
        if (n := sum(each.kind is not each.KEYWORD_ONLY for each in named)) < len(stated):
            stated.insert(n, "*")
        texts.append(f"def {name}({', '.join(stated)}):\n    return _call({digest!r}, locals(), {first})")
    BY_VALUE[text := "\n\n\n".join(texts) + "\n"] = pickled
    return text


def _identity(name: str, value: Any, seen: dict[int, Any], own: dict[str, types.ModuleType | None]) -> Iterator[str]:
    """Yield texts that identify the dependencies of a callable: sources of modules (``own``) and bound values."""
    if isinstance(value, bool | int | float | complex | str | bytes | None | np.generic):
        yield repr(value)
        return
    if id(value) in seen:
        yield f"{seen[id(value)][0]}"
        return
    seen[id(value)] = len(seen), value  # kept alive, so that no other value gets its id
    text, parts = "", cast(Iterable[Any], ())
    match value:
        case types.MethodType() | types.BuiltinMethodType() if not isinstance(value.__self__, types.ModuleType):
            text, parts = value.__name__, (getattr(value, "__func__", None), value.__self__)
        case types.FunctionType():
            text = f"{value.__qualname__} of {_source_of(name, value, own)}"
            parts = () if _installed(value.__module__) else _used_by(name, value)
        case np.ndarray() if type(value) is np.ndarray and value.dtype.kind != "O":
            text = f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
        case tuple() | set() | frozenset():
            parts = *(value if isinstance(value, tuple) else sorted(value, key=repr)), getattr(value, "__dict__", None)
        case type() | types.ModuleType():
            text = f"{value.__name__} of {_source_of(name, value, own)}"
            if isinstance(value, type) and not _installed(value.__module__):
                held = (getattr(each, "__func__", getattr(each, "fget", each)) for each in vars(value).values())
                parts = itertools.chain(value.__bases__, *(_used_by(name, each) for each in held if callable(each)))
        case _ if hasattr(value, "untyped_storage"):  # a tensor of PyTorch, whose pickle has addresses
            bits = value.detach().cpu().reshape(-1).view(sys.modules["torch"].uint8).numpy()  # type: ignore[union-attr]
            text = f"{value.dtype} {[*value.shape]} {hashlib.sha256(bits).hexdigest()}"  # type: ignore[union-attr]
        case _ if hasattr(value, "__name__"):  # wrapped by a decorator, or a ufunc of numpy or scipy
            text = value.__name__ if isinstance(value, np.ufunc) else _source_of(name, value, own)
            parts = [getattr(value, each, None) for each in _WRAPPED]
        case _:
            try:
                parts = type(value), *_state_of(value)
            except (TypeError, AttributeError):
                raise UserError(f"{name} depends on {type(value).__name__}, {_NO_SOURCE}") from None
    yield f"{type(value).__name__} {text}("
    for part in parts:
        yield from _identity(name, part, seen, own)
    yield ")"


def _state_of(value: Any) -> Iterator[Any]:
    """Yield the parts of an object that pickle stores, also of slots and C; TypeError if they do not identify it."""
    if value is np.random.mtrand._rand:
        return  # NumPy's global state, to which distributions of SciPy refer
    if isinstance(value, np.random.Generator | np.random.RandomState):
        raise TypeError  # its state changes with each use
    reduced = copyreg.dispatch_table.get(type(value), lambda each: each.__reduce_ex__(4))(value)
    yield from (tuple(each) if isinstance(each, Iterator) else each for each in reduced)


def _used_by(name: str, function: Any) -> Iterator[Any]:
    """Yield the values that a function uses: its defaults, and values of its closure and of globals."""
    written = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(function, types.FunctionType) or (written and written.co_filename == "<string>"):
        return  # a method made by a dataclass
    yield from (function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a variable without a value
            yield cell.cell_contents
    codes = [function.__code__]
    for code in codes:  # grows by the code of nested functions
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        steps = list(dis.get_instructions(code))  # `co_names` also has names of attributes
        read = dict.fromkeys(step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
        yield from (function.__globals__[each] for each in read if each in function.__globals__)
        for step in steps:
            if step.opname == "IMPORT_NAME" and not _installed(step.argval):  # workers may not have it
                fault = f"{name} imports {step.argval} inside a function, and that is not installed"
                raise UserError(f"{fault}: import it above the function")


def _source_of(name: str, value: Any, own: dict[str, types.ModuleType | None]) -> str:
    """Return the source of the defining module, the version of an installed package, or the source in a script."""
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    top = module.partition(".")[0]
    try:
        if module == "__main__":
            return inspect.getsource(value)
        if top and _installed(module):
            full = f"{module}.{getattr(value, '__qualname__', '')}"
            return f"{full} {[version_of(each) for each in sorted({*distributions().get(top, ())})]}"
        imported = () if module in own else _imported([sys.modules[module]], own)
        own[module] = sys.modules[module]
        return "".join([inspect.getsource(sys.modules[module]), *imported])
    except (OSError, TypeError, KeyError):
        raise UserError(f"{name} depends on {type(value).__name__}, {_NO_SOURCE}") from None


def _imported(modules: list[types.ModuleType], own: dict[str, types.ModuleType | None]) -> Iterator[str]:
    """Yield the sources of imported modules that are neither installed nor compiled, for identification only."""
    for each in (value for module in modules for value in [*vars(module).values()]):
        name = each.__name__ if isinstance(each, types.ModuleType) else getattr(each, "__module__", None)
        if isinstance(name, str) and name in sys.modules and name not in {*own, "__main__"} and not _installed(name):
            with contextlib.suppress(OSError, TypeError):
                yield inspect.getsource(found := sys.modules[name])
                modules.append(found)
                own[name] = None


def _installed(module: str) -> bool:
    """Return true if a module belongs to Python or an installed package, whose version identifies it."""
    top, file = module.partition(".")[0], getattr(sys.modules.get(module), "__file__", None)
    placed = file is None or "-packages" in file or file.startswith((sys.prefix, sys.base_prefix))
    return top == __name__.partition(".")[0] or (placed and (top in sys.stdlib_module_names or top in distributions()))
