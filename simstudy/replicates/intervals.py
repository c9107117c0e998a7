"""Errors as they are printed: ± 1.96 of them covers the truth with 95 %, also from few, skewed, heavy-tailed blocks."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from simstudy.replicates.moments import Array

COVERAGE = 1.959963984540054
"""Half-width of a 95 % interval in printed errors."""
FEWEST = 32
"""Blocks below which no printed error covers."""


def students_of(z: ArrayLike, skewness: ArrayLike, degrees: ArrayLike) -> Array:
    """Return the t whose skewness-corrected normal score is z (Hall 1992): bounds are estimate − t·MCSE."""
    z, skewness = np.asarray(z, float), np.asarray(skewness, float)
    corrected = -np.sign(z) * special.stdtrit(degrees, special.ndtr(-np.abs(z)))
    some = np.where(np.abs(skewness) < 1e-8, 1.0, skewness)
    inverse = 3.0 * (np.cbrt(1.0 + some * (corrected - some / 6.0)) - 1.0) / some
    return np.asarray(np.where(np.abs(skewness) < 1e-8, corrected, inverse))


def widening(skewness: Any, concentration: Any, n_blocks: Any, fewest: Any = FEWEST) -> Array:
    """Return printed over standard errors, of sums of third and fourth powers of contributions; NaN with too few."""
    n = np.asarray(n_blocks, float)
    # Satterthwaite's degrees of freedom, halved: of few blocks with heavy tails the largest are not seen.
    degrees = np.clip(1.0 / np.maximum(concentration - 1.0 / np.maximum(n, 1.0), 1e-300), 1.0, np.maximum(n - 1.0, 1.0))
    sides = (students_of(COVERAGE, sign * np.asarray(skewness, float), degrees) for sign in (1.0, -1.0))
    return np.asarray(np.where(n < np.minimum(fewest, FEWEST), np.nan, np.maximum(*sides) / COVERAGE))


def widening_of(share: Any) -> Array:
    """Return the same from contributions (block, ...)."""
    part = share / np.where((error := np.sqrt((share**2).sum(axis=0))) > 0.0, error, 1.0)
    return widening(((square := part**2) * part).sum(axis=0), (square**2).sum(axis=0), len(share))
