"""Cache of compiled code for later processes, with an entry for each kernel and types of arguments.

Numba's cache may store code under the name of other types if two processes compile at once, and it reads entries of
other users.  Here a digest of the sources of all kernels, versions, the processor and Numba's settings names the
folder.  The key of an entry states the rest: the kernel, the values of its closure, and the types of its arguments.
A kernel without such a key is compiled in every process.  Globals that kernels read must be constants.  Loaded code is
executed, so that entries must be trusted; see `sealed`.
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

# Modules with kernels and functions that are inlined into them; kernels of other modules are not cached.
_PATHS = sorted(PACKAGE.glob("kernels/*.py")), [PACKAGE / "data" / "addresses.py"]
# Read when the modules are imported.
_SOURCES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_bytes()
    for path in itertools.chain(*_PATHS)
}


def digest() -> str:
    """Return a digest of everything that compiled code depends on, as 32 hexadecimal digits."""
    machine = processor(), binding.get_process_triple(), sys.version, sys.implementation.cache_tag
    versions = numba.__version__, llvmlite.__version__, np.__version__
    return hashlib.sha256(repr((machine, versions, sorted(_SOURCES.items()))).encode()).hexdigest()[:32]


def folder() -> SealedFolder | None:
    """Return the folder of compiled code for this process; None if the cache is off.

    Environment variable SIMSTUDY_CACHE: ``off``, or a folder instead of ``simstudy`` in the cache of the user.
    """
    chosen = os.environ.get("SIMSTUDY_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "simstudy"
    )
    # A relative path, as without a home folder, would depend on where a command is run.
    usable = chosen != "off" and os.path.isabs(chosen) and hasattr(os, "geteuid")
    return SealedFolder(Path(chosen) / "compiled" / digest()) if usable else None


class Unstated(Exception):
    """Raised for a kernel whose closure or arguments a key cannot state completely."""


def key_of(kernel: Any, arguments: tuple[types.Type, ...]) -> bytes:
    """Return the key of the code of a kernel for types of arguments; `Unstated` if there is none."""
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
            line = value.__code__.co_firstlineno  # distinguishes functions with the same name
            return f"{value.__module__}.{value.__qualname__} {line} {_stated(closed_over)}"
        case bool() | int() | float() | str() | np.generic():
            return f"{type(value).__name__} {value!r}"
        case tuple():
            return f"({', '.join(map(_stated, value))})"
        case type() if value.__module__ == "numpy":
            return value.__name__
    raise Unstated(repr(value))


class CompiledCode(NullCache):
    """Cache of the compiled code of one kernel, which replaces that of Numba."""

    def __init__(self, kernel: Dispatcher) -> None:
        self._kernel = kernel

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """Return the code for types of arguments that an earlier process compiled, or None."""
        place, key = self._entry(sig)
        content = place.read(key) if place else None
        if content is None:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Store code that has just been compiled, unless it contains addresses of this process."""
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
    """Return a kernel of Numba after attaching the cache of its compiled code."""
    kernel._cache = CompiledCode(kernel)
    return kernel


def _randomise_names() -> None:
    # Numba names symbols by a counter from 1 in each process.  Code of two processes could have the same names in a
    # third, where the linker would use the first.
    FunctionIdentity._unique_ids = itertools.count(secrets.randbits(60))


_randomise_names()
os.register_at_fork(after_in_child=_randomise_names)
