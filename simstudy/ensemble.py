"""One ensemble on arrays of the caller, and the geometry of its heads, as labelled arrays."""

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from simstudy.arguments import LARGEST, positive, real_array
from simstudy.attention.mechanism import Inputs, evaluate
from simstudy.data import geometry
from simstudy.data.heads import common_part
from simstudy.design.settings.cell import Estimator
from simstudy.kernels import project

LOGITS = ("distance", "dot_product")


def nw_ensemble(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    projections: ArrayLike,
    bandwidth: float,
    *,
    logits: str = "distance",
    combination: ArrayLike | None = None,
    head_bandwidths: ArrayLike | None = None,
    query_projections: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    value_projections: ArrayLike | None = None,
    output_projections: ArrayLike | None = None,
) -> xr.Dataset:
    """Evaluate an ensemble of Nadaraya-Watson heads, that is of softmax attention heads.

    Head h weighs pair i by softmax_i of −|V_hᵀx − W_hᵀX_i|²/(2b²) (``distance``) or of (V_hᵀx)·(W_hᵀX_i)/b²
    (``dot_product``; standard attention scaling is b = p^(1/4)), with V_h = W_h unless query projections are given:
    formula :eq:`nadaraya-watson` (Nadaraya 1964, Theory of Probability and its Applications 9, 141; Watson 1964,
    Sankhyā A 26, 359).

    Parameters
    ----------
    keys : (n, d)
        X_i.
    values : (n,) or (n, v)
        Y_i, numbers or vectors.
    queries : (Q, d)
        Points x at which to estimate.
    projections : (H, d, p), or (d, p) for a single head
        W_h.
    bandwidth
        b > 0, standard deviation of the Gaussian kernel (temperature b²): ``bw`` of statsmodels, 0.3707 times
        ``bandwidth`` of R's ``ksmooth``.  Far from all keys an estimate is the value at the nearest key.
    logits
        ``distance`` or ``dot_product``.
    combination : (H,), optional
        Weights a_h of the heads in the ensemble; 1/H each by default.
    head_bandwidths : (H,), optional
        Positive factors on the bandwidth, one for each head.
    query_projections : (H, d, p), optional
        V_h.
    mask : (Q, n) of booleans, optional
        True where a query may attend to a key, at least one for each query; all by default.
    value_projections : (H, v, k), optional
        Head h averages the values (v = 1 if they are numbers) times this matrix, k numbers.
    output_projections : (H, v or k, c), optional
        The estimate is the sum over heads of averages times this matrix, c numbers; it replaces a combination.

    Returns
    -------
    xarray.Dataset
        ``estimate`` (query), ``head_estimate`` (query, head), ``weight_gram`` (query, head_i, head_j); computed in
        float64 for arguments of any precision, NaN where no logit is finite.  Given the keys, with noise of constant
        variance σ², the covariance of the head estimates is σ² times the Gram matrix.  Estimates of vectors have a
        further last dimension: ``component``, or ``output`` of an output projection.

    Raises
    ------
    ValueError
        If an argument has the wrong shape, holds NaN or masked values, or is out of range.
    """
    weights = _projections(projections)
    n_heads, n_features, _ = weights.shape
    x = _array("keys", keys, ("n", n_features))
    vectors = real_array("values", values, f"shape ({len(x)},) or ({len(x)}, v)").ndim == 2
    y = _array("values", values, (len(x), "v") if vectors else (len(x),))
    points = _array("queries", queries, ("Q", n_features))
    b = positive("bandwidth", bandwidth)
    if logits not in LOGITS:
        raise ValueError(f"logits = {logits!r}; give one of {', '.join(LOGITS)}")
    own = weights if query_projections is None else _array("query_projections", query_projections, weights.shape)
    if combination is not None and output_projections is not None:
        raise ValueError("combination with output_projections, which combine heads themselves; give one of them")
    a = np.full(n_heads, 1.0 / n_heads) if combination is None else _array("combination", combination, (n_heads,))
    width, w_v, w_o = y.shape[1] if vectors else 1, None, None
    if value_projections is not None:
        w_v = _array("value_projections", value_projections, (n_heads, width, "k"))
        width = w_v.shape[2]
    if output_projections is not None:
        w_o = _array("output_projections", output_projections, (n_heads, width, "c"))
    visible, shape = None, (len(points), len(x))
    if mask is not None:
        visible = real_array("mask", mask, f"booleans of shape {shape}", "biufcO")
        if visible.shape != shape or visible.dtype != bool:
            raise ValueError(f"mask is {visible.dtype} of shape {visible.shape}; give booleans of shape {shape}")
        if not (sees_any := visible.any(axis=1)).all():
            raise ValueError(f"mask lets query {int(np.argmin(sees_any))} see no key; let each see one at least")
    if head_bandwidths is not None:
        if not ((factors := _array("head_bandwidths", head_bandwidths, (n_heads,))) > 0.0).all():
            raise ValueError(f"head_bandwidths holds {factors.min():g}; give positive factors on the bandwidth")
        # A factor s on the bandwidth of a head equals projections divided by s.
        weights, own = weights / factors[:, None, None], own / factors[:, None, None]
    if logits == "distance" and np.array_equal(weights, own):
        # A common shift changes no distance; subtracting it avoids a loss of digits.
        x, points = x - (common := common_part(x)), points - common
    keyed = project(np.ascontiguousarray(x.T)[None], weights)
    # The same sums as for keys, so that a query at a key has distance exactly zero.
    images = project(np.ascontiguousarray(points.T)[None], own)[0].transpose(2, 0, 1)
    settings, columns = Estimator.model_validate({"bandwidth": 1.0, "logits": logits}), []
    for column in y.reshape(len(x), -1).T:
        inputs = Inputs(keyed, np.ascontiguousarray(column)[None], np.ones((1, len(x))), images)
        found = evaluate(settings, b, inputs, visible=visible)
        columns.append(np.clip(found.means[0], column.min(), column.max()))
    means, gram = np.stack(columns, axis=-1), np.asarray(found.gram)[0]
    if w_v is not None:
        means = np.einsum("qhv,hvk->qhk", means, w_v)
    if not vectors and w_v is None and w_o is None:
        means = means[:, :, 0]
    estimate = np.moveaxis(means, 1, -1) @ a if w_o is None else np.einsum("qhk,hkc->qc", means, w_o)
    last = ("component",) * (means.ndim - 2)
    heads = _attrs("estimate of each head", "units of values", "sum_i w_hi(x_q) Y_i")
    products = _attrs("Gram matrix of the weights of heads", "1", "sum_n w_in(x_q) w_jn(x_q)")
    combined, how = (last, "sum_h a_h f_h(x_q)") if w_o is None else (("output",), "sum_h O_h' f_h(x_q)")
    return xr.Dataset(
        {
            "estimate": (("query", *combined), estimate, _attrs("combined estimate", "units of values", how)),
            "head_estimate": (("query", "head", *last), means, heads),
            "weight_gram": (("query", "head_i", "head_j"), gram, products),
        },
        attrs={"logits": logits, "bandwidth": b},
    )


def _attrs(meaning: str, units: str, formula: str) -> dict[str, str]:
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
    angles = geometry.principal_angles(geometry.orthonormal_bases(_projections(projections, full_rank=True)))
    attributes = _attrs("principal angles between heads", "rad", "arccos of the singular values of U_i' U_j")
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
        (index), without unit; names are coordinates.  Definitions are formulas :eq:`chordal`, :eq:`participation`,
        :eq:`entropy`, :eq:`logdet`, :eq:`volume`, :eq:`vendi` and :eq:`min-angle`.

    Raises
    ------
    ValueError
        If the projections have the wrong shape or rank, hold NaN or infinity, or the bandwidth is not positive.
    """
    b = np.nan if bandwidth is None else positive("bandwidth", bandwidth)
    indices = geometry.diversity_indices(_projections(projections, full_rank=True), b)
    names, about = geometry.GEOMETRIC_INDICES, "see simstudy.data.geometry.diversity_indices"
    return xr.DataArray(indices, {"index": list(names)}, "index", "hdi", _attrs("head diversity indices", "1", about))


def _array(name: str, given: ArrayLike, shape: tuple[int | str, ...]) -> np.ndarray:
    """Return an argument as float64; ValueError if it does not fit ``shape`` (letters: any positive length)."""
    expected = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
    array = real_array(name, given, f"shape {expected}")
    fits = (have > 0 if isinstance(want, str) else have == want for have, want in zip(array.shape, shape, strict=False))
    if array.ndim != len(shape) or not all(fits):
        raise ValueError(f"{name} has shape {array.shape}; give {expected}, no length zero")
    array = np.ascontiguousarray(array, np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity; remove or replace such entries")
    if (largest := np.abs(array).max()) > LARGEST:
        raise ValueError(f"{name} holds {largest:g}, beyond {LARGEST:g}; give it in another unit")
    return array


def _projections(given: ArrayLike, full_rank: bool = False) -> np.ndarray:
    array = real_array("projections", given, "(H, d, p)")
    weights = _array("projections", array[None] if array.ndim == 2 else array, ("H", "d", "p"))
    _, d, p = weights.shape
    if p > d:
        raise ValueError(f"projections have p = {p} columns in d = {d} features; give (H, d, p) with p <= d")
    if full_rank and (ranks := np.linalg.matrix_rank(weights)).min() < p:
        fault = f"projections of head {ranks.argmin()} have rank {ranks.min()} < p = {p}"
        raise ValueError(f"{fault}; give p linearly independent columns")
    return weights
