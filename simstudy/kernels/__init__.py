"""Compiled loops: bare arrays in, bare arrays out, on the device that computes.

No I/O, no labels, no random numbers: a kernel is a deterministic function of its arguments, and the bits for one
replicate do not depend on the replicates that share its call.
"""

import simstudy.kernels.settings  # noqa: F401  before all that imports Numba
from simstudy.kernels.compact import compact_moments
from simstudy.kernels.nadaraya_watson import nw_moments, project

__all__ = ["compact_moments", "nw_moments", "project"]
