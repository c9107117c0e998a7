"""What Numba's simulator lacks: shared arrays that are aligned, and threads of a block that wait without being asked.

Imported by the checks, and by the processes of the executor ``cuda`` as what Dask loads first in a worker.
"""

import contextlib
import math
import threading
import traceback

import numpy as np
from numba.cuda.simulator.kernel import BlockManager, BlockThread
from numba.cuda.simulator.kernelapi import FakeCUDAShared


def array(self, shape, dtype, alignment=None):
    """One array for each line that asks for one, as the simulator has, with any alignment."""
    return self._allocations.setdefault(traceback.extract_stack()[-2][:2], np.empty(shape, dtype))


def run(self, grid_point, *arguments):
    """Run a block whose threads all come to each barrier; the simulator's own asks them over and over."""
    self.barrier = threading.Barrier(math.prod(self._block_dim))

    def call():
        with contextlib.suppress(threading.BrokenBarrierError):
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
        if thread.exception:
            raise thread.exception[0].with_traceback(thread.exception[1])


FakeCUDAShared.array, BlockManager.run = array, run
BlockThread.syncthreads = lambda thread: thread._manager.barrier.wait()
