"""What keys, values and queries go through before logits: pure functions from `Inputs` to `Inputs`."""

from functools import singledispatch
from typing import NamedTuple

import numpy as np

from simstudy.design.settings.mechanisms import (
    LowRankTransformation,
    MergeTransformation,
    MixtureTransformation,
    Transformation,
)

# Index legend: r replicate, q query, h head, k dimension of a head, i key, l level.


class Inputs(NamedTuple):
    """Keys (r, h, k, i), values (r, i), their variances if means, and queries (q, h, k) or (r, q, h, k) of heads."""

    keys: np.ndarray
    values: np.ndarray
    variances: np.ndarray | None
    queries: np.ndarray


@singledispatch
def transform(transformation: Transformation, inputs: Inputs) -> Inputs:
    """Return the inputs that a transformation makes of others."""
    raise TypeError(f"no transformation {transformation!r}")


def chunk_means(x: np.ndarray, length: int) -> np.ndarray:
    """Return the means of consecutive chunks along the last axis, the last chunk being perhaps shorter."""
    starts = np.arange(0, x.shape[-1], length)
    return np.add.reduceat(x, starts, axis=-1) / _sizes(x.shape[-1], length).astype(x.dtype)


def _sizes(n_keys: int, length: int) -> np.ndarray:
    starts = np.arange(0, n_keys, length)
    return np.minimum(length, n_keys - starts)


@transform.register
def _(merge: MergeTransformation, inputs: Inputs) -> Inputs:
    variances = inputs.variances
    if variances is not None:
        variances = chunk_means(variances, merge.stride) / _sizes(variances.shape[-1], merge.stride)
    keys, values = chunk_means(inputs.keys, merge.stride), chunk_means(inputs.values, merge.stride)
    return Inputs(keys, values, variances, inputs.queries)


@transform.register
def _(mixture: MixtureTransformation, inputs: Inputs) -> Inputs:
    """Concatenate the dimensions of all levels: distances and products add over dimensions, and so over levels."""
    coefficients = mixture.decay ** np.arange(mixture.levels)
    roots = np.sqrt(coefficients / coefficients.sum()).astype(inputs.keys.dtype)
    n = inputs.keys.shape[-1]
    levels = [
        root * chunk_means(inputs.keys, 2**level)[..., np.arange(n) // 2**level] for level, root in enumerate(roots)
    ]
    queries = np.concatenate([root * inputs.queries for root in roots], axis=-1)
    return inputs._replace(keys=np.concatenate(levels, axis=2), queries=queries)


def multiply_heads(inputs: Inputs, logits: str) -> Inputs:
    """Return the inputs of one head whose logits are the ``sum`` or ``mean`` of those of all heads."""
    n_replicates, n_heads, _, n_keys = inputs.keys.shape
    root = inputs.keys.dtype.type(1.0 if logits == "sum" else np.sqrt(1.0 / n_heads))
    keys = (root * inputs.keys).reshape(n_replicates, 1, -1, n_keys)
    queries = (root * inputs.queries).reshape(*inputs.queries.shape[:-2], 1, -1)
    return inputs._replace(keys=keys, queries=queries)


@transform.register
def _(low_rank: LowRankTransformation, inputs: Inputs) -> Inputs:
    keys = inputs.keys.astype(np.float64)
    queries = np.broadcast_to(inputs.queries, (len(keys), *inputs.queries.shape[-3:])).swapaxes(1, 2)
    left, right = compressions(keys.swapaxes(-1, -2), queries.astype(np.float64), low_rank.rank, low_rank.method)
    compressed = (left.swapaxes(-1, -2) @ keys).astype(inputs.keys.dtype)
    return inputs._replace(keys=compressed, queries=(queries @ right).swapaxes(1, 2).astype(inputs.queries.dtype))


def compressions(keys: np.ndarray, queries: np.ndarray, rank: int, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Matrices A, B (..., k, R) with K A Bᵀ Qᵀ near K Qᵀ: the best, or singular vectors of K, or of K above Q."""
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
