"""Compile all CUDA kernels for a GPU of compute capability 9.0, which need not be there, and print what they take.

`test_cuda` runs this, and anybody may: it needs the extra `cuda` and the package `nvidia-cuda-nvdisasm`.  Registers are
those that NVIDIA's linker reports.  Instructions are for each weight, on the shortest path through the loop over keys.
"""

import heapq
import re
import site
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
from cuda.core import Linker, LinkerOptions, ObjectCode
from numba import boolean, float32, float64, types, uint32, uint64
from numba.cuda import dispatcher

from simstudy.kernels import cuda as kernels
from simstudy.kernels import cuda_heads, philox
from simstudy.kernels.jit import cuda_compiler

CAPABILITY = (9, 0)


def array(real, n_dims):
    return types.Array(real, n_dims, "C")


def signatures(real):
    """Each kernel with the types that it is launched with."""
    keys, rows, sums, grams = array(real, 3), array(real, 2), array(float64, 3), array(float64, 4)
    heads = (*(sums,) * 4, grams, sums, array(uint32, 2), rows, rows, rows, keys, real, real, real)
    numbers, table, address = array(float64, 1), array(float64, 2), types.UniTuple(uint64, 4)
    normal = {float32: philox.box_muller_float32, float64: philox.box_muller}[real]
    found = {
        "normals, projected": (kernels._projector(normal, 32), (keys, keys, address)),
        "projection": (kernels._projector(None, 32), (keys, keys, types.UniTuple(keys, 1))),
        "directions of m(X)": (kernels._projector(normal, 4), (keys, keys, address)),
        "m(X), variances": (kernels._evaluate, (rows, rows, array(real, 4), rows)),
        "expansion": (kernels._expand, (sums, sums, grams, sums, *(table,) * 8)),
        "sums of the expansion": (kernels._sum, (sums, sums, array(boolean, 1))),
        "mean squares": (kernels._mean_squares, (numbers, sums, table, numbers, float64)),
        "sums over replicates": (kernels._add, (sums, sums, grams, numbers, numbers)),
    }
    for n, p, queries in ((1, 1, 1), (8, 4, 64), (16, 4, 64), (8, 64, 64)):
        for name, products, between in (("estimates", False, False), ("moments", True, False), ("others", True, True)):
            tiles = cuda_heads.tiling(queries, n, p, np.dtype(str(real)), between)
            if tiles.heads:
                kernel = cuda_heads.heads_of(str(real), True, p, tiles, products, between)
                found[f"{name}, {n} heads of {p}, {queries} queries"] = kernel, heads
    return found


def resources(code, limit):
    """Machine code, and registers and local bytes (arrays and what did not fit into registers) that it takes."""
    options = LinkerOptions(arch="sm_{}{}".format(*CAPABILITY), ptxas_options=["-v", f"--maxrregcount={limit}"])
    linker = Linker(ObjectCode.from_ptx(code.encode()), options=options)
    cubin = linker.link("cubin").code
    found = re.search(r"(\d+) bytes stack frame, \d+ bytes spill.*?Used (\d+) registers", linker.get_info_log(), re.S)
    local, registers = map(int, found.groups())
    return cubin, registers, local


def instructions(cubin):
    """Instructions for each weight, none where no weights are made in float32."""
    (disassembler,) = (Path(each) / "nvidia" / "cu13" / "bin" / "nvdisasm" for each in site.getsitepackages())
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(bytes(cubin))
        file.flush()
        text = subprocess.run([disassembler, "-c", file.name], check=True, capture_output=True, text=True).stdout
    labels, lines = {}, []
    for label, line in re.findall(r"^(\.L_x_\d+):|^\s+/\*[0-9a-f]+\*/\s+(.*?);", text, re.MULTILINE):
        labels |= {label: len(lines)} if label else {}
        lines += [line] if line else []
    jumps = {
        i: labels[found[1]] for i, line in enumerate(lines) if (found := re.search(r"BRA.*?`\((\.L_x_\d+)\)", line))
    }
    loops = [(end - begin, begin, end) for end, begin in jumps.items() if begin <= end]
    weights = {loop: sum("MUFU.EX2" in line for line in lines[loop[1] : loop[2]]) for loop in loops}
    if not (loop := min((loop for loop, count in weights.items() if count), default=None)):
        return None
    lengths, ways = {}, [(1, loop[1])]
    while loop[2] not in lengths:
        length, i = heapq.heappop(ways)
        lengths.setdefault(i, length)
        onward = [] if re.match(r"BRA\b(?!.*P\d)|EXIT", lines[i]) else [i + 1]
        for j in (*onward, *([jumps[i]] if i in jumps else [])):
            if loop[1] <= j <= loop[2] and j not in lengths:
                heapq.heappush(ways, (length + 1, j))
    return lengths[loop[2]] / weights[loop]


def print_resources():
    device = SimpleNamespace(compute_capability=CAPABILITY)
    print("| kernel | type | registers | local bytes | instructions |\n|---|---|---|---|---|")
    with mock.patch.object(dispatcher, "get_current_device", lambda: device):
        for real in (float32, float64):
            for name, (kernel, arguments) in signatures(real).items():
                code, _ = cuda_compiler().compile_ptx(kernel.py_func, arguments, cc=CAPABILITY)
                # Fast but rough divisions and roots would break the agreement with the CPU; powers of 2 err by 2 ulp.
                assert ".target sm_90" in code and not re.search(r"(div|sqrt)\.approx", code)
                cubin, registers, local = resources(code, kernel.targetoptions.get("max_registers") or 255)
                count = instructions(cubin)
                print(f"| {name} | {real} | {registers} | {local} | {f'{count:.1f}' if count else '–'} |")


if __name__ == "__main__":
    print_resources()
