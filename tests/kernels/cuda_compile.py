"""Compile all CUDA kernels for a GPU of compute capability 9.0, which need not be there, and print what they take.

`test_cuda` runs this, and anybody may: it needs the extra `cuda` alone.  Registers and shared memory are those that
NVIDIA's linker reports; warps on a multiprocessor follow from its limits.
"""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from unittest import mock

from simstudy.kernels.jit import cuda_compiler

try:
    import numba_cuda  # noqa: F401
    from cuda.core import Linker, LinkerOptions, ObjectCode
    from numba import boolean, float32, float64, int64, types, uint64
    from numba.cuda import dispatcher
except ImportError as missing:
    sys.exit(f"nothing here compiles for GPUs ({missing}); pip install 'simstudy[cuda]'")

from simstudy.kernels import cuda as kernels
from simstudy.kernels import philox

CAPABILITY = (9, 0)
REGISTERS, SHARED_BYTES, WARPS, BLOCKS = 65_536, 227 << 10, 64, 32
"""Of a multiprocessor of that capability."""
HEADS = 16


def array(real, n_dims):
    return types.Array(real, n_dims, "C")


def signatures(real):
    """Each kernel with the types that it is launched with, and warps and shared bytes of a block."""
    keys, rows, sums, grams = array(real, 3), array(real, 2), array(float64, 3), array(float64, 4)
    law, sizes = types.Tuple((boolean, real, real, real)), types.UniTuple(int64, 2)
    heads = array(real, 4), rows, rows, array(real, 4), law, real, sizes, sums, grams, sums, sums
    numbers, address = array(float64, 1), (uint64,) * 4
    _, n_warps, _ = kernels.blocks_of(HEADS)
    shared = n_warps * kernels.GROUP * kernels.LANES * kernels.OWN_BYTES
    transform = {float32: philox.box_muller_float32, float64: philox.box_muller}[real]
    whole = kernels.WARPS, 0
    return {
        "normals": (kernels._filler(transform), (keys, *address), *whole),
        "uniforms": (kernels._filler(philox.uniform_pair), (array(float64, 3), *address), *whole),
        "projection": (kernels._project, (keys,) * 3, *whole),
        "m(X), variances": (kernels._evaluate, (keys, numbers, *[array(float64, 2)] * 2, int64, rows), *whole),
        f"{HEADS} heads": (kernels._weigher(str(real)), heads, n_warps, shared),
        "squares of replicates": (kernels._average, (sums, grams, numbers, numbers), *whole),
        "sums over replicates": (kernels._add, (sums, grams, numbers, numbers, sums, sums), *whole),
    }


def resources(code):
    """Registers, shared bytes and local bytes (arrays and what did not fit into registers) that code was given."""
    options = LinkerOptions(arch="sm_{}{}".format(*CAPABILITY), ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ptx(code.encode()), options=options)
    linker.link("cubin")
    found = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill.*?Used (\d+) registers", linker.get_info_log(), re.DOTALL
    )
    local, spilled, registers = map(int, found.groups())
    assert not spilled
    return registers, sum(map(int, re.findall(r"\.shared .*\[(\d+)\];", code))), local


def print_resources():
    device = SimpleNamespace(compute_capability=CAPABILITY)
    print("| kernel | type | registers | shared bytes | local bytes | warps of 64 |\n|---|---|---|---|---|---|")
    with mock.patch.object(dispatcher, "get_current_device", lambda: device):
        for real in (float32, float64):
            for name, (kernel, arguments, n_warps, dynamic) in signatures(real).items():
                code, _ = cuda_compiler().compile_ptx(kernel.py_func, arguments, cc=CAPABILITY)
                # Fast but rough divisions and roots would break the agreement with the CPU.
                assert ".target sm_90" in code and ".approx" not in code
                registers, shared, local = resources(code)
                # Registers are shared out by 8 a thread; the system takes 1 KiB of each block.
                fit = REGISTERS // (n_warps * 32 * -(-registers // 8) * 8)
                fit = min(fit, SHARED_BYTES // (shared + dynamic + 1024), WARPS // n_warps, BLOCKS)
                print(f"| {name} | {real} | {registers} | {shared + dynamic} | {local} | {fit * n_warps} |")


def print_work(n=4096, d=64, p=4, n_queries=64, size=4):
    """Weights and bytes of float32, with the noise integrated out."""
    counts = {}
    for n_heads in (4, HEADS, 32, 64):
        n_blocks, n_warps, _ = kernels.blocks_of(n_heads)
        counts[n_heads] = n_blocks * min(n_warps * kernels.GROUP, n_heads) / n_heads
    tasks = kernels.blocks_of(HEADS)[2] / HEADS
    # Keys and queries, a value for each weight, a variance for each group of products.
    read, shared = size * (2 * p + 1 + tasks), size * (1 + 2 * kernels.GROUP * tasks)
    numbers = 3 * n_queries + 2 * (d + d * d + 2 * (d + 2))
    up, down = size * HEADS * p * (d + n_queries) + 8 * numbers, 8 * n_queries * (HEADS + HEADS * (HEADS + 1) // 2)
    print(f"\n| n = {n}, d = {d}, H = {HEADS}, p = {p}, Q = {n_queries}, float32 | |\n|---|---|")
    print("| weights computed for each one needed |", ", ".join(f"{x:g} for H = {h}" for h, x in counts.items()), "|")
    print(f"| bytes read for each weight, mostly from caches | {read:g} |")
    print(f"| bytes of shared memory written and read for each weight | {shared:g} |")
    print(f"| bytes to the GPU for replicates computed together, of a ridge function | {up} |")
    print(f"| bytes to the host | 16 for each replicate, {down} for each block of replicates |")


if __name__ == "__main__":
    print_resources()
    print_work()
