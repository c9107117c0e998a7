"""Compiled code that later processes load instead of compiling again: an entry for each kernel and types of arguments.

Numba's own cache may leave the code of one type under the name of another where two processes compile at once, and
reads entries of anybody.  Here the folder is named by the sources of all kernels, versions, the processor and Numba's
settings.  The key of an entry states what these leave open: the kernel, what it closes over, and the types of its
arguments.  A kernel of which this cannot be stated is compiled in every process.  Globals that kernels read must be
constants.  Loading code means trusting it: see `sealed`.
"""

import hashlib
import itertools
import os
import pickle
import secrets
import sys
from pathlib import Path
from types import FunctionType
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
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from simstudy.kernels.sealed import SealedFolder
from simstudy.kernels.settings import processor

PACKAGE = Path(__file__).parents[1]

# Modules that define kernels or what is inlined into them; a kernel of another one of ours is not kept.
_PATHS = sorted(PACKAGE.glob("kernels/*.py")), [PACKAGE / "data" / "addresses.py"]
# Read when the modules themselves are.
_SOURCES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_bytes()
    for path in itertools.chain(*_PATHS)
}


def digest() -> str:
    """Return the identity of what all compiled code depends on, as 32 hexadecimal digits."""
    machine = processor(), binding.get_process_triple(), sys.version, sys.implementation.cache_tag
    versions = numba.__version__, llvmlite.__version__, np.__version__
    return hashlib.sha256(repr((machine, versions, sorted(_SOURCES.items()))).encode()).hexdigest()[:32]


def folder() -> SealedFolder | None:
    """Return the folder of compiled code of this process; None if there is none to be.

    Environment variable SIMSTUDY_CACHE: ``off``, or the folder to use instead of ``simstudy`` in the user's cache.
    """
    chosen = os.environ.get("SIMSTUDY_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "simstudy"
    )
    # Relative also where there is no home: a folder that depends on where a command is run is nobody's cache.
    usable = chosen != "off" and os.path.isabs(chosen) and hasattr(os, "geteuid")
    return SealedFolder(Path(chosen) / "compiled" / digest()) if usable else None


class Unstated(Exception):
    """A kernel closes over, or takes, something that its key could not state in full."""


def key_of(kernel: Any, arguments: tuple[types.Type, ...]) -> bytes:
    """Identity of a kernel's code for types of arguments, among all code of the same digest."""
    key = "\n".join([_stated(kernel), *(f"{type(kind).__qualname__} {kind.name}" for kind in arguments)])
    if " at 0x" in key:
        raise Unstated(key)
    return key.encode()


def _stated(value: Any) -> str:
    match value:
        case Dispatcher():
            return _stated(value.py_func)
        case FunctionType() if value.__module__ in _SOURCES:
            closed_over = tuple(cell.cell_contents for cell in value.__closure__ or ())
            line = value.__code__.co_firstlineno  # of functions with one name
            return f"{value.__module__}.{value.__qualname__} {line} {_stated(closed_over)}"
        case bool() | int() | float() | str() | np.generic():
            return f"{type(value).__name__} {value!r}"
        case tuple():
            return f"({', '.join(map(_stated, value))})"
        case type() if value.__module__ == "numpy":
            return value.__name__
    raise Unstated(repr(value))


class CompiledCode(NullCache):
    """The compiled code of one kernel, in the place of Numba's cache of it."""

    def __init__(self, kernel: Dispatcher) -> None:
        self._kernel = kernel

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """Return the code for types of arguments as an earlier process compiled it, or None."""
        place, key = self._entry(sig)
        content = place.read(key) if place else None
        if content is None:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep the code that has just been compiled, unless it holds addresses of this process."""
        place, key = self._entry(sig)
        compiled = cres._asdict()
        if place and not compiled["lifted"] and not compiled["library"].has_dynamic_globals:
            place.write(key, dumps(cres._reduce()))

    def _entry(self, sig: Any) -> tuple[SealedFolder | None, bytes]:
        try:
            return folder(), key_of(self._kernel, normalize_signature(sig)[0])
        except Unstated:
            return None, b""


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
