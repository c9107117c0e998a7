"""`rival.c`, built by the C compiler of the machine where there is one."""

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from workloads import Arrays

COMPILER = "cc"
FLAGS = ("-O3", "-march=native", "-ffast-math", "-funroll-loops", "-fPIC")
_NAMES = {"float32": ("float", "expf", ctypes.c_float), "float64": ("double", "exp", ctypes.c_double)}


@functools.cache
def _built(dtype: str, p: int) -> Any:
    real, exponential, scalar = _NAMES[dtype]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "rival.so"
        source = Path(__file__).with_name("rival.c")
        defined = (f"-DREAL={real}", f"-DEXP={exponential}", f"-DP={p}")
        compiled = Path(folder) / "rival.o"
        subprocess.run([COMPILER, *FLAGS, *defined, "-c", str(source), "-o", str(compiled)], check=True)
        # Linked with -ffast-math, it would take subnormal numbers from the whole process as it is loaded.
        subprocess.run([COMPILER, "-shared", str(compiled), "-o", str(library), "-lm"], check=True)
        function = ctypes.CDLL(str(library)).rival
    pointer = np.ctypeslib.ndpointer(dtype, flags="C_CONTIGUOUS")
    function.argtypes, function.restype = [*[pointer] * 4, scalar, *[ctypes.c_long] * 6, *[pointer] * 4], None
    return function


def job_of(arrays: Arrays, with_gram: bool) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Return a job for estimates, or for means and Gram matrices."""
    (n_heads, d, p), dtype = arrays.projections.shape, arrays.keys.dtype
    function = _built(dtype.name, p)
    projections = np.ascontiguousarray(arrays.projections.transpose(0, 2, 1))
    points, scale = np.ascontiguousarray(arrays.projected_points, dtype), -0.5 / arrays.bandwidth**2

    def job(keys: np.ndarray, values: np.ndarray) -> Any:
        n, shape = keys.shape[2], (len(keys), len(points), n_heads)
        means, grams = np.empty(shape, dtype), np.empty((*shape, n_heads) if with_gram else 0, dtype)
        room = np.empty((n_heads, p, n), dtype), np.empty((n_heads, 256), dtype)
        function(keys, values, projections, points, scale, len(keys), d, n, n_heads, len(points), with_gram, *room,
                 means, grams)  # fmt: skip
        return (means, grams) if with_gram else means

    return job
