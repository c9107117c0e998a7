"""How kernels are called: queries that fill lanes are computed in lanes, and memory is kept."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from kernel_problems import problem

from simstudy.kernels import few_queries, many_queries
from simstudy.kernels.jit import kept_by_thread
from simstudy.kernels.vectors import lanes

WIDTH = lanes(8)


@pytest.mark.parametrize(("n_queries", "in_lanes"), [(1, False), (WIDTH, True), (WIDTH + 1, False), (4 * WIDTH, True)])
def test_queries_that_fill_lanes__are_computed_in_lanes(n_queries, in_lanes, monkeypatch):
    given, called = problem((2, n_queries, 2, 2, 40)), []
    for module in (few_queries, many_queries):

        def spy(*arguments, module=module, original=module.moments):
            called.append(module)
            return original(*arguments)

        monkeypatch.setattr(module, "moments", spy)
    given.moments()
    given.estimates()
    assert called == 2 * [many_queries if in_lanes else few_queries]


def test_kept_memory__is_that_of_one_thread():
    made = kept_by_thread(np.zeros)
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(made, 3).result()
    assert made(3) is made(3) is not elsewhere


# Two arrays of 20 MiB and one of 3: by itself glibc trims what is freed beyond twice the largest array.
_CODE = """
import resource
import numpy as np
import simstudy.kernels.memory

def faults_of_a_piece():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(size << 20, np.uint8) for size in (20, 20, 3)]
    del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print([faults_of_a_piece() for _ in range(5)][-1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the allocator cannot be told")
def test_arrays_of_later_pieces__are_made_of_memory_that_earlier_ones_freed():
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100
