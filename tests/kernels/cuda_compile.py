"""Compile all CUDA kernels for a GPU of compute capability 9.0, which need not be there; `test_cuda` runs this."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

from numba import boolean, cuda, float32, float64, types, uint64
from numba.cuda import dispatcher

from simstudy.kernels import cuda as kernels
from simstudy.kernels import philox, philox_cuda

CAPABILITY = (9, 0)


def array(real, n_dims):
    return types.Array(real, n_dims, "C")


def signatures(real):
    """Each kernel with the types that it is launched with."""
    address = (uint64,) * 4
    keys, law = array(real, 4), (boolean, *[real] * 4)
    rows, table = array(real, 2), array(float64, 3)
    return [
        (philox_cuda._filler(philox.box_muller), (array(real, 3), *address)),
        (philox_cuda._filler(philox.uniform_pair), (array(real, 3), *address)),
        (kernels._project, (array(real, 3),) * 3),
        (kernels._average(str(real)), (keys, rows, keys, *law, table, array(real, 3), table)),
        (kernels._multiply(str(real)), (keys, rows, keys, *law, array(real, 3), table, array(float64, 4))),
    ]


device = SimpleNamespace(compute_capability=CAPABILITY)
with mock.patch.object(dispatcher, "get_current_device", lambda: device):
    for precision in (float32, float64):
        pairs = signatures(precision)
        for kernel, types_of_arguments in pairs:
            code, _ = cuda.compile_ptx(kernel.py_func, types_of_arguments, cc=CAPABILITY)
            # Fast but rough divisions and roots would break the agreement with the CPU.
            assert ".target sm_90" in code and ".approx" not in code
print(len(pairs), "kernels in 2 precisions")
