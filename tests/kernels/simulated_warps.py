"""Shuffles between the lanes of a warp, which Numba's simulator lacks: lanes meet, show what they have, and look.

Imported by the checks, and by the processes of the executor ``cuda`` as what Dask loads first in a worker.
"""

import threading

from numba.cuda.simulator.kernelapi import FakeCUDAModule

from simstudy.kernels.cuda_heads import LANES, WARPS

_meetings, _shown = [threading.Barrier(LANES) for _ in range(WARPS)], [0.0] * LANES * WARPS


def shfl_xor_sync(self, _lanes, x, step):
    """What lane ^ step has in the place of x."""
    t = self.threadIdx.x
    _shown[t] = x
    _meetings[t // LANES].wait()
    found = _shown[t ^ step]
    _meetings[t // LANES].wait()
    return found


FakeCUDAModule.shfl_xor_sync = shfl_xor_sync
