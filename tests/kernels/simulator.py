"""What Numba's simulator lacks: shared arrays that are aligned, and threads of a block that wait without being asked.

Imported by the checks, and by the processes of the executor ``cuda`` as what Dask loads first in a worker.
"""

import math
import sys
import threading

import numpy as np
from numba.cuda.simulator.cudadrv.devicearray import FakeWithinKernelCUDAArray
from numba.cuda.simulator.kernel import BlockManager, BlockThread, FakeCUDAKernel
from numba.cuda.simulator.kernelapi import FakeCUDAShared


def array(self, shape, dtype, alignment=None):
    """One array for each line that asks for one, as the simulator has, with any alignment."""
    caller = sys._getframe(1)
    return self._allocations.setdefault((caller.f_code, caller.f_lineno), np.empty(shape, dtype))


def run(self, grid_point, *arguments):
    """Run a block whose threads all come to each barrier; the simulator's own asks them over and over."""
    self.barrier = threading.Barrier(math.prod(self._block_dim))

    def call():
        try:
            self._f(*arguments)
        except BaseException:
            self.barrier.abort()
            raise

    threads = [BlockThread(call, self, grid_point, point, self._debug) for point in np.ndindex(*self._block_dim)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread in threads:
        if thread.exception and not isinstance(thread.exception[0], threading.BrokenBarrierError):
            raise thread.exception[0].with_traceback(thread.exception[1])


def call_kernel(self, *arguments, simulated=FakeCUDAKernel.__call__):
    """Do not put the simulator into a module, and take it out again, for a function that does not name it."""
    plain = self._device and "cuda" not in self.fn.__code__.co_names
    return self.fn(*arguments) if plain else simulated(self, *arguments)


FakeCUDAShared.array, BlockManager.run, FakeCUDAKernel.__call__ = array, run, call_kernel
FakeWithinKernelCUDAArray.__getattr__ = lambda self, name: getattr(self._item._ary, name)  # not by all that it has
BlockThread.syncthreads = lambda thread: thread._manager.barrier.wait()
