"""One ensemble on the caller's own arrays, and the geometry of its heads: labelled in meaning, plain arrays in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from simstudy.arguments import real_array
from simstudy.data import geometry
from simstudy.kernels import nw_moments, project

LOGITS = ("distance", "dot_product")
KERNELS = ("gaussian",)


def nw_ensemble(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    projections: ArrayLike,
    bandwidth: float,
    *,
    logits: str = "distance",
    kernel: str = "gaussian",
    combination: ArrayLike | None = None,
) -> xr.Dataset:
    """Evaluate an ensemble of Nadaraya-Watson heads, that is of softmax attention heads.

    Head h weighs pair i by softmax_i of −|W_hᵀ(x − X_i)|²/(2b²) (``distance``) or of (W_hᵀx)·(W_hᵀX_i)/b²
    (``dot_product``; standard attention scaling is b = p^(1/4)): formula :eq:`nadaraya-watson` (Nadaraya 1964, Theory
    of Probability and its Applications 9, 141; Watson 1964, Sankhyā A 26, 359).

    Parameters
    ----------
    keys : (n, d)
        X_i.
    values : (n,)
        Y_i.
    queries : (Q, d)
        Points x at which to estimate.
    projections : (H, d, p), or (d, p) for a single head
        W_h.
    bandwidth
        b > 0; the softmax temperature is b².
    logits
        ``distance`` or ``dot_product``.
    kernel
        ``gaussian``.
    combination : (H,), optional
        Weights a_h of the heads in the ensemble; 1/H each by default.

    Returns
    -------
    xarray.Dataset
        ``estimate`` (query), ``head_estimate`` (query, head), ``weight_gram`` (query, head_i, head_j); computed in
        float64 whatever the precision given.  NaN where no logit is finite; an ``estimate`` beyond float64 is infinite.
        Given the keys, and with noise of constant variance σ², the covariance of the head estimates is σ² times the
        Gram matrix.

    Raises
    ------
    ValueError
        If an argument has the wrong shape, holds NaN, infinity or masked values, or is out of range.
    """
    weights = _projections(projections)
    n_heads, n_features, _ = weights.shape
    x = _array("keys", keys, ("n", n_features))
    y = _array("values", values, (len(x),))
    points = _array("queries", queries, ("Q", n_features))
    b = _bandwidth(bandwidth)
    _one_of("logits", logits, LOGITS)
    _one_of("kernel", kernel, KERNELS)
    a = np.full(n_heads, 1.0 / n_heads) if combination is None else _array("combination", combination, (n_heads,))
    x, points, weights, b_scaled = _in_common_units(x, points, weights, b, logits)
    projected = project(np.ascontiguousarray(x.T)[None], weights)
    # By the same sums as the keys, so that a query at a key has distance zero exactly.
    images = project(np.ascontiguousarray(points.T)[None], weights)[0].transpose(2, 0, 1)
    means, grams, _ = nw_moments(projected, y[None], np.ones((1, len(y))), images, b_scaled, logits)
    with np.errstate(over="ignore", invalid="ignore"):
        combined = means[0] @ a
    return xr.Dataset(
        {
            "estimate": ("query", combined, _about("combined estimate", "units of values", "sum_h a_h f_h(x_q)")),
            "head_estimate": (
                ("query", "head"), means[0], _about("estimate of each head", "units of values", "sum_i w_hi(x_q) Y_i"),
            ),
            "weight_gram": (
                ("query", "head_i", "head_j"), grams[0],
                _about("Gram matrix of the weights of heads", "1", "sum_n w_in(x_q) w_jn(x_q)"),
            ),
        },
        attrs={"logits": logits, "kernel": kernel, "bandwidth": b},
    )  # fmt: skip


def _in_common_units(
    keys: np.ndarray, queries: np.ndarray, projections: np.ndarray, bandwidth: float, logits: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return keys, queries, projections and bandwidth in units in which no product leaves float64.

    Numbers of ordinary size stay as they are.  Units are powers of four, so that nothing is rounded.
    """
    sizes = [float(np.abs(array).max()) for array in (keys, queries)]
    # Differences need one unit, products one each.
    units = [_unit(max(sizes))] * 2 if logits == "distance" else [_unit(size) for size in sizes]
    own = _unit(float(np.abs(projections).max()))
    scaled = bandwidth / own / math.sqrt(units[0]) / math.sqrt(units[1])
    return keys / units[0], queries / units[1], projections / own, max(scaled, math.ulp(0.0))


def _unit(largest: float) -> float:
    ordinary = 1e-50 < largest < 1e50 or not largest
    return 1.0 if ordinary else 4.0 ** math.floor(math.log2(largest) / 2.0)


def _about(meaning: str, units: str, formula: str) -> dict[str, str]:
    return {"long_name": meaning, "units": units, "formula": formula}


def principal_angles(projections: ArrayLike) -> xr.DataArray:
    """Return the principal angles between the subspaces of every two heads.

    Their cosines are the singular values of U_i' U_j (Björck and Golub 1973, Mathematics of Computation 27, 579).

    Parameters
    ----------
    projections : (H, d, p), or (d, p) for a single head
        Any real matrices of full column rank; they are orthonormalised first.

    Returns
    -------
    xarray.DataArray
        (head_i, head_j, angle), radians, ascending.

    Raises
    ------
    ValueError
        If the projections have the wrong shape or rank, or hold NaN or infinity.
    """
    angles = geometry.principal_angles(_full_rank(_projections(projections)))
    attributes = _about("principal angles between heads", "rad", "arccos of the singular values of U_i' U_j")
    return xr.DataArray(angles, dims=("head_i", "head_j", "angle"), name="principal_angles", attrs=attributes)


def head_diversity(projections: ArrayLike, bandwidth: float | None = None) -> xr.DataArray:
    """Return the diversity indices of an ensemble that follow from the geometry of its heads.

    Parameters
    ----------
    projections : (H, d, p), or (d, p) for a single head
        Any real matrices of full column rank; they are orthonormalised first.
    bandwidth
        b > 0; without it ``logdet`` is NaN.

    Returns
    -------
    xarray.DataArray
        (index), without unit; the names are coordinates, and formulas :eq:`chordal`, :eq:`participation`,
        :eq:`entropy`, :eq:`logdet`, :eq:`volume`, :eq:`vendi` and :eq:`min-angle` their definitions.

    Raises
    ------
    ValueError
        If the projections have the wrong shape or rank, hold NaN or infinity, or the bandwidth is not positive.
    """
    weights = _full_rank(_projections(projections))
    b = np.nan if bandwidth is None else _bandwidth(bandwidth)
    return xr.DataArray(
        geometry.diversity_indices(weights, b),
        dims="index",
        coords={"index": list(geometry.GEOMETRIC_INDICES)},
        name="hdi",
        attrs=_about("head diversity indices", "1", "see simstudy.data.geometry.diversity_indices"),
    )


def _array(name: str, given: ArrayLike, shape: tuple[int | str, ...]) -> np.ndarray:
    """Return an argument as float64, or refuse it; a letter in ``shape`` stands for any positive length."""
    wanted = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
    array = real_array(name, given, f"shape {wanted}")
    fits = array.ndim == len(shape) and all(
        have > 0 if isinstance(want, str) else have == want for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{name} has shape {array.shape}; give {wanted}, no length zero")
    array = np.ascontiguousarray(array, np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity; remove or replace such entries")
    return array


def _projections(given: ArrayLike) -> np.ndarray:
    array = real_array("projections", given, "(H, d, p)")
    weights = _array("projections", array[None] if array.ndim == 2 else array, ("H", "d", "p"))
    if weights.shape[2] > weights.shape[1]:
        d, p = weights.shape[1:]
        raise ValueError(f"projections have p = {p} columns in d = {d} features; give (H, d, p) with p <= d")
    return weights


def _full_rank(weights: np.ndarray) -> np.ndarray:
    ranks = np.linalg.matrix_rank(weights)
    if (ranks < weights.shape[2]).any():
        head = int(np.argmin(ranks))
        raise ValueError(
            f"projections of head {head} have rank {ranks[head]} < p = {weights.shape[2]}: it spans no p-space"
        )
    return weights


def _bandwidth(given: Any) -> float:
    number = real_array("bandwidth", given, "one positive number", "fiu")
    if number.ndim or not 0 < number < np.inf:
        raise ValueError(f"bandwidth = {given!r}; give one positive number")
    return float(number)


def _one_of(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ValueError(f"{name} = {given!r}; give one of {', '.join(known)}")
