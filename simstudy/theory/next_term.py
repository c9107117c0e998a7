"""What leading order leaves out: the next term of the variance of a ratio of averages."""

from __future__ import annotations

import numpy as np

from simstudy.theory.functions import Array


def next_term(ratio: Array, leading: Array, third: Array, drift: Array) -> Array:
    """n times the relative size of the O(n^-2) term of a head's variance.

    For f - mu = N / (1 + D), N and D averages over n keys: Var f = E N^2 - 2 E N^2 D + 3 E N^2 D^2 - (E N D)^2 + ...,
    with D having variance (ratio - 1) / n, N variance leading / n, and Cov(N, D) = drift / n.
    """
    neglected = 3 * (ratio - 1) * leading - 2 * (third - leading) + 5 * drift**2
    # Without noise or signal there is no variance, and nothing is neglected.
    return np.divide(neglected, leading, out=np.zeros_like(leading), where=leading != 0)
