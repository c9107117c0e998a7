"""Transformations of keys, values and queries before logits: pure functions from `Inputs` to `Inputs`."""

from typing import NamedTuple

import numpy as np

from simstudy.design.settings.choices import LowRankTransformation, MergeTransformation, Transformation

# Index legend: r replicate, q query, h head, k dimension of a head, i key.


class Inputs(NamedTuple):
    """Keys (r, h, k, i), values (r, i), their variances or None, and queries (q, h, k) or (r, q, h, k)."""

    keys: np.ndarray
    values: np.ndarray
    variances: np.ndarray | None
    queries: np.ndarray


def transform(transformation: Transformation, inputs: Inputs) -> Inputs:
    """Return transformed inputs."""
    keys, values, variances, queries = inputs
    match transformation:
        case MergeTransformation():
            (keys, sizes), (values, _) = (_chunk_means(each, transformation.stride) for each in (keys, values))
            if variances is not None:
                variances = _chunk_means(variances, transformation.stride)[0] / sizes
            return Inputs(keys, values, variances, queries)
        case LowRankTransformation():
            real = keys.astype(np.float64)
            points = np.broadcast_to(queries, (len(keys), *queries.shape[-3:])).swapaxes(1, 2)
            rank, method = transformation.rank, transformation.method
            left, right = compressions(real.swapaxes(-1, -2), points.astype(np.float64), rank, method)
            compressed = (left.swapaxes(-1, -2) @ real).astype(keys.dtype)
            return inputs._replace(keys=compressed, queries=(points @ right).swapaxes(1, 2).astype(queries.dtype))
    raise TypeError(f"no transformation {transformation!r}")


def _chunk_means(x: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return means of consecutive chunks along the last axis, of which the last may be shorter, and chunk sizes."""
    starts = np.arange(0, x.shape[-1], length)
    sizes = np.diff(starts, append=x.shape[-1])
    return np.add.reduceat(x, starts, axis=-1) / sizes.astype(x.dtype), sizes


def multiply_heads(inputs: Inputs, logits: str) -> Inputs:
    """Return inputs of one head whose logits are the ``sum`` or ``mean`` of the logits of all heads."""
    n_replicates, n_heads, _, n_keys = inputs.keys.shape
    root = inputs.keys.dtype.type(1.0 if logits == "sum" else np.sqrt(1.0 / n_heads))
    queries = (root * inputs.queries).reshape(*inputs.queries.shape[:-2], 1, -1)
    return inputs._replace(keys=(root * inputs.keys).reshape(n_replicates, 1, -1, n_keys), queries=queries)


def compressions(keys: np.ndarray, queries: np.ndarray, rank: int, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Return A, B (..., k, R) with K A Bᵀ Qᵀ near K Qᵀ: optimal, or singular vectors of K, or of K stacked on Q."""
    if method != "scores":
        matrix = keys if method == "keys" else np.concatenate([keys, queries], axis=-2)
        directions = np.linalg.svd(matrix, full_matrices=False)[2][..., :rank, :].swapaxes(-1, -2)
        return directions, directions
    _, sizes, turned = np.linalg.svd(keys, full_matrices=False)
    # The left singular vectors of K Qᵀ are those of K times those of this small matrix.
    small = sizes[..., None] * (turned @ queries.swapaxes(-1, -2))
    leading = np.linalg.svd(small, full_matrices=False)[0][..., :rank]
    basis = turned.swapaxes(-1, -2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return basis @ (leading / sizes[..., None]), basis @ (leading * sizes[..., None])
