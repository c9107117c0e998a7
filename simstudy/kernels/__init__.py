"""Compiled loops over arrays, on the CPU or a GPU.

A kernel is a deterministic function of its arguments, without input, output or random numbers.  The bits for one
replicate do not depend on other replicates in the same call.
"""

import simstudy.kernels.settings  # noqa: F401  before other imports of Numba
from simstudy.kernels.compact import compact_moments
from simstudy.kernels.nadaraya_watson import nw_moments, project

__all__ = ["compact_moments", "nw_moments", "project"]
