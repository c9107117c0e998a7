"""Compiled loops: bare arrays in, bare arrays out.

Import NumPy, math and jit only.  No I/O, no labels, no random numbers: a kernel is a deterministic function of its
arguments, and the bits for one replicate do not depend on the replicates that share its call.
"""

from simstudy.kernels.nadaraya_watson import nw_estimates, nw_moments
from simstudy.kernels.projection import project

__all__ = ["nw_estimates", "nw_moments", "project"]
