"""Expectations over one key of any distribution by randomised quasi-Monte Carlo.

A scrambled Sobol sequence (Owen 1995) gives N keys that stand for the law of one key.  They are a law themselves
(:mod:`simstudy.theory.exact.equal_keys`), and the only error left is that of N points.  It is seen in how results
scatter over independent scramblings; what all of them have in common, the bias of a smooth function of averages, is of
the order of the squared error of one.

Index legend: N points; d features.
"""

from collections.abc import Callable
from functools import singledispatch

import numpy as np
import scipy
from scipy.special import gammaincinv, ndtri

from simstudy.design.settings.processes import GaussianKeys, Keys, MixtureKeys, SphereKeys, StudentKeys
from simstudy.theory.exact.equal_keys import EqualKeysLaw
from simstudy.theory.functions import Array, Function
from simstudy.theory.tilting import Heads, key_covariance

N_RANDOMISATIONS = 16
_SEED = 20240613
_LOG2_FEWEST, _LOG2_MOST = 10, 14
# Multiplications in all, which take some seconds; and numbers held at once.
_WORK = 4e10
_NUMBERS = 2e7
_TABLES = 7


def qmc_law(
    heads: Heads, keys: Keys, regression: Function, variance: Function, n_keys: int
) -> tuple[Callable[[int], EqualKeysLaw], str]:
    """Return the law of one key as a function of the number of its randomisation; else why there is none."""

    reason = _heavy_tails(heads, keys, regression, variance)

    def law(randomisation: int, log2_points: int) -> EqualKeysLaw:
        points = _points(keys, heads, randomisation, log2_points)
        return EqualKeysLaw(heads, points, regression(points), variance(points), n_keys)

    n_steps = law(0, _LOG2_FEWEST).n_steps()
    log2_points = min(_affordable(heads, n_steps), _LOG2_MOST)
    if not reason and log2_points < _LOG2_FEWEST:
        reason = (
            f"quasi-Monte Carlo with {n_steps} values of log t and 2^{_LOG2_FEWEST} points would take too long: "
            "kernels too narrow, or too many heads or queries"
        )
    return lambda randomisation: law(randomisation, log2_points), reason


def _heavy_tails(heads: Heads, keys: Keys, regression: Function, variance: Function) -> str:
    """Say why the scatter of a few randomisations would not show the error, or nothing."""
    if heads.logits == "dot_product" and not isinstance(keys, SphereKeys):
        return "quasi-Monte Carlo misses keys that are rare and have most of the weight of a dot-product head"
    if isinstance(keys, StudentKeys):
        # Squares of m^2 and of v need a mean.
        needed = max(4 * _degree(regression), 2 * _degree(variance))
        if keys.df <= needed:
            return f"quasi-Monte Carlo errors have no variance unless Student keys have more than {needed} degrees"
    return ""


def _degree(function: Function) -> int:
    return 2 if function.curvature.any() else int(function.gradient.any())


def _affordable(heads: Heads, n_steps: int) -> int:
    """Logarithm of the number of points that time and memory allow."""
    n_heads, n_queries = heads.projected_queries.shape[:2]
    pairs = max(1, n_heads * (n_heads - 1) // 2)
    by_time = _WORK / (N_RANDOMISATIONS * n_queries * pairs * _TABLES * n_steps**2)
    by_memory = _NUMBERS / (3 * n_heads * n_steps)
    return int(np.floor(np.log2(min(by_time, by_memory))))


def _points(keys: Keys, heads: Heads, randomisation: int, log2_points: int) -> Array:
    n_features = heads.projections.shape[1]
    sobol = scipy.stats.qmc.Sobol(n_uniforms(keys, n_features), rng=np.random.default_rng([_SEED, randomisation]))
    # Half a step of the generator away from 0, which has no quantile.
    uniforms = sobol.random_base2(log2_points) + 2.0**-31
    return keys_at(keys, uniforms, np.concatenate(list(heads.projections), axis=1))


def n_uniforms(keys: Keys, n_features: int) -> int:
    """Count the uniform numbers that one key takes."""
    return n_features + isinstance(keys, (StudentKeys, MixtureKeys))


def keys_at(keys: Keys, uniforms: Array, directions: Array) -> Array:
    """Keys (N, d) at points (N, n_uniforms) of the unit cube; the directions (d, k) take the first uniforms."""
    root = _root(keys, len(directions))
    # Rotations leave standard normal vectors what they are.
    basis = np.linalg.qr(root.T @ directions, mode="complete")[0]
    normals = ndtri(uniforms[:, -len(directions) :]) @ basis.T
    return _keys(keys, normals @ root.T, uniforms[:, 0])


def _root(keys: Keys, n_features: int) -> Array:
    if isinstance(keys, GaussianKeys):
        return np.asarray(np.linalg.cholesky(key_covariance(keys, n_features)), np.float64)
    return np.eye(n_features)


@singledispatch
def _keys(keys: Keys, normals: Array, uniform: Array) -> Array:
    """Keys from normal vectors (N, d) and one uniform number each."""
    raise TypeError(f"no distribution of keys is known as {keys!r}")


@_keys.register
def _(keys: GaussianKeys, normals: Array, uniform: Array) -> Array:
    return normals


@_keys.register
def _(keys: SphereKeys, normals: Array, uniform: Array) -> Array:
    return keys.radius * normals / np.linalg.norm(normals, axis=1, keepdims=True)


@_keys.register
def _(keys: StudentKeys, normals: Array, uniform: Array) -> Array:
    # Z (df / C)^(1/2) is Student-t if C is chi-square of df degrees, and has covariance df / (df - 2).
    half_chi_square = gammaincinv(keys.df / 2, uniform)
    return normals * np.sqrt((keys.df / 2 - 1) / half_chi_square)[:, None]


@_keys.register
def _(keys: MixtureKeys, normals: Array, uniform: Array) -> Array:
    centres = keys.separation * np.eye(keys.n_components, normals.shape[1])
    centres -= centres.mean(axis=0)
    return normals + centres[(keys.n_components * uniform).astype(int)]
