"""Errors of the average of random numbers, and of the best of all their subsets for many numbers.

The sums of all 2^k subsets of k random numbers lie around a point at random, with a density of 2^k times that of one
random subset, which is nearly Gaussian.  The distance from the point to the nearest of them is then that of a Poisson
process (Mertens 2001 on number partitioning), whose logarithm has the expectation given here: the mean of the distance
itself is that of the rare draws which the sums do not reach.

A target lies Z standard deviations from the mean of all subset sums of its k numbers, Z nearly standard normal, so that
its error is exponential with a mean proportional to exp(Z²/2): of a law without a mean, whose tail falls like 1/error.
The largest of M errors thus grows nearly like M, where errors all of one mean would grow like the logarithm of M.
"""

import numpy as np
from scipy import special

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import masks as settings
from simstudy.theory.functions import Array
from simstudy.theory.instances import instance_leading_order, instance_numbers
from simstudy.theory.leading import NEXT_TERM_LIMIT

# Source numbers are products of two uniforms on (−1, 1): their variance, and what the random size of their sum of
# squares takes from the mean logarithm of that sum, times k: half of E x⁴/(E x²)² − 1.
_VARIANCE = 1.0 / 9.0
_SPREAD = 0.5 * (81.0 / 25.0 - 1.0)
# The sum of the positive ones among k numbers has mean k/8: E max(x, 0) = 1/8, of variance 1/18 − 1/64.
_REACH, _REACH_VARIANCE = 1.0 / 8.0, 1.0 / 18.0 - 1.0 / 64.0

# Laws of the place of a target among subset sums, and where they and the logarithms of errors are summed.
_LAWS = ("normal", "sphere")

_GRID = np.linspace(-1.0, 1.0, 803)[1:-1]
_FARTHEST = 12.0
_ERRORS = np.linspace(-40.0, 10.0, 401)


@instance_numbers.register
def random_heads(instance: settings.RandomHeadsInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``random_heads`` that are exact: the error of the average of all heads."""
    variance = instance.correlation + (1.0 - instance.correlation) / cell.heads.n_heads
    # E ln of χ² over its degrees of freedom, one for each output.
    half = 0.5 * instance.outputs
    return {"log_average_error": float(0.5 * (special.digamma(half) - np.log(half) + np.log(variance)))}


@instance_leading_order.register
def masked_head(instance: settings.MaskedHeadInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``masked_head``: the distance of an entry from the nearest subset sum."""
    count, scale = instance.width // cell.data.n_features, instance.scale
    error = nearest_sum_error(count, scale)
    # What the formula leaves out: empty and single sums, targets beyond all, E 1/Σx².
    distance = np.exp(error + np.euler_gamma)
    crowd = distance / scale + count * max(1.0 - np.log(scale), 0.0) * distance
    left = crowd + _unreached_share(count, scale) * abs(error)
    left += scale**2 / 3.0 / (count * _VARIANCE / 4.0) * _SPREAD / count
    return _where_little_is_left("log_entry_error", error, left)


@instance_leading_order.register
def best_subset(instance: settings.RandomHeadsInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``random_heads`` for many heads, of independent errors: that of the best subset."""
    if instance.correlation:
        return {}
    n_heads, outputs = cell.heads.n_heads, instance.outputs
    error = best_average_error(n_heads, outputs)
    # What the formula leaves out: random mean and variance take 1/2H from each output, and k subsets more than at
    # random near the nearest take ln(1 + k).
    square = outputs * np.exp(2.0 * error)
    j = np.arange(1, n_heads)
    near = special.gammainc(0.5 * outputs, 0.5 * square * n_heads**2 / (4.0 * j * (1.0 - j / n_heads)))
    at_random = special.gammainc(0.5 * outputs, 0.5 * square * n_heads)
    crowd = float(special.comb(n_heads, j) @ (near - at_random))
    return _where_little_is_left("log_mask_error", error, 0.5 / n_heads + np.log1p(crowd) / outputs)


def _where_little_is_left(name: str, value: float, left: float) -> dict[str, float]:
    """Return a number by its name, if what its formula leaves out is a small share of it."""
    return {name: value} if left <= NEXT_TERM_LIMIT * abs(value) else {}


def nearest_sum_error(count: int, scale: float) -> float:
    """Mean logarithm of the distance of a target, uniform on (−scale, scale), from the nearest subset sum.

    Of k = count numbers, each a product of two uniforms on (−1, 1).
    """
    # Given the numbers, the sum of a random subset has mean Σx/2 and variance Σx²/4.
    variance = count * _VARIANCE / 4.0
    offset = 1.0 + scale**2 / 3.0 / variance
    density = -0.5 * (np.log(2.0 * np.pi * variance) - _SPREAD / count + offset)
    return float(-np.euler_gamma - np.log(2.0) - count * np.log(2.0) - density)


def _unreached_share(count: float, scale: float) -> float:
    """Share E (s − G)_+ / s of targets beyond the sum G of the positive numbers, by a gamma law of its moments."""
    size = _REACH_VARIANCE / _REACH
    shape, x = count * _REACH / size, scale / size
    return float(special.gammainc(shape, x) - count * _REACH / scale * special.gammainc(shape + 1.0, x))


def nearest_sum_rate(n_features: int) -> float:
    """Limit of what one hidden unit adds to :func:`nearest_sum_error`: formula :eq:`nearest-sum-rate`."""
    return float(-np.log(2.0) / n_features)


def best_average_error(n_heads: int, outputs: int) -> float:
    """Mean logarithm of the root mean square, over outputs, of the best average of a subset of normals."""
    density = 0.5 * outputs * (np.log(n_heads / (2.0 * np.pi)) - 1.0)
    volume = 0.5 * outputs * np.log(np.pi) - special.gammaln(0.5 * outputs + 1.0)
    nearest = -(n_heads * np.log(2.0) + density + volume + np.euler_gamma) / outputs
    return float(nearest - 0.5 * np.log(outputs))


def best_average_rate(n_heads: int, outputs: int) -> float:
    """Derivative of :func:`best_average_error` in the number H of heads: formula :eq:`best-average-rate`."""
    return float(-np.log(2.0) / outputs - 0.5 / n_heads)


@instance_leading_order.register
def masked_heads(instance: settings.MaskedHeadsInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``masked_heads``, where the two laws of Z agree on them."""
    d, scale = cell.data.n_features, instance.scale
    entries, units = 2 * d * d * instance.heads, instance.width // d
    errors = {law: largest_entry_error(units, entries, scale, law) for law in _LAWS}
    widths = {law: d * needed_units(instance.tolerance, entries, scale, law) for law in _LAWS}
    return {
        **_where_laws_agree("log_largest_error", errors, entries * _unreached_share(units, scale)),
        **_where_laws_agree("needed_width", widths, entries * _unreached_share(widths["normal"] / d, scale)),
    }


def _where_laws_agree(name: str, values: dict[str, float], unreached: float) -> dict[str, float]:
    """Return a number by the normal law of Z, if the other law nearly gives it and few entries are out of reach."""
    value = values["normal"]
    return _where_little_is_left(name, value, abs(value - values["sphere"]) + unreached * abs(value))


def missed_share(count: int, error: Array | float, scale: float, law: str = "normal") -> Array:
    """Probability that the best subset sum misses a target by more than each error; Z normal or on a sphere."""
    variance = count * _VARIANCE / 4.0
    if law == "normal":
        place, weight = _FARTHEST * _GRID, special.softmax(-0.5 * (_FARTHEST * _GRID) ** 2)
    else:
        place, weight = np.sqrt(count) * _GRID, special.softmax(0.5 * (count - 3) * np.log1p(-(_GRID**2)))
    spread = 1.0 + scale**2 / 3.0 / variance
    density = np.exp(-0.5 * spread * place**2) / np.sqrt(2.0 * np.pi * variance)
    return np.exp(-(2.0 ** (count + 1)) * np.multiply.outer(np.asarray(error), density)) @ weight


def largest_entry_error(count: int, entries: int, scale: float, law: str = "normal") -> float:
    """Mean logarithm of the largest of the independent errors of entries; arguments as in :func:`missed_share`."""
    exceeded = -np.expm1(entries * np.log1p(-missed_share(count, np.exp(_ERRORS), scale, law)))
    return float(_ERRORS[0] + np.trapezoid(exceeded, _ERRORS))


def needed_units(tolerance: float, entries: int, scale: float, law: str = "normal") -> float:
    """Mean of how many numbers, 2 to 32, the entry needs that needs most to err by no more than the tolerance."""
    missed = np.array([missed_share(count, tolerance, scale, law) for count in range(3, settings.MAX_UNITS)])
    # Two numbers reach next to no target.
    return float(3.0 + np.sum(-np.expm1(entries * np.log1p(-missed))))


def needed_width_rate(n_features: int, n_heads: int, units: int) -> float:
    """What each unit of ln H adds to the width that H heads need, about k units: formula :eq:`needed-width-rate`."""
    entries = 2.0 * n_features**2 * n_heads
    # In units of its mean at Z = 0, which falls like 2^-k √k, an error exceeds y with probability 1/(y √(π ln y)).
    return float(n_features / (np.log(2.0) - 0.5 / units) / (1.0 + 0.5 / np.log(entries)))
