"""Compiled code that later processes load instead of compiling again: an entry for each kernel and types of arguments.

Numba's own cache never finds kernels again that take functions, may leave the code of one type under the name of
another where two processes compile at once, and reads entries of anybody.  Here the key of an entry states all that
decides the code: that of the kernel and of all it reaches, what these freeze, their options, and types of arguments;
and the folder is named by the sources of kernels, versions, the processor and Numba's settings.  A kernel that reaches
what cannot be stated so is compiled in every process.  Loading code means trusting it: see `sealed`.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import pickle
import secrets
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba.core import types
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import NumbaPickler
from numba.core.sigutils import normalize_signature

from simstudy.kernels.sealed import SealedFolder, kept

PACKAGE = Path(__file__).parents[1]

# Modules that define kernels or what is inlined into them; a kernel that reaches another one of ours is not kept.
KERNEL_SOURCES = ("kernels", "data/addresses.py")
# Their versions are part of the digest.
_LIBRARIES = ("builtins", "math", "operator", "numpy", "numba", "llvmlite")


def _kernel_sources() -> dict[str, bytes]:
    found = {}
    for entry in KERNEL_SOURCES:
        path = PACKAGE / entry
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            parts = source.relative_to(PACKAGE.parent).with_suffix("").parts
            found[".".join(parts)] = source.read_bytes()
    return found


# Read when the modules themselves are: of an edit in between, the code of functions in keys would tell.
_SOURCES = _kernel_sources()


def digest() -> str:
    """Return the identity of what all compiled code depends on, as 32 hexadecimal digits."""
    # Numba's settings all count, but those of threads and CUDA: these kernels use neither.
    settings = sorted(
        f"{name}={value!r}" for name, value in vars(numba.config).items()
        if name.isupper() and "THREAD" not in name and "CUDA" not in name
    )  # fmt: skip
    machine = binding.get_host_cpu_name(), binding.get_process_triple(), sys.version, sys.implementation.cache_tag
    versions = numba.__version__, llvmlite.__version__, np.__version__
    stated = repr((settings, machine, versions, sorted(_SOURCES.items())))
    return hashlib.sha256(stated.encode()).hexdigest()[:32]


def folder() -> SealedFolder | None:
    """Return the folder of compiled code of this process; None if there is none to be."""
    return kept("compiled", digest)


class Unstated(Exception):
    """A kernel reaches something that its key could not state in full."""


class Statement:
    """All that decides the code of a kernel for given types of arguments: its key, and what it reaches."""

    def __init__(self, kernel: Dispatcher, arguments: tuple[types.Type, ...]) -> None:
        self.reached: list[Any] = [kernel]
        lines = [", ".join(map(self._type, arguments))]
        # Grows as functions are found.
        lines += map(self._function, self.reached)
        self.key = "\n".join(lines).encode()

    def _type(self, kind: types.Type) -> str:
        if isinstance(kind, types.Dispatcher):
            return self._value(kind.dispatcher)
        if isinstance(kind, types.NamedTuple):
            return f"{self._value(kind.instance_class)}{kind.fields}({', '.join(map(self._type, kind.types))})"
        if " at 0x" in kind.name:
            raise Unstated(kind.name)
        return f"{type(kind).__qualname__} {kind.name}"

    def _function(self, function: Any) -> str:
        plain = getattr(function, "py_func", function)
        options = sorted(getattr(function, "targetoptions", {}).items())
        code = plain.__code__
        cells = zip(code.co_freevars, plain.__closure__ or (), strict=True)
        frozen = {name: cell.cell_contents for name, cell in cells}
        frozen |= {name: plain.__globals__[name] for name in _names(code) if name in plain.__globals__}
        stated = [f"{name}={self._value(value)}" for name, value in sorted(frozen.items())]
        return f"{self._named(plain)} {self._value(tuple(options))} {self._value(code)} {stated}"

    def _value(self, value: Any) -> str:
        match value:
            case Dispatcher() | FunctionType():
                if not any(value is known for known in self.reached):
                    self.reached.append(value)
                return f"#{[value is known for known in self.reached].index(True)}"
            case None | bool() | int() | float() | str() | bytes() | np.generic() | np.dtype():
                return f"{type(value).__name__} {value!r}"
            case tuple():
                return f"({', '.join(map(self._value, value))})"
            case set() | frozenset():
                return f"{{{', '.join(sorted(map(self._value, value)))}}}"
            case CodeType():
                return self._value((value.co_code, value.co_consts, value.co_names, value.co_varnames))
            case ModuleType() if value.__name__ in _LIBRARIES:
                return value.__name__
        return self._named(value)

    def _named(self, value: Any) -> str:
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if not (name and module and (module in _SOURCES or module.partition(".")[0] in _LIBRARIES)):
            raise Unstated(repr(value))
        return f"{module}.{name}"


def _names(code: CodeType) -> set[str]:
    """Names of globals that a function may look up, also from functions within it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))


class _Pickler(NumbaPickler):
    """Pickler to which compiled functions are their number in the statement: each process has its own of them."""

    def __init__(self, stream: io.BytesIO, reached: list[Any]) -> None:
        super().__init__(stream, protocol=4)
        self._numbers = {id(function): number for number, function in enumerate(reached)}

    def persistent_id(self, value: Any) -> int | None:
        return self._numbers.get(id(value)) if isinstance(value, Dispatcher) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, reached: list[Any]) -> None:
        super().__init__(stream)
        self._reached = reached

    def persistent_load(self, number: int) -> Any:
        return self._reached[number]


class CompiledCode(NullCache):
    """The compiled code of one kernel, in the place of Numba's cache of it."""

    def __init__(self, kernel: Dispatcher) -> None:
        self._kernel = kernel

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """Return the code for types of arguments as an earlier process compiled it, or None."""
        place, stated = folder(), self._statement(sig)
        content = place.read(stated.key) if place and stated else None
        if stated is None or content is None:
            return None
        target_context.refresh()
        payload = _Unpickler(io.BytesIO(content), stated.reached).load()
        return CompileResult._rebuild(target_context, *payload)

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep the code that has just been compiled, unless it holds addresses of this process."""
        place, stated = folder(), self._statement(sig)
        compiled = cres._asdict()
        if place and stated and not compiled["lifted"] and not compiled["library"].has_dynamic_globals:
            stream = io.BytesIO()
            _Pickler(stream, stated.reached).dump(cres._reduce())
            place.write(stated.key, stream.getvalue())

    def _statement(self, sig: Any) -> Statement | None:
        try:
            return Statement(self._kernel, normalize_signature(sig)[0])
        except Unstated:
            return None


def keep_compiled(kernel: Any) -> Any:
    """Return a kernel of Numba whose compiled code is kept for later processes."""
    kernel._cache = CompiledCode(kernel)
    return kernel


def _number_apart() -> None:
    # Numba numbers the functions that it compiles from 1 on in each process, and names their symbols by it: the
    # code of two processes, loaded by a third, could share names, of which the linker takes the first.
    FunctionIdentity._unique_ids = itertools.count(secrets.randbits(60))


_number_apart()
os.register_at_fork(after_in_child=_number_apart)
