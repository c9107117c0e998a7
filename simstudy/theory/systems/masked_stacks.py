"""Largest error of the best masks of many heads, and the width that does for all of them.

A target lies Z standard deviations from the mean of all subset sums of its k numbers, Z nearly standard normal, so that
its error is exponential with a mean proportional to exp(Z²/2): of a law without a mean, whose tail falls like 1/error.
The largest of M errors thus grows nearly like M, where errors all of one mean would grow like the logarithm of M.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.masked_stacks import MAX_UNITS, MaskedHeadsInstance
from simstudy.theory.instances import leading_numbers
from simstudy.theory.leading import NEXT_TERM_LIMIT
from simstudy.theory.systems.masks import NUMBER_VARIANCE, unreached_share

Array = NDArray[np.float64]

LAWS = ("normal", "sphere")

_GRID = np.linspace(-1.0, 1.0, 803)[1:-1]
_FARTHEST = 12.0
_ERRORS = np.linspace(-40.0, 10.0, 401)


@leading_numbers.register
def masked_heads(instance: MaskedHeadsInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``masked_heads``, where the two laws of Z agree on them."""
    d, scale = cell.data.n_features, instance.scale
    entries, units = 2 * d * d * instance.heads, instance.width // d
    errors = {law: largest_entry_error(units, entries, scale, law) for law in LAWS}
    widths = {law: d * needed_units(instance.tolerance, entries, scale, law) for law in LAWS}
    return {
        **_where_laws_agree("log_largest_error", errors, entries * unreached_share(units, scale)),
        **_where_laws_agree("needed_width", widths, entries * unreached_share(widths["normal"] / d, scale)),
    }


def _where_laws_agree(name: str, values: dict[str, float], unreached: float) -> dict[str, float]:
    """Return a number by the normal law of Z, if the other law nearly gives it and few entries are out of reach."""
    value = values["normal"]
    left = abs(value - values["sphere"]) + unreached * abs(value)
    return {name: value} if left <= NEXT_TERM_LIMIT * abs(value) else {}


def missed_share(count: int, error: Array | float, scale: float, law: str = "normal") -> Array:
    """Probability that the best of all subset sums misses a target by more than an error.

    Parameters
    ----------
    count : int
        k numbers, each a product of two uniforms on (−1, 1).
    error : array of float
        The error, of any shape.
    scale : float
        The target is uniform on (−scale, scale).
    law : {"normal", "sphere"}
        Law of Z for a target at 0: standard normal, as for k large, or that of a coordinate of a point of length √k
        that is uniform on a sphere, as if the k numbers were normal, for k of at least 3.

    Returns
    -------
    array of float
        Of the shape of ``error``.
    """
    variance = count * NUMBER_VARIANCE / 4.0
    if law == "normal":
        place, weight = _FARTHEST * _GRID, special.softmax(-0.5 * (_FARTHEST * _GRID) ** 2)
    else:
        place, weight = np.sqrt(count) * _GRID, special.softmax(0.5 * (count - 3) * np.log1p(-(_GRID**2)))
    spread = 1.0 + scale**2 / 3.0 / variance
    density = np.exp(-0.5 * spread * place**2) / np.sqrt(2.0 * np.pi * variance)
    return np.exp(-(2.0 ** (count + 1)) * np.multiply.outer(np.asarray(error), density)) @ weight


def largest_entry_error(count: int, entries: int, scale: float, law: str = "normal") -> float:
    """Mean logarithm of the largest of independent errors of so many entries; other arguments as `missed_share`."""
    exceeded = -np.expm1(entries * np.log1p(-missed_share(count, np.exp(_ERRORS), scale, law)))
    return float(_ERRORS[0] + np.trapezoid(exceeded, _ERRORS))


def needed_units(tolerance: float, entries: int, scale: float, law: str = "normal") -> float:
    """Mean of how many numbers, 2 to 32, the entry needs that needs most; other arguments as `missed_share`."""
    missed = np.array([missed_share(count, tolerance, scale, law) for count in range(3, MAX_UNITS)])
    # Two numbers reach next to no target.
    return float(3.0 + np.sum(-np.expm1(entries * np.log1p(-missed))))


def needed_width_rate(n_features: int, n_heads: int, units: int) -> float:
    """What each unit of ln H adds to the width that H heads need: formula :eq:`needed-width-rate`.

    Parameters
    ----------
    n_features : int
        d.
    n_heads : int
        H.
    units : int
        Numbers k for each entry, about which this is the rate.

    Returns
    -------
    float
        Hidden units of each source for each unit of a natural logarithm.
    """
    entries = 2.0 * n_features**2 * n_heads
    # In units of its mean at Z = 0, which falls like 2^-k √k, an error exceeds y with probability 1/(y √(π ln y)).
    return float(n_features / (np.log(2.0) - 0.5 / units) / (1.0 + 0.5 / np.log(entries)))
