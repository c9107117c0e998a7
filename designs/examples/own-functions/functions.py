"""A proportion and the coverage of its standard interval, for own-functions.toml."""

import numpy as np


def success(x):
    """True with probability 1/2 at standard normal points x (feature, ...)."""
    return x[0] > 0.0


def coverage(estimates, values):
    """Whether p ± 1.96 √(p(1 − p)/n), p the estimate of the first head, covers 1/2 in each replicate."""
    p = estimates[:, 0, 0].clip(0.0, 1.0)
    return np.abs(p - 0.5) < 1.96 * np.sqrt(p * (1.0 - p) / values.shape[1])
