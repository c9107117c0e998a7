"""Printed errors: ± 1.96 of them covers the true value with 95 %, also for few, skewed or heavy-tailed blocks."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from simstudy.replicates.moments import Array

COVERAGE = 1.959963984540054
"""Half-width of a 95 % interval, in printed errors."""
FEWEST = 32
"""Least number of blocks for a printed error, as intervals of fewer do not cover."""


def students_of(z: ArrayLike, skewness: ArrayLike, degrees: ArrayLike) -> Array:
    """Return the t whose skewness-corrected normal score is z (Hall 1992): bounds are estimate − t·MCSE."""
    z, skewness = np.asarray(z, float), np.asarray(skewness, float)
    corrected = -np.sign(z) * special.stdtrit(degrees, special.ndtr(-np.abs(z)))
    some = np.where(np.abs(skewness) < 1e-8, 1.0, skewness)
    inverse = 3.0 * (np.cbrt(1.0 + some * (corrected - some / 6.0)) - 1.0) / some
    return np.asarray(np.where(np.abs(skewness) < 1e-8, corrected, inverse))


def widening(skewness: Any, concentration: Any, n_blocks: Any, fewest: Any = FEWEST) -> Array:
    """Return the printed over the standard error, from sums of cubes and fourth powers of contributions, or NaN."""
    n = np.asarray(n_blocks, float)
    # Half of Satterthwaite's degrees of freedom, as few blocks with heavy tails lack the largest values.
    degrees = np.clip(1.0 / np.maximum(concentration - 1.0 / np.maximum(n, 1.0), 1e-300), 1.0, np.maximum(n - 1.0, 1.0))
    sides = (students_of(COVERAGE, sign * np.asarray(skewness, float), degrees) for sign in (1.0, -1.0))
    return np.asarray(np.where(n < np.minimum(fewest, FEWEST), np.nan, np.maximum(*sides) / COVERAGE))


def widening_of(share: Any) -> Array:
    """Return `widening` for contributions (block, ...)."""
    part = share / np.where((error := np.sqrt((share**2).sum(axis=0))) > 0.0, error, 1.0)
    return widening(((square := part**2) * part).sum(axis=0), (square**2).sum(axis=0), len(share))
