"""Compilation of functions for CPU and GPU, and arrays for them."""

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing

from simstudy.kernels.compiled import keep_compiled

# Sums may be reordered and products fused, so that LLVM vectorises reductions.  "nnan" and "ninf" are left out, as an
# undefined estimate must be NaN and be counted.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}

# Without Numba's cache on disk, which has loaded wrong code (see `compiled`), and without reference counts: kernels do
# not allocate memory, and a count for every slice of a row took as long as the arithmetic of 200 keys.
_OPTIONS = {"nogil": True, "cache": False, "error_model": "numpy", "_nrt": False}

# Typed as Any: Numba has no types for a decorator with options.
_as_written: Callable[..., Any] = functools.partial(numba.njit, **_OPTIONS)
# For loops inside kernels: a call that passes slices counts references, which takes as long as a tile of keys.
# Without wrappers, as Python does not call them.
_WITHIN = {"fastmath": FASTMATH, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inlined: Callable[..., Any] = functools.partial(_as_written, forceinline=True, **_WITHIN)
# Inlined before compilation: for the long loop of a kernel, which is called once.
spliced: Callable[..., Any] = functools.partial(_as_written, inline="always", **_WITHIN)
# Scalar functions, whose bits tests compare exactly: products may fuse with sums, but nothing is reordered.  The
# Python function is available as ``py_func``, for tests and for GPUs.
device_function: Callable[..., Any] = functools.partial(_as_written, fastmath={"contract", "nsz"}, forceinline=True)


def kernel(function: Callable[..., Any]) -> Any:
    """Return compiled loops over arrays, loaded from the cache if possible; a second for each new set of types."""
    return keep_compiled(_as_written(function, fastmath=FASTMATH))


def exact_kernel(function: Callable[..., Any]) -> Any:
    """Return the same as `kernel`, but every operation is rounded as written, as in NumPy."""
    return keep_compiled(_as_written(function))


@functools.cache
def cuda_compiler() -> Any:
    """Return Numba's module for CUDA, which is imported only if needed, as that takes 0.2 s."""
    from numba import cuda

    # No warning in each call that small batches leave parts of a GPU idle; the documentation says so.
    numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # type: ignore[attr-defined]
    # Freeing waits for the device; so 100 arrays, or a fifth of its memory, are freed at once.
    numba.config.CUDA_DEALLOCS_COUNT = 100  # type: ignore[attr-defined]
    return cuda


def cuda_kernel(function: Callable[..., Any], **options: Any) -> Any:
    """Return a compiled loop body for GPUs, with one call for each thread; the simulator ignores options."""
    # Without fast mathematics, which makes divisions and roots inaccurate; products and sums are fused anyway.
    return cuda_compiler().jit(function, **({} if cuda_simulated() else options))


def cuda_function(function: Callable[..., Any]) -> Any:
    """Return a function compiled for kernels on GPUs, from a `device_function` or a function of Python."""
    return cuda_compiler().jit(device=True)(getattr(function, "py_func", function))


@functools.cache
def cuda_exp2_of(real: str) -> Any:
    """Return the function 2^x for GPUs; in float32 subnormals are 0, in three instructions less than `math.exp2`."""
    if cuda_simulated():  # infinity would raise an error
        return lambda x: math.exp2(min(x, 60.0 if real == "float32" else 450.0))
    if real == "float64":
        return math.exp2
    from llvmlite import ir
    from numba.cuda.extending import intrinsic

    code = ir.InlineAsm(ir.FunctionType(ir.FloatType(), [ir.FloatType()]), "ex2.approx.ftz.f32 $0, $1;", "=f,f")
    signature = numba.types.float32(numba.types.float32)
    return intrinsic(lambda context, x: (signature, lambda _, builder, __, given: builder.call(code, given)))


def cuda_simulated() -> bool:
    """Return true if Numba simulates a GPU (NUMBA_ENABLE_CUDASIM=1 in the environment)."""
    return bool(numba.config.ENABLE_CUDASIM)  # type: ignore[attr-defined]


def aligned(shape: tuple[int, ...], dtype: np.typing.DTypeLike, make: Callable[..., Any] = np.empty) -> np.ndarray:
    """Return an array that starts at a cache line, as reads across lines take twice as long."""
    real = np.dtype(dtype)
    size, line = math.prod(shape), 64 // real.itemsize
    flat = make(size + line, real)
    first = -(flat.__array_interface__["data"][0] // real.itemsize) % line
    return flat[first : first + size].reshape(shape)


def kept_by_thread(make: Callable[..., Any], most: int = 4) -> Callable[..., Any]:
    """Return a function with a cache of its results for each thread, of at most ``most`` arguments."""
    local = threading.local()

    @functools.wraps(make)
    def kept(*arguments: Any) -> Any:
        if not hasattr(local, "made"):
            local.made = functools.lru_cache(maxsize=most)(make)
        return local.made(*arguments)

    return kept


def writable(x: np.ndarray, dtype: np.typing.DTypeLike) -> np.ndarray:
    """Return a contiguous, writable array; others have other types in Numba, for which kernels would be compiled."""
    contiguous = np.ascontiguousarray(x, dtype)
    return contiguous if contiguous.flags.writeable else contiguous.copy()
