"""Scores of low rank: errors of compressions of one head, and patterns that a head of given dimension cannot draw.

The claims are those of arXiv 2512.05916, and that of Bhojanapalli and others (2020): a head of dimension p < n has
scores of rank p at most.
"""

import numpy as np

from simstudy.attention.members import Array, Rows, matrices, quantities
from simstudy.attention.normalisers import softmax
from simstudy.attention.reference import attention
from simstudy.attention.transformations import compressions
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.low_rank import KqSvdInstance, PatternInstance

# Index legend: i key, j query, k dimension of the head.


@quantities.register
def compress_scores(instance: KqSvdInstance, cell: Cell, shared: SharedData) -> Rows:
    """Errors of the compressed scores and outputs of n_keys keys and as many queries, of noise values."""
    p = cell.heads.head_dim
    drawn = shared.normals(cell.data.n_keys, 2 * p + 1).swapaxes(1, 2)
    deviations = np.geomspace(1.0, instance.smallest, p)
    keys = instance.scale * deviations * drawn[:, :, :p]
    queries = (deviations * drawn[:, :, p : 2 * p]) @ turned(p, instance.angle).T / instance.scale
    for arrays in zip(keys, queries, drawn[:, :, -1], strict=True):
        yield _errors(*arrays, instance, cell.bandwidth**2)


def turned(head_dim: int, degrees: float) -> Array:
    """Rotation (k, k) by an angle in the planes of directions k and k + p/2: leading turn towards trailing ones."""
    rotation, half, angle = np.eye(head_dim), head_dim // 2, np.radians(degrees)
    leading, trailing = np.arange(half), np.arange(half) + head_dim - half
    rotation[leading, leading] = rotation[trailing, trailing] = np.cos(angle)
    rotation[trailing, leading], rotation[leading, trailing] = np.sin(angle), -np.sin(angle)
    return rotation


def _errors(keys: Array, queries: Array, values: Array, instance: KqSvdInstance, temperature: float) -> tuple:
    scores = keys @ queries.T
    total = (scores**2).sum()
    # Rotations of keys and of queries, such as those of the two factors, leave singular values as they are.
    small = np.linalg.qr(keys).R @ np.linalg.qr(queries).R.T
    least = (np.linalg.svd(small, compute_uv=False)[instance.rank :] ** 2).sum()
    output = _output(scores, values, temperature)

    def compressed(method: str) -> tuple[float, float]:
        left, right = compressions(keys, queries, instance.rank, method)
        found = keys @ left @ (queries @ right).T
        missed = _output(found, values, temperature) - output
        return float(((found - scores) ** 2).sum()), float(np.linalg.norm(missed) / np.linalg.norm(output))

    squared, error = compressed(instance.method)
    best = error if instance.method == "scores" else compressed("scores")[1]
    return np.sqrt(squared / total), (squared - least) / total, error, error < best


def _output(scores: Array, values: Array, temperature: float) -> Array:
    """Softmax attention of every query over the keys."""
    return softmax(scores.T / temperature) @ values


# Index legend: i query, j key, m feature, k dimension of the head.


@quantities.register
def draw_pattern(instance: PatternInstance, cell: Cell, shared: SharedData) -> Rows:
    """Errors of the head of head_dim whose logits are nearest to those of the pattern, at every query together."""
    n, d, p = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim
    for tokens, logits in zip(*matrices(shared, (n, d), (n, n)), strict=True):
        centred = logits - logits.mean(axis=1, keepdims=True)
        query, key = nearest_head(tokens, centred, p)
        queries, keys = tokens @ query, tokens @ key
        scores = queries @ keys.T
        missed = scores - scores.mean(axis=1, keepdims=True) - centred
        drawn = attention(queries[None, :, None], keys.T[None, None], np.eye(n)[None], 1.0)[0, :, 0]
        distance = np.abs(drawn - softmax(logits)).sum(axis=1).mean() / 2.0
        yield (missed**2).sum() / (centred**2).sum(), distance


def nearest_head(tokens: Array, centred: Array, head_dim: int) -> tuple[Array, Array]:
    """Projections (m, k) of tokens (i, m) with scores next to centred logits (i, j) (Eckart and Young 1936)."""
    differences = tokens - tokens.mean(axis=0)
    left, right = (np.linalg.svd(each, full_matrices=False) for each in (tokens, differences))
    # Centring takes a dimension, if there are as many as tokens.
    inside = min(tokens.shape[1], len(tokens) - 1)
    towards = right.U[:, :inside]
    first, sizes, second = np.linalg.svd(left.U.T @ centred @ towards, full_matrices=False)
    roots = np.sqrt(sizes[:head_dim])
    query = (left.Vh.T / left.S) @ (first[:, :head_dim] * roots)
    key = (right.Vh.T[:, :inside] / right.S[:inside]) @ (second[:head_dim].T * roots)
    return query, key
