"""Ranks of a set of tokens before and after layer normalisation.

The claim is one of arXiv 2604.23681.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.systems.draws import matrices
from simstudy.data.shared import SharedData
from simstudy.design.settings import LayerNormInstance
from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]

VISIBLE = 1e-8
"""Singular values below this share of the largest are 0: normalisation makes the rounding of a token whose features are
nearly equal as much larger as it makes the token, and in a million tokens there is one of a spread of a millionth."""


def compare_ranks(cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Ranks of n_keys tokens of n_features in an affine subspace of given dimension."""
    instance = cell.estimator.instance
    assert isinstance(instance, LayerNormInstance)  # for the type checker
    n, d = cell.data.n_keys, cell.data.n_features
    rows = []
    for coordinates, directions, offset in zip(*matrices(shared, (n, d), (d, d), (d,)), strict=True):
        tokens = coordinates[:, : instance.rank] @ directions[: instance.rank]
        tokens += {"none": 0.0, "random": offset, "uniform": offset[0]}[instance.offset]
        after = layer_norm(tokens)
        affine = affine_rank(after)
        rows.append((affine, affine - affine_rank(tokens), rank(centred(after)) - rank(centred(tokens))))
    names = ("normalised_affine_rank", "affine_rank_gain", "centred_rank_gain")
    return dict(zip(names, np.array(rows, np.float64).T, strict=True))


def centred(tokens: Array) -> Array:
    """Tokens (n, d) less the mean of their own features: the row-centred matrix."""
    return tokens - tokens.mean(axis=1, keepdims=True)


def layer_norm(tokens: Array) -> Array:
    """Tokens (n, d) with mean 0 and variance 1 over the features of each (Ba, Kiros and Hinton 2016), without gain."""
    return centred(tokens) / tokens.std(axis=1, keepdims=True)


def affine_rank(tokens: Array) -> int:
    """Dimension of the smallest affine subspace that holds all tokens (n, d)."""
    return rank(tokens - tokens.mean(axis=0))


def rank(matrix: Array) -> int:
    """Return the number of singular values that are not 0."""
    sizes = np.linalg.svd(matrix, compute_uv=False)
    return int((sizes > VISIBLE * sizes.max(initial=0.0)).sum())
