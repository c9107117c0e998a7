"""The shift that keeps a softmax in range: exponents of the weights, and which queries the fast formula serves.

Plain formula: w_i = 2^(rate (min_j score_j − score_i)), where score_i = |k_q − k_i|² and rate = 1/(2b² ln 2), or
score_i = −k_q·k_i and rate = 1/(b² ln 2).

Fast formula: up to a factor common to all keys, w_i = 2^(offset_i + slope_q·x_i + s_q), where

- for distances x_i = k_i − c, offset_i = −rate |x_i|² and slope_q = 2 rate (k_q − c), with c the mean of the keys:
  4 products replace 4 differences and 4 squares, of 21 operations for a weight;
- for dot products x_i = k_i, offset_i = 0 and slope_q = rate k_q.

offset_i + slope_q·x_i never exceeds reach_q = rate |k_q − c|², or |slope_q| max_i |k_i| (Cauchy and Schwarz).  So the
whole number s_q = ceiling − reach_q, an addition to a constant of `exp2`, excludes overflow without a pass over the
keys.  It does not exclude that all weights are tiny, which their sum tells.

The plain formula, in two passes over the keys, serves queries so far from the keys that the fast one would round
badly, and those at which the sum of weights is too small or undefined.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from simstudy.kernels.elementary import MAGIC_32, MAGIC_64
from simstudy.kernels.jit import inlined
from simstudy.kernels.tiles import TILE, fill_scores

# Index legend: i key, q query, k dimension of a head.


class Law(NamedTuple):
    """How weights follow from scores, in the precision of the keys unless said otherwise."""

    distance: bool  # or dot product
    rate: Any
    curvature: Any  # rate for distances, 0 for dot products
    farthest: Any  # reach up to which the fast formula errs little more than the rounding of its arguments
    magic: Any  # constant of `exp2`
    low: Any  # exponent that all smaller ones count as: negligible, but no product of two weights is denormal (slow)
    ceiling: Any  # exponent of the fast formula at its reach: sums of products of weights are finite
    least: float  # sum of weights from which the fast formula is accepted; float64


_RATES = {"distance": 0.5, "dot_product": 1.0}
_FARTHEST = {"distance": 128.0, "dot_product": 1024.0}
_RANGES = {"float32": (MAGIC_32, -58.0, 50.0, 2.0**-12), "float64": (MAGIC_64, -500.0, 400.0, 2.0**-400)}


@functools.lru_cache(maxsize=64)
def law_of(logits: str, bandwidth: float, real: np.dtype) -> Law:
    """Return the law of a kind of logits at a bandwidth b > 0."""
    # Divided twice, since b² may be out of range; where the rate is, the nearest key has all the weight.
    rate = real.type(min(_RATES[logits] / math.log(2.0) / bandwidth / bandwidth, float(np.finfo(real).max)))
    magic, low, ceiling, least = _RANGES[real.name]
    curvature = rate if logits == "distance" else real.type(0)
    numbers = (rate, curvature, real.type(_FARTHEST[logits]), magic, real.type(low), real.type(ceiling))
    return Law(logits == "distance", *numbers, least)


@inlined
def set_centre(keys, centre):
    """Set the mean of the keys (p, n)."""
    for k in range(len(keys)):
        total, x = keys.dtype.type(0), keys[k]
        for i in range(x.size):
            total += x[i]
        centre[k] = total / x.size


@inlined
def largest_norm(lowest, keys, row):
    """Return max_i |k_i|, using the memory of one row."""
    square = row.dtype.type(0)
    for start in range(0, keys.shape[1], TILE):
        size = min(TILE, keys.shape[1] - start)
        squares = row[:size]
        squares[:] = 0
        for k in range(len(keys)):
            x = keys[k, start : start + size]
            for i in range(size):
                squares[i] -= x[i] * x[i]
        square = max(square, -lowest(squares))
    return np.sqrt(square)


@inlined
def aim(lowest, keys, points, law, row, centre, slopes, limits, near):
    """Set centre (p,), slopes (p, Q), limits (2, Q) of `exp2` and near (Q,): whether the fast formula serves."""
    centre[:] = 0
    if law.distance:
        set_centre(keys, centre)
    largest = law.rate if law.distance else law.rate * largest_norm(lowest, keys, row)
    factor, reach, magics = law.rate + law.curvature, limits[0], limits[1]
    reach[:] = 0
    for k in range(centre.size):
        x, slope, middle = points[k], slopes[k], centre[k]
        for q in range(near.size):
            slope[q] = factor * (x[q] - middle)
            reach[q] += (x[q] - middle) * (x[q] - middle)
    served = 0
    for q in range(near.size):
        highest = largest * (reach[q] if law.distance else np.sqrt(reach[q]))
        shift = law.ceiling - np.ceil(highest)
        near[q] = highest <= law.farthest
        served += highest <= law.farthest
        # Where vectors hold queries the lane of one that is not near is computed all the same, and should then be zero:
        # neither denormal (slow) nor infinite.
        reach[q] = law.low - shift if highest <= law.farthest else 0
        magics[q] = law.magic + shift if highest <= law.farthest else 0
    for q in range(near.size if served < near.size else 0):
        if not near[q]:
            slopes[:, q] = 0


@inlined
def nearest_score(lowest, keys, point, distance, row):
    """Return the lowest score of the keys (p, n) at a query (p,), using the memory of one row."""
    nearest = row.dtype.type(np.inf)
    for start in range(0, keys.shape[1], TILE):
        size = min(TILE, keys.shape[1] - start)
        fill_scores(keys, start, size, point, distance, row)
        score = lowest(row[:size])
        # A NaN score need not be found: it makes its own weight NaN.
        nearest = score if score < nearest else nearest
    return nearest
