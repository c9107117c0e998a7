"""How functions are compiled for CPU and GPU, and the arrays that they take."""

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing

from simstudy.kernels.compiled import keep_compiled

# Sums may be reordered and products fused, which lets LLVM vectorise reductions.  "nnan" and "ninf" stay out:
# an undefined estimate has to survive as NaN and to be counted.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}

# Not Numba's cache on disk, which has loaded wrong code: see `compiled`.
# Nor counts of references: kernels may not allocate memory, they are handed all arrays.  A count for every slice of a
# row took as long as the arithmetic of 200 keys.
_OPTIONS = {"nogil": True, "cache": False, "error_model": "numpy", "_nrt": False}

# Typed loosely: Numba states no types for a decorator with options.
_as_written: Callable[..., Any] = functools.partial(numba.njit, **_OPTIONS)
# Of loops inside kernels: a real call that passes slices counts references, which costs as much as a tile of keys.
# Without wrappers, since Python never calls them.
_WITHIN = {"fastmath": FASTMATH, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inlined: Callable[..., Any] = functools.partial(_as_written, forceinline=True, **_WITHIN)
# Not compiled by itself first: for the one long loop of a kernel, which has a single call of it.
spliced: Callable[..., Any] = functools.partial(_as_written, inline="always", **_WITHIN)
# Scalar functions decide bits that tests compare exactly: products may fuse with sums, but nothing is reordered.  The
# plain function stays reachable as ``py_func``, for tests and for GPUs.
device_function: Callable[..., Any] = functools.partial(_as_written, fastmath={"contract", "nsz"}, forceinline=True)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile loops over arrays, or load them as an earlier process did: a second for each new set of types."""
    return keep_compiled(_as_written(function, fastmath=FASTMATH))


def exact_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, but every operation is rounded as it is written, as NumPy does."""
    return keep_compiled(_as_written(function))


@functools.cache
def cuda_compiler() -> Any:
    """Return Numba's module for CUDA; it is imported only where a GPU is asked for, since that takes 0.2 s."""
    from numba import cuda

    # Small batches leave parts of a GPU idle: the documentation says so, not each call.
    numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # type: ignore[attr-defined]
    # Freeing an array waits for the device: 100 at once, or a fifth of its memory.
    numba.config.CUDA_DEALLOCS_COUNT = 100  # type: ignore[attr-defined]
    return cuda


def cuda_kernel(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a loop body for GPUs, one call for each thread of a grid; the simulator takes no options."""
    # No fast mathematics, which would also round divisions and roots badly; products and sums fuse all the same.
    return cuda_compiler().jit(function, **({} if cuda_simulated() else options))


def cuda_function(function: Callable[..., Any]) -> Any:
    """Compile a function that kernels call for GPUs: a `device_function`, from the same source, or a plain one."""
    return cuda_compiler().jit(device=True)(getattr(function, "py_func", function))


@functools.cache
def cuda_exp2_of(real: str) -> Any:
    """Return 2 to a power for GPUs; of float32 what is denormal is 0, in three instructions less than `math.exp2`."""
    if cuda_simulated():  # where infinity, and products with it, are errors
        return lambda x: math.exp2(min(x, 60.0 if real == "float32" else 450.0))
    if real == "float64":
        return math.exp2
    from llvmlite import ir
    from numba.cuda.extending import intrinsic

    code = ir.InlineAsm(ir.FunctionType(ir.FloatType(), [ir.FloatType()]), "ex2.approx.ftz.f32 $0, $1;", "=f,f")
    signature = numba.types.float32(numba.types.float32)
    return intrinsic(lambda context, x: (signature, lambda _, builder, __, given: builder.call(code, given)))


def cuda_simulated() -> bool:
    """True if Numba's simulator stands in for a GPU (the environment has NUMBA_ENABLE_CUDASIM=1)."""
    return bool(numba.config.ENABLE_CUDASIM)  # type: ignore[attr-defined]


def aligned(shape: tuple[int, ...], dtype: np.typing.DTypeLike, make: Callable[..., Any] = np.empty) -> np.ndarray:
    """Return an array that begins on a cache line, since reading across lines costs twice as much."""
    real = np.dtype(dtype)
    size, line = math.prod(shape), 64 // real.itemsize
    flat = make(size + line, real)
    first = -(flat.__array_interface__["data"][0] // real.itemsize) % line
    return flat[first : first + size].reshape(shape)


def kept_by_thread(make: Callable[..., Any], most: int = 4) -> Callable[..., Any]:
    """Let a function return the memory that it made last time for these arguments in this thread."""
    own = threading.local()

    @functools.wraps(make)
    def kept(*arguments: Any) -> Any:
        if not hasattr(own, "made"):
            own.made = functools.lru_cache(maxsize=most)(make)
        return own.made(*arguments)

    return kept


def writable(x: np.ndarray, dtype: np.typing.DTypeLike) -> np.ndarray:
    """Return a contiguous array that may be written to: others are other types, and would compile kernels again."""
    contiguous = np.ascontiguousarray(x, dtype)
    return contiguous if contiguous.flags.writeable else contiguous.copy()
