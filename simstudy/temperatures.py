"""Mean squared error of one softmax head at any number of keys, exactly, and the sharpness at which it is least.

A key has one coordinate v along the query, and logits are sharpness times v: of keys on the unit sphere v is a cosine,
and the sharpness β is key length² over temperature; of Gaussian keys v is standard normal, and the sharpness is the
standard deviation of logits at the query.  A target is a sum of independent components.  Of each, three things are
known at v: its mean F(v), its mean square G(v), and its value T at the query, in units of the deviation of component c.
With K = e^{sharpness·v} and 1/S = int e^{-tS} dt (formulas :eq:`exact-mean` and :eq:`exact-product`)

    risk = sum_c s_c {T² - 2 T E[sum w F] + E[sum w² G] + E[sum_{i≠j} w_i w_j F_i F_j]} + E sum w².

On the sphere a random harmonic of degree l has F = P_l, G = T = 1 by the addition theorem.  Of Gaussian keys and a
random linear function, F = v, G = v² + d - 1, T = |x|, in units of 1/d.

Index legend: c component; N nodes of v; U nodes of log t.
"""

import bisect
import functools
import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

# Sums over e^{-tS} (tS)² are 1 within 1e-7 at this step of log t, for every S.
_STEP = 0.4
# What is left out at either end of log t.
_FIRST, _LAST = 1e-9, 50.0
_PANEL = np.polynomial.legendre.leggauss(16)
# Beyond, 1/S is not resolved.
SELF_CHECK = 1e-5


class Problem(NamedTuple):
    """Keys, query and target of one head."""

    keys: Literal["unit", "gaussian"]  # ``unit``: uniform on the unit sphere; ``gaussian``: N(0, I)
    dimension: int  # Of keys, d
    signal: float = 1.0  # Variance of the target over keys; the noise has variance 1
    # Of random harmonics of degree 1, 2, … in that variance; of Gaussian keys the target is linear: (1,)
    shares: tuple[float, ...] = (1.0,)
    query: float = 1.0  # Length of the query over √d, with Gaussian keys


@functools.lru_cache(maxsize=4096)
def exact_risk(problem: Problem, sharpness: float, n_keys: int) -> float:
    """Risk of a head at any number of keys, over keys, noise and random targets; a few milliseconds.

    Logits are the sharpness times the coordinate along the query: β on the sphere, their standard deviation otherwise.
    ArithmeticError if the same integrals give Σ w or (Σ w)², which are 1, with an error above `SELF_CHECK`.
    """
    nodes, weights = _nodes(problem, sharpness)
    log_kernel = sharpness * nodes
    log_t = _grid(log_kernel, weights, n_keys)
    z = np.exp(np.minimum(log_t[:, None] + log_kernel, math.log(700.0)))
    left = np.exp(-z)
    first, second, lost = z * left, z * z * left, -np.expm1(-z) @ weights
    log_power = np.log1p(-np.minimum(lost, 1.0 - 1e-16))
    one = _STEP * n_keys * np.exp((n_keys - 1) * log_power)
    two = _STEP * n_keys * (n_keys - 1) * np.exp((n_keys - 2) * log_power)

    def twice(mean: Array, square: Array) -> float:
        """E (Σ w X)², X of given mean and mean square at the nodes."""
        return float(one @ (second @ (weights * square)) + two @ (first @ (weights * mean)) ** 2)

    ones = np.ones_like(nodes)
    checks = float(one @ (first @ weights)), twice(ones, ones)
    if max(abs(check - 1.0) for check in checks) > SELF_CHECK:
        raise ArithmeticError(f"{problem}, sharpness {sharpness:g}, {n_keys} keys: the integrals of 1 give {checks}")
    risk = float(one @ (second @ weights))
    for scale, target, mean, square in _components(problem, nodes):
        along = float(one @ (first @ (weights * mean)))
        risk += scale * (target**2 - 2.0 * target * along + twice(mean, square))
    return risk


@functools.lru_cache(maxsize=4096)
def best_sharpness(problem: Problem, n_keys: int) -> float:
    """Sharpness of least risk at n keys, by exact theory."""
    from scipy import optimize  # its import takes a tenth of a second, which few studies need

    d, n = problem.dimension, float(n_keys)
    # The textbook's optimum grows with n times the signal: this is far beyond it.
    power = (n * max(problem.signal / 4.0, 1.0)) ** (2.0 / (d + 3.0))
    largest = 30.0 * (d + power) if problem.keys == "unit" else 1.0 + math.sqrt(2.0 * math.log(n))
    found = optimize.minimize_scalar(
        lambda x: exact_risk(problem, math.exp(x), n_keys),
        bounds=(math.log(0.02), math.log(largest)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(found.x)


def log_bessel(order: float, x: float) -> float:
    """Return ln (e^{-x} I_order(x)), by the series in x² where the function is too small for a float."""
    scaled = float(special.ive(order, x))
    if scaled > 0.0:
        return math.log(scaled)
    power = order * math.log(x / 2.0) - float(special.gammaln(order + 1.0))
    return power + math.log(special.hyp0f1(order + 1.0, x**2 / 4.0)) - x


def log_mean_kernel(dimension: int, sharpness: float) -> float:
    """Return ln E e^{sharpness·(cosine − 1)} of uniform directions."""
    order = dimension / 2.0 - 1.0
    power = order * math.log(2.0 / sharpness)
    return float(special.gammaln(order + 1.0) + power + log_bessel(order, sharpness))


def _components(problem: Problem, nodes: Array) -> list[tuple[float, float, Array, Array]]:
    """Of each independent part of the target: its scale, its value at the query, its mean and mean square at nodes."""
    d, signal = problem.dimension, problem.signal
    if problem.keys == "gaussian":
        return [(signal / d, problem.query * math.sqrt(d), nodes, nodes**2 + d - 1.0)]
    power = (d - 3.0) / 2.0
    return [
        (
            signal * share,
            1.0,
            special.eval_jacobi(degree, power, power, nodes) / special.eval_jacobi(degree, power, power, 1.0),
            np.ones_like(nodes),
        )
        for degree, share in enumerate(problem.shares, start=1)
        if share
    ]


def _nodes(problem: Problem, sharpness: float) -> tuple[Array, Array]:
    """Nodes of v and their probabilities: panels narrower than what e^{-tK} needs."""
    unit = problem.keys == "unit"
    low, high = (0.0, math.pi) if unit else (-10.0, 10.0 + 2.0 * sharpness)
    ends = np.linspace(low, high, 1 + max(24, math.ceil(0.3 * sharpness * (high - low))))
    middle, half = (ends[1:] + ends[:-1]) / 2.0, np.diff(ends) / 2.0
    places = (middle[:, None] + half[:, None] * _PANEL[0]).ravel()
    log_density = (problem.dimension - 2.0) * np.log(np.sin(places)) if unit else -0.5 * places**2
    weights = np.exp(log_density) * (half[:, None] * _PANEL[1]).ravel()
    kept = weights > 1e-300
    return (np.cos(places) if unit else places)[kept], weights[kept] / weights.sum()


def _grid(log_kernel: Array, weights: Array, n_keys: int) -> Array:
    """Nodes of log t: from where tS is small up to where no key is left."""
    low = math.log(_FIRST / n_keys) - float(special.logsumexp(log_kernel, b=weights))
    high = math.log(_LAST) - float(log_kernel.min())
    coarse = np.arange(low, high, 2.0)

    def lost(log_t: float) -> float:
        """Keys that are gone at t: it grows with t."""
        return n_keys * float(-np.expm1(-np.exp(np.minimum(log_t + log_kernel, math.log(700.0)))) @ weights)

    enough = bisect.bisect_right(coarse, _LAST, key=lost)
    return np.arange(low, coarse[enough] + 2.0 if enough < len(coarse) else high, _STEP)
