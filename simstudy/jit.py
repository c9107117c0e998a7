"""How functions are compiled for the CPU: the only module that configures Numba.

Imports Numba and llvmlite only.

``kernel``
    Decorator of loops over arrays.  Compiled at the first call with new types: call it with one set of types
    for each precision, since every further one costs about a second.
``device_function``
    Decorator of small scalar functions that kernels call and LLVM inlines.  The plain Python function stays
    reachable as ``.py_func``, for tests and for compilation for another device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding

# Sums may be reordered and products fused, which lets LLVM vectorise reductions.  "nnan" and "ninf" stay out:
# an undefined estimate has to survive as NaN and to be counted.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}

# No cache on disk: a concurrent first compilation of two signatures can load the wrong code in silence, and an
# edited callee in another file does not invalidate its caller.
_OPTIONS = {"nogil": True, "cache": False, "error_model": "numpy"}

# Typed loosely: Numba states no types for a decorator with options.
kernel: Callable[..., Any] = functools.partial(numba.njit, fastmath=FASTMATH, **_OPTIONS)
# Scalar functions decide bits that tests compare exactly: products may fuse with sums, but nothing is reordered.
device_function: Callable[..., Any] = functools.partial(
    numba.njit, fastmath={"contract", "nsz"}, forceinline=True, **_OPTIONS
)


@functools.cache
def processor() -> str:
    """Return the processor type and features that kernels are compiled for: they decide the last bits of a sum."""
    name = numba.config.CPU_NAME or binding.get_host_cpu_name()  # type: ignore[attr-defined]
    features = numba.config.CPU_FEATURES  # type: ignore[attr-defined]
    return f"{name} {binding.get_host_cpu_features().flatten() if features is None else features}"
