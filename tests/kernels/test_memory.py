"""Freed memory stays with the process, so that the arrays of the next piece need not be mapped page by page."""

import subprocess
import sys

import pytest

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
