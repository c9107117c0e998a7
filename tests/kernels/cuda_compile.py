"""Compile all CUDA kernels for a GPU of compute capability 9.0, which need not be there, and print what they take.

`test_cuda` runs this, and anybody may: it needs the extra `cuda` alone.  Registers are those that NVIDIA's
linker reports; warps on a multiprocessor follow from its limits.
"""

import re
import sys
from types import SimpleNamespace
from unittest import mock

import numpy as np

from simstudy.kernels.jit import cuda_compiler

try:
    import numba_cuda  # noqa: F401
    from cuda.core import Linker, LinkerOptions, ObjectCode
    from numba import boolean, float32, float64, int64, types, uint64
    from numba.cuda import dispatcher
except ImportError as missing:
    sys.exit(f"nothing here compiles for GPUs ({missing}); pip install 'simstudy[cuda]'")

from simstudy.kernels import cuda as kernels
from simstudy.kernels import cuda_heads, philox

CAPABILITY = (9, 0)
REGISTERS, WARPS = 65_536, 64
"""Of a multiprocessor of that capability."""


def array(real, n_dims):
    return types.Array(real, n_dims, "C")


def signatures(real):
    """Each kernel with the types that it is launched with."""
    keys, rows, sums, grams = array(real, 3), array(real, 2), array(float64, 3), array(float64, 4)
    heads = array(real, 4), rows, array(real, 4), real
    numbers, table, address = array(float64, 1), array(float64, 2), (uint64,) * 4
    transform = {float32: philox.box_muller_float32, float64: philox.box_muller}[real]
    found = {
        "normals": (kernels._filler(transform), (keys, *address)),
        "uniforms": (kernels._filler(philox.uniform_pair), (array(float64, 3), *address)),
        "projection": (kernels._project, (keys,) * 3),
        "m(X), variances": (kernels._evaluate, (rows, keys, table, table)),
        "logarithms": (kernels._take_logarithms, (sums, sums, float64)),
        "expansion": (kernels._expand, (sums, sums, grams, sums, *(table,) * 9)),
        "sums of the expansion": (kernels._sum, (sums, sums, array(boolean, 1))),
        "squares at queries": (cuda_heads.sum_squares, (table, sums, grams, numbers, float64)),
        "squares of replicates": (cuda_heads.average, (numbers, table, int64)),
        "sums over replicates": (kernels._add, (sums, sums, grams, numbers, numbers)),
    }
    for n in (1, cuda_heads.TOGETHER):
        found[f"estimates, {n} queries"] = cuda_heads.estimator_of(True, n), (*(sums,) * 3, *heads, real)
    for n in (2, 8, 64):
        tiles = cuda_heads.tiling(64, n, np.dtype(str(real)))
        found[f"products, {n} heads"] = cuda_heads.multiplier_of(True, tiles), (grams, sums, sums, *heads)
    return found


def resources(code):
    """Registers and local bytes (arrays and what did not fit into registers) that code takes where registers abound."""
    options = LinkerOptions(arch="sm_{}{}".format(*CAPABILITY), ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ptx(code.encode()), options=options)
    linker.link("cubin")
    found = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill.*?Used (\d+) registers", linker.get_info_log(), re.S)
    local, spilled, registers = map(int, found.groups())
    assert not spilled
    return registers, local


def print_resources():
    device = SimpleNamespace(compute_capability=CAPABILITY)
    print("| kernel | type | registers | local bytes | warps of 64 |\n|---|---|---|---|---|")
    with mock.patch.object(dispatcher, "get_current_device", lambda: device):
        for real in (float32, float64):
            for name, (kernel, arguments) in signatures(real).items():
                code, _ = cuda_compiler().compile_ptx(kernel.py_func, arguments, cc=CAPABILITY)
                # Fast but rough divisions and roots would break the agreement with the CPU; powers of 2 err by 2 ulp.
                assert ".target sm_90" in code and not re.search(r"(div|sqrt)\.approx", code)
                registers, local = resources(code)
                # Registers are shared out by 8 a thread.
                n_threads = cuda_heads.THREADS
                fit = min(REGISTERS // (n_threads * -(-registers // 8) * 8), WARPS // (n_threads // 32))
                assert fit and (not local or "m(X)" in name)
                print(f"| {name} | {real} | {registers} | {local} | {fit * n_threads // 32} |")


if __name__ == "__main__":
    print_resources()
