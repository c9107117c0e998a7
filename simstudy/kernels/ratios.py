"""From sums of weights to what they estimate: shares of the sum, and its logarithm."""

from __future__ import annotations

import math

import numpy as np

from simstudy.kernels.jit import inlined

# Index legend: h and g head, k dimension of a head; of one query.

_LN_2 = math.log(2.0)


@inlined
def mass_of(sums, near):
    """Return the sum of the weights sums[0], NaN if they are undefined; near: the fast formula served."""
    # In the careful formula the nearest key has weight 1, unless no logit is finite.
    return sums[0] if near or sums[0] >= 0.5 else np.nan


@inlined
def normalise(sums, products, largest, near, means, grams):
    """Set means (h,) and grams (1, h, g), if any, from sums (h, 2) and products; sums[h, 0] becomes its inverse."""
    for h in range(0 if len(grams) else means.size):
        means[h] = sums[h, 1] / mass_of(sums[h], near[h])
    for h in range(means.size if len(grams) else 0):
        mass = mass_of(sums[h], near[h])
        means[h] = sums[h, 1] / mass
        # Kept for later heads, since divisions are slow.
        sums[h, 0] = 1 / mass
        for g in range(h + 1):
            grams[0, h, g] = grams[0, g, h] = products[h, g] * largest * (sums[h, 0] * sums[g, 0])


@inlined
def log_mass(mass, near, nearest, low, point, centre, law):
    """Return ln Σ_i exp(logit_i) from the sum of the weights of either formula, the fast one if ``near``.

    ``nearest`` is the lowest score, ``low`` the first limit that `aim` sets; of one head at a query (p,).
    """
    # A weight is 2^shift exp(logit), and in the fast formula 2^ceiling times that.
    shift = np.float64(law.rate) * np.float64(nearest)
    if near:
        # Multiplied exactly, since the logarithm of the mass would round away what its difference from others says.
        mass = math.ldexp(mass, -int(law.ceiling))
        shift = np.float64(law.low - law.ceiling - low)
        for k in range(point.size):
            shift += np.float64(law.curvature) * np.float64(point[k] - centre[k]) ** 2
    return np.log(mass) - _LN_2 * shift
