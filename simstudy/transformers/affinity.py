"""How near the weights of two heads lie, for any roles and layers, and whether that finds pairs that are labelled.

The matrices W_Q, W_K, W_V and W_O of a head are all (feature, dimension): what it reads of the residual stream, or
writes into it, lies in the span of their columns.

Index legend: i, j head, of any layer; d feature; p dimension of a head.
"""

import importlib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from simstudy.transformers.heads import TransformerHeads
from simstudy.transformers.subspaces import key_groups

ROLES = ("Q", "K", "V", "O")
MEASURES = ("projection_kernel", "normalised_kernel", "composition", "simple_composition")
_DTYPES = {"float64": "f8", "float32": "f4", "bfloat16": "f4", "float16": "f2"}
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
_NUMBERS_AT_A_TIME, _LEAST_ROWS = 1 << 24, 8
_BETWEEN = ("all", "across", "within", "forward")

Head = tuple[int, int]


def head_affinity(
    heads: TransformerHeads,
    labels: Mapping[Head, Any] | Iterable[tuple[Head, Head]] | None = None,
    *,
    between: str = "all",
    dtype: str = "float32",
    tolerance: float | None = None,
    device: str = "numpy",
) -> xr.Dataset:
    """Compare the weights of all two heads in every two roles, and say how well that finds labelled pairs.

    Parameters
    ----------
    heads : TransformerHeads
        From `read_heads`.
    labels : mapping from (layer, head) to a class, or pairs of (layer, head), optional
        Two heads of one class are a labelled pair; of pairs, the first is the source.
    between
        Pairs that are ranked: ``all``, ``across`` layers, ``within`` a layer, or ``forward``, the source in an earlier
        layer.  Two heads in one role are ranked once.
    dtype
        That weights are rounded to: ``float64``, ``float32``, ``bfloat16`` or ``float16``.  Of the last two, single
        precision computes.
    tolerance : float, optional
        Singular values below this part of the largest count as zero.  Rounding of the dtype by default.
    device
        ``numpy``, or one of torch's, as ``cuda`` and ``cpu``.

    Returns
    -------
    xarray.Dataset
        ``affinity`` along ``measure``, ``role_i``, ``role_j``, ``head_i`` and ``head_j``.  The projection kernel is
        ‖U'V‖² of orthonormal bases, the sum of the squared cosines of principal angles; of random subspaces it is
        rank_i rank_j / d on average.  Normalised, it is over (rank_i rank_j)^(1/2).  Composition is
        ‖W_O W_V' form‖ over the product of norms (Elhage et al. 2021) from O to Q, K and V; simple composition takes
        the two matrices themselves.  Heads that share a key or value count once: others are NaN there.
        With labels: ``roc_auc`` and ``pr_auc`` (average precision, by chance ``positive_share``), with jackknife
        standard errors over heads.

    Raises
    ------
    ValueError
        If an argument is none of those above, or a head is not there.
    """
    for name, value, known in (("between", between, _BETWEEN), ("dtype", dtype, tuple(_DTYPES))):
        if value not in known:
            raise ValueError(f"{name} = {value!r}; give one of {', '.join(known)}")
    n_heads = heads.query.shape[1]
    n_layers = 1 if heads.query.strides[0] == 0 else len(heads.query)  # layers that share their weights are one
    arrays = zip(ROLES, (heads.query, heads.key, heads.value, heads.output), strict=True)
    weights = {role: array[:n_layers] for role, array in arrays if array is not None}
    positive = _positive(labels, n_layers, n_heads)
    library = np if device == "numpy" else importlib.import_module("torch")
    stored = np.stack([_rounded(each.reshape(-1, *each.shape[2:]), dtype) for each in weights.values()])
    on = stored if device == "numpy" else library.as_tensor(stored).to(device)
    compute = _EPSILON["float64" if dtype == "float64" else "float32"]
    least = max(max(stored.shape[2:]) * compute, _EPSILON[dtype]) if tolerance is None else tolerance
    with threadpool_limits(1):  # most matrices are small
        affinity, ranks = _affinities(on, [ROLES.index(role) for role in weights], least, library)
    for role in set(weights) & {"K", "V"}:
        repeated = (key_groups(weights[role], weights[role][:, :, 0, :0]) != np.arange(n_heads)).ravel()
        affinity[:, ROLES.index(role), :, repeated] = np.nan
        affinity[:, :, ROLES.index(role), :, repeated] = np.nan
    layer, head = np.divmod(np.arange(len(ranks[0])), n_heads)
    names = [f"L{one}H{other}" for one, other in zip(layer, head, strict=True)]
    found = xr.Dataset(
        {
            "affinity": (("measure", "role_i", "role_j", "head_i", "head_j"), affinity),
            "rank": (("role_i", "head_i"), ranks),
        },
        {
            "measure": list(MEASURES),
            "role_i": list(ROLES),
            "role_j": list(ROLES),
            "head_i": names,
            "head_j": names,
            "layer_i": ("head_i", layer),
            "layer_j": ("head_j", layer),
        },
        {"features": stored.shape[2], "tolerance": least, "dtype": dtype, "device": device},
    )
    return found if positive is None else found.assign(_scores(affinity, positive, layer, between))


def affinity_stability(
    heads: TransformerHeads,
    labels: Mapping[Head, Any] | Iterable[tuple[Head, Head]] | None = None,
    *,
    dtypes: Iterable[str] = ("float64", "float32", "bfloat16", "float16"),
    tolerances: Iterable[float | None] = (None, 1e-6, 1e-3, 1e-1),
    devices: Iterable[str] = ("numpy",),
    between: str = "all",
) -> xr.Dataset:
    """Say how far the projection kernel moves with the dtype of weights, the tolerance of ranks and the device.

    Parameters
    ----------
    heads, labels, between
        As `head_affinity` takes them.
    dtypes, tolerances, devices
        Values of its arguments; differences are from the first of each.

    Returns
    -------
    xarray.Dataset
        Along device, dtype and tolerance (NaN: the default): ``largest_change`` of the normalised kernel,
        ``rank_correlation`` over all pairs, ``lost_ranks`` of all matrices together, and with labels
        ``largest_auc_change``.
    """
    axes: dict[str, Any] = {"device": list(devices), "dtype": list(dtypes), "tolerance": list(tolerances)}
    rows = []
    first: xr.Dataset | None = None
    for values in itertools.product(*axes.values()):
        found = head_affinity(heads, labels, between=between, **dict(zip(axes, values, strict=True)))
        first = found if first is None else first
        kernels = [each.affinity.sel(measure="normalised_kernel").values.ravel() for each in (first, found)]
        known = np.isfinite(kernels[0])
        rows.append(
            [
                float(np.abs(kernels[1] - kernels[0])[known].max()),
                spearmanr(*(each[known] for each in kernels))[0],
                float((first["rank"] - found["rank"]).sum()),
                np.nan if labels is None else float(np.abs(found.roc_auc - first.roc_auc).max()),
            ]
        )
    names = ("largest_change", "rank_correlation", "lost_ranks", "largest_auc_change")[: 3 if labels is None else 4]
    columns = np.array(rows).reshape(*(len(each) for each in axes.values()), -1)
    axes["tolerance"] = np.array(axes["tolerance"], float)
    return xr.Dataset({name: (tuple(axes), columns[..., k]) for k, name in enumerate(names)}, axes)


def _rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """Weights rounded to a type, as numbers that are computed with."""
    stored = np.ascontiguousarray(array, _DTYPES[dtype])
    if dtype == "bfloat16":  # the upper half of single precision, to the nearest even
        bits = stored.view("u4")
        stored = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view("f4")
    return stored if dtype == "float64" else stored.astype("f4")


def _affinities(weights: Any, roles: list[int], tolerance: float, library: Any) -> tuple[np.ndarray, np.ndarray]:
    """Affinities (measure, role, role, i, j), and ranks (role, i), of matrices (role, i, d, p); NaN of other roles."""
    n = weights.shape[1]
    affinity, ranks = np.full((len(MEASURES), 4, 4, n, n), np.nan), np.full((4, n), np.nan)
    bases, values, right = library.linalg.svd(weights, full_matrices=False)
    kept = values > tolerance * values[..., :1]
    ranks[roles], norms = _numbers(kept.sum(axis=-1)), np.sqrt(_numbers((values**2).sum(axis=-1)))
    every = np.ix_(roles, roles)
    affinity[0][every] = _products(bases * kept[..., None, :])
    affinity[1] = affinity[0] / np.sqrt(ranks[:, None, :, None] * ranks[:, None])
    affinity[3][every] = np.sqrt(_products(weights)) / (norms[:, None, :, None] * norms[:, None])
    if len(roles) == len(ROLES):
        # W_Q W_K' and so on, times what turns its columns: as large, and as near to one another.
        whole = weights @ (right.swapaxes(-1, -2) * values[..., None, :])[[1, 0, 3, 2]]
        norms = np.sqrt(_numbers((whole**2).sum(axis=(-1, -2))))
        affinity[2, 3, :3] = np.sqrt(_products(whole[3:], whole[:3]))[0] / (norms[3, :, None] * norms[:3, None])
    return affinity, ranks


def _products(left: Any, right: Any = None) -> np.ndarray:
    """Squared norms (a, b, i, j) ‖A_i' B_j‖² = tr(A_i A_i' B_j B_j') of matrices (a, i, d, p) and (b, j, d, p).

    One product of matrices for some rows of all A_i A_i' at a time, of which the upper triangle does.
    """
    sides = [each.reshape(-1, *each.shape[2:]) for each in (left, right) if each is not None]
    n, n_features, _ = sides[0].shape
    size = max(_LEAST_ROWS, _NUMBERS_AT_A_TIME // (n * n_features))
    total = sum(
        _numbers(rows[0] @ rows[-1].T)
        for start in range(0, n_features, size)
        for rows in [[_squares(each, start, start + size) for each in sides]]
    )
    shapes = [each.shape[:2] for each in (left, left if right is None else right)]
    return np.maximum(total, 0.0).reshape(*shapes[0], *shapes[1]).swapaxes(1, 2)


def _squares(matrices: Any, start: int, stop: int) -> Any:
    """Some rows (i, ...) of A_i A_i' from the diagonal on, what stands on both sides of it times the root of 2."""
    rows = matrices[:, start:stop] @ matrices[:, start:].swapaxes(1, 2)
    rows[:, :, stop - start :] *= 2**0.5
    return rows.reshape(len(matrices), -1)


def _numbers(array: Any) -> np.ndarray:
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array, np.float64)


def _positive(labels: Any, n_layers: int, n_heads: int) -> np.ndarray | None:
    """Labelled pairs (i, j), the source first."""
    if labels is None:
        return None
    size = n_layers * n_heads

    def place(head: Head) -> int:
        layer, number = head
        if not (0 <= layer < n_layers and 0 <= number < n_heads):
            raise ValueError(f"labels name head {head}; there are {n_layers} layers of {n_heads} heads")
        return layer * n_heads + number

    positive = np.zeros((size, size), bool)
    if isinstance(labels, Mapping):
        classes = [(place(head), label) for head, label in labels.items()]
        pairs: list[tuple[int, int]] = [(i, j) for i, one in classes for j, other in classes if one == other and i != j]
    else:
        pairs = [(place(one), place(other)) for one, other in labels]
    if not pairs:
        raise ValueError("labels have no pair of heads; give two heads of one class, or pairs of heads")
    positive[tuple(np.transpose(pairs))] = True
    return positive


def _scores(affinity: np.ndarray, positive: np.ndarray, layer: np.ndarray, between: str) -> dict[str, Any]:
    """Areas under both curves of every measure and two roles, with jackknife errors over heads."""
    first, second = np.divmod(np.arange(positive.size).reshape(positive.shape), len(positive))
    ranked = {
        "all": first != second,
        "across": layer[first] != layer[second],
        "within": (layer[first] == layer[second]) & (first != second),
        "forward": layer[first] < layer[second],
    }[between]
    shape = affinity.shape[:3]
    names = ("roc_auc", "pr_auc", "positive_share", "roc_auc_error", "pr_auc_error")
    found = np.full((len(names), *shape), np.nan)
    for m, a, b in np.ndindex(shape):
        # Two heads in one role are one pair, labelled if either order is.
        wanted = positive | positive.T if a == b else positive
        used = ranked & np.isfinite(affinity[m, a, b]) & ((first < second) | (a != b))
        if 0 < (true := used & wanted).sum() < used.sum():
            areas, parts = _areas(affinity[m, a, b], used, true)
            errors = np.sqrt((len(parts) - 1) * parts.var(axis=0))
            found[:, m, a, b] = *areas, true.sum() / used.sum(), *errors
    return {name: (("measure", "role_i", "role_j"), values) for name, values in zip(names, found, strict=True)}


def _areas(values: np.ndarray, used: np.ndarray, true: np.ndarray) -> tuple[tuple[float, float], np.ndarray]:
    """Areas from the values of used pairs (i, j), some true; then without each head in turn (head, area).

    Under the receiver operating characteristic, and under precision over recall (average precision).
    """
    at, ends = values[true], np.argwhere(true)

    def below(several: list[np.ndarray]) -> np.ndarray:
        """How many of each are below the true ones, and how many are not above: (each, 2, true)."""
        return np.array([[np.searchsorted(np.sort(each), at, side) for side in ("left", "right")] for each in several])

    def areas(counts: np.ndarray, n_pairs: int, n_true: int) -> tuple[float, float]:
        roc = (counts[0] - counts[1]).mean() / (n_pairs - n_true)
        return float(roc), float(np.mean((n_true - counts[1, 0]) / (n_pairs - counts[0, 0])))

    whole, sizes, parts = below([values[used], at]), np.array([used.sum(), true.sum()]), []
    for k in np.flatnonzero((used | used.T).any(axis=0)):
        own = [np.concatenate([values[k, each[k]], values[each[:, k], k]]) for each in (used, true)]
        n_pairs, n_true = sizes - [len(each) for each in own]
        if 0 < n_true < n_pairs:
            parts.append(areas((whole - below(own))[..., (ends != k).all(axis=1)], n_pairs, n_true))
    return areas(whole, *sizes), np.array(parts)
