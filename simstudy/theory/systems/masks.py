"""Errors of the average of random numbers, and of the best of all their subsets for many numbers.

The sums of all 2^k subsets of k random numbers lie around a point at random, with a density of 2^k times that of one
random subset, which is nearly Gaussian.  The distance from the point to the nearest of them is then that of a Poisson
process (Mertens 2001 on number partitioning), whose logarithm has the expectation given here: the mean of the distance
itself is that of the rare draws which the sums do not reach.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.masks import MaskedHeadInstance, RandomHeadsInstance
from simstudy.theory.instances import exact_numbers, leading_numbers

# Source numbers are products of two uniforms on (−1, 1): their variance, and what the random size of their sum of
# squares takes from the mean logarithm of that sum, times k: half of E x⁴/(E x²)² − 1.
_VARIANCE = 1.0 / 9.0
_SPREAD = 0.5 * (81.0 / 25.0 - 1.0)
# Sums reach k E|x|/2 = k/8 to either side on average; a target must be well inside.
REACH = 1.0 / 16.0


@exact_numbers.register
def random_heads(instance: RandomHeadsInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``random_heads`` that are exact: the error of the average of all heads."""
    variance = instance.correlation + (1.0 - instance.correlation) / cell.heads.n_heads
    # E ln of χ² over its degrees of freedom, one for each output.
    half = 0.5 * instance.outputs
    return {"log_average_error": float(0.5 * (special.digamma(half) - np.log(half) + np.log(variance)))}


@leading_numbers.register
def masked_head(instance: MaskedHeadInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``masked_head``: the distance of an entry from the nearest subset sum, within reach."""
    numbers = instance.width // cell.data.n_features
    return {"log_entry_error": nearest_sum_error(numbers, instance.scale)} if instance.scale <= REACH * numbers else {}


@leading_numbers.register
def best_subset(instance: RandomHeadsInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``random_heads`` for many heads, of independent errors: that of the best subset."""
    if instance.correlation:
        return {}
    return {"log_mask_error": best_average_error(cell.heads.n_heads, instance.outputs)}


def nearest_sum_error(count: int, scale: float) -> float:
    """Mean logarithm of the distance of a target from the nearest subset sum.

    Parameters
    ----------
    count
        k numbers, each a product of two uniforms on (−1, 1).
    scale
        The target is uniform on (−scale, scale).
    """
    # Given the numbers, the sum of a random subset has mean Σx/2 and variance Σx²/4.
    variance = count * _VARIANCE / 4.0
    offset = 1.0 + scale**2 / 3.0 / variance
    density = -0.5 * (np.log(2.0 * np.pi * variance) - _SPREAD / count + offset)
    return float(-np.euler_gamma - np.log(2.0) - count * np.log(2.0) - density)


def nearest_sum_rate(n_features: int) -> float:
    """Limit of what one hidden unit adds to :func:`nearest_sum_error`: a d-th of a number for each entry, -(ln 2)/d."""
    return float(-np.log(2.0) / n_features)


def best_average_error(n_heads: int, outputs: int) -> float:
    """Mean logarithm of the root mean square, over outputs, of the best average of a subset of standard normals.

    The mean of a random subset of H numbers has variance s²/H around their mean.
    """
    density = 0.5 * outputs * (np.log(n_heads / (2.0 * np.pi)) - 1.0)
    volume = 0.5 * outputs * np.log(np.pi) - special.gammaln(0.5 * outputs + 1.0)
    nearest = -(n_heads * np.log(2.0) + density + volume + np.euler_gamma) / outputs
    return float(nearest - 0.5 * np.log(outputs))


def best_average_rate(n_heads: int, outputs: int) -> float:
    """Derivative of :func:`best_average_error` in the number H of heads: -(ln 2)/outputs - 1/(2H)."""
    return float(-np.log(2.0) / outputs - 0.5 / n_heads)
