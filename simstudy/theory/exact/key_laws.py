"""Keys of every distribution of the schema as functions of independent uniform numbers.

Index legend: N points; d features.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np
from scipy.special import gammaincinv, ndtri

from simstudy.design.settings import GaussianKeys, Keys, MixtureKeys, SphereKeys, StudentKeys
from simstudy.theory.functions import Array
from simstudy.theory.tilting import key_covariance


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
