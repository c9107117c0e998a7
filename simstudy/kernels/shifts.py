"""Shifts that keep the exponents of a softmax in range: known beforehand, or from the largest logit so far.

Weights are w_i = 2^(rate (min_j s_j − s_i)) of scores s_i = |k_q − k_i|² and rate = 1/(2b² ln 2), or of s_i = −k_q·k_i
and rate = 1/(b² ln 2).

Near the keys, up to a factor common to all of them, w_i = 2^(offset_i + slope_q·x_i + s_q), where

- for distances x_i = k_i − c, offset_i = −rate |x_i|² and slope_q = 2 rate (k_q − c), with c the mean of the keys:
  4 products replace 4 differences and 4 squares, of 21 operations for a weight;
- for dot products x_i = k_i, offset_i = 0 and slope_q = rate k_q.

offset_i + slope_q·x_i never exceeds reach_q = rate |k_q − c|², or |slope_q| max_i |k_i| (Cauchy and Schwarz).  So the
integer s_q = ceiling − ⌈reach_q⌉, added to a constant of `exp2`, excludes overflow; if all are tiny, so is their sum.

Far from the keys, or if all weights are tiny, scores are computed as defined, and sums are relative to the nearest key
so far: they are rescaled when a nearer key is found.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from simstudy.kernels.elementary import MAGIC_32, MAGIC_64
from simstudy.kernels.jit import inlined
from simstudy.kernels.tiles import TILE, highest_of

# Index legend: i key, q query, k dimension of a head.


class SoftmaxScale(NamedTuple):
    """Parameters that turn scores into weights, in the precision of the keys unless stated otherwise."""

    distance: bool  # False for dot products
    rate: Any
    curvature: Any  # rate for distances, 0 for dot products
    farthest: Any  # largest reach at which errors of slopes are near the rounding of their arguments
    magic: Any  # constant of `exp2`
    low: Any  # replaces smaller exponents: negligible, but products of weights are not subnormal (slow)
    negligible: Any  # 2^low
    ceiling: Any  # exponent at the reach, with which sums of products of weights are finite
    depth: Any  # largest distance of the largest exponent from the ceiling
    least: float  # least sum of weights that is not tiny; float64


_RATES = {"distance": 0.5, "dot_product": 1.0}
_FARTHEST = {"distance": 128.0, "dot_product": 1024.0}
_RANGES = {"float32": (MAGIC_32, -58.0, 50.0, 62.0, 2.0**-14), "float64": (MAGIC_64, -500.0, 400.0, 800.0, 2.0**-402)}


@functools.lru_cache(maxsize=64)
def scale_of(logits: str, bandwidth: float, real: np.dtype) -> SoftmaxScale:
    """Return the scale of a kind of logits at a bandwidth b > 0."""
    # Divided twice, as b² may be out of range.  Beyond the range of rates, one key has all weight, or all the same.
    rate = _RATES[logits] / math.log(2.0) / bandwidth / bandwidth
    rate = real.type(min(max(rate, 1e-30), float(np.finfo(real).max)))
    magic, *numbers, least = _RANGES[real.name]
    curvature = rate if logits == "distance" else real.type(0)
    low, ceiling, depth = (real.type(x) for x in numbers)
    range_of = magic, low, real.type(2) ** low, ceiling, depth, least
    return SoftmaxScale(logits == "distance", rate, curvature, real.type(_FARTHEST[logits]), *range_of)


@inlined
def _largest_norm(keys, row):
    # Return max_i |k_i|, with one row as memory.  It is NaN if a key is not finite; then no shift is known, as `exp2`
    # requires NaN without payload.
    square = total = row.dtype.type(0)
    for start in range(0, keys.shape[1], TILE):
        size = min(TILE, keys.shape[1] - start)
        squares = row[:size]
        squares[:] = 0
        stop, fours = start + size, len(keys) // 4 * 4
        for k in range(0, fours, 4):
            x0, x1 = keys[k, start:stop], keys[k + 1, start:stop]
            x2, x3 = keys[k + 2, start:stop], keys[k + 3, start:stop]
            for i in range(size):
                squares[i] += (x0[i] * x0[i] + x1[i] * x1[i]) + (x2[i] * x2[i] + x3[i] * x3[i])
        for k in range(fours, len(keys)):
            x = keys[k, start:stop]
            for i in range(size):
                squares[i] += x[i] * x[i]
        for i in range(size):
            total += squares[i]
        square = max(square, highest_of(row, size))
    return np.sqrt(square) + 0 * total


@inlined
def set_shifts(keys, points, scale, row, centre, slopes, limits, near):
    """Set centre (p,), slopes (p, Q), limits (2, Q) of `exp2`, and near (Q,), true if the shift is known."""
    centre[:] = 0
    # Dot products in many dimensions are mostly far below the bound.  As a rule of thumb, their standard deviation is
    # the bound divided by the root of the dimension.
    farthest = scale.farthest
    if scale.distance:
        for k in range(len(keys)):
            total, x = keys.dtype.type(0), keys[k]
            for i in range(x.size):
                total += x[i]
            centre[k] = total / x.size
    else:
        farthest = min(farthest, scale.depth / (1 - 2 / (2 + math.sqrt(len(keys)))))
    largest = scale.rate if scale.distance else scale.rate * _largest_norm(keys, row)
    factor, reach, magics = scale.rate + scale.curvature, limits[0], limits[1]
    reach[:] = 0
    for k in range(centre.size):
        x, slope, middle = points[k], slopes[k], centre[k]
        for q in range(near.size):
            slope[q] = factor * (x[q] - middle)
            reach[q] += (x[q] - middle) * (x[q] - middle)
    for q in range(near.size):
        highest = largest * (reach[q] if scale.distance else np.sqrt(reach[q]))
        near[q] = highest <= farthest
        shift = scale.ceiling - np.ceil(highest) if highest <= farthest else scale.rate * 0
        reach[q] = scale.low - shift
        magics[q] = scale.magic + shift
