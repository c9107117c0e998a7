"""What a layer leaves of single heads: errors of recovery, ranks after layer normalisation, how alike tokens become.

The claims are those of arXiv 2604.23681; rank collapse is that of Dong, Cordonnier and Loukas (2021).
"""

import numpy as np

from simstudy.attention.members import RELATIVE, Array, Rows, matrices, quantities
from simstudy.attention.normalisers import softmax
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.identifiability import DepthInstance, HeadRecoveryInstance, LayerNormInstance

# Index legend: g group of positions with the same outputs of heads, t position in its group, h head, k dimension of a
# head, c channel (h, k), m feature of the model.


@quantities.register
def recover_heads(instance: HeadRecoveryInstance, cell: Cell, shared: SharedData) -> Rows:
    """Heads of n_keys positions from their sum over a projection of n_features, which noise_sd blurs."""
    n, d, n_heads, p = cell.data.n_keys, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim
    shapes = ((n // instance.held, n_heads * p), (n, d), (n, d), (n_heads, d), (n_heads * p, d), (d, d))
    for outputs, noise, tokens, weights, left, right in zip(*matrices(shared, *shapes), strict=True):
        projection = output_projection(instance, left, right, p)
        gates = np.ones((n, n_heads))
        if instance.gates == "position":
            gates = 1.0 / (1.0 + np.exp(-tokens @ weights.T / np.sqrt(d)))
        # (t, c, m), then what a group sees of its channels side by side: (g, c, t·m).
        seen = np.repeat(gates, p, axis=1)[:, :, None] * projection
        seen = seen.reshape(-1, instance.held, *projection.shape).transpose(0, 2, 1, 3)
        seen = seen.reshape(len(outputs), n_heads * p, -1)
        blurred = np.einsum("gc,gcm->gm", outputs, seen) + cell.data.noise_sd * noise.reshape(len(outputs), -1)
        sizes = np.linalg.svd(seen, compute_uv=False)
        ranks = (sizes > RELATIVE * sizes[:, :1]).sum(axis=1)
        recovered = np.einsum("gm,gmc->gc", blurred, np.linalg.pinv(seen, rcond=RELATIVE))
        yield (n_heads * p - ranks).sum(), ((recovered - outputs) ** 2).mean()


def output_projection(instance: HeadRecoveryInstance, left: Array, right: Array, head_dim: int) -> Array:
    """W_O (c, m): the same block for every head, or one of given rank and condition, in random directions."""
    if instance.output == "shared":
        block = np.linalg.qr(right).Q[:head_dim]
        n_heads = len(left) // head_dim
        return np.tile(block, (n_heads, 1)) / n_heads
    kept = min(left.shape) - instance.rank_deficit
    sizes = np.geomspace(1.0, 1.0 / instance.condition, kept)
    return np.linalg.qr(left).Q[:, :kept] * sizes @ np.linalg.qr(right).Q[:, :kept].T


VISIBLE = 1e-8
"""Singular values below this share of the largest are 0: normalisation makes the rounding of a token whose features are
nearly equal as much larger as it makes the token, and in a million tokens there is one of a spread of a millionth."""


@quantities.register
def compare_ranks(instance: LayerNormInstance, cell: Cell, shared: SharedData) -> Rows:
    """Ranks of n_keys tokens of n_features in an affine subspace of given dimension."""
    n, d = cell.data.n_keys, cell.data.n_features
    for coordinates, directions, offset in zip(*matrices(shared, (n, d), (d, d), (d,)), strict=True):
        tokens = coordinates[:, : instance.rank] @ directions[: instance.rank]
        tokens += {"none": 0.0, "random": offset, "uniform": offset[0]}[instance.offset]
        after = layer_norm(tokens)
        affine = affine_rank(after)
        yield affine, affine - affine_rank(tokens), rank(centred(after)) - rank(centred(tokens))


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


# Index legend: t position, h head, k dimension of a head, m feature of the model.

APART = 1e-6
"""Differences of tokens below this share of the tokens themselves are lost."""


@quantities.register
def descend(instance: DepthInstance, cell: Cell, shared: SharedData) -> Rows:
    """Differences of n_keys tokens of n_features after layers of n_heads heads, without feed-forward blocks."""
    n, d, n_heads, p = cell.data.n_keys, cell.data.n_features, cell.heads.n_heads, cell.heads.head_dim
    # Queries, keys, values and outputs of one layer after the other: a deeper stack begins with the same layers.
    layers = matrices(shared, (n, d), *[(4, n_heads, p, d)] * instance.depth)
    share = 1.0 / np.sqrt(instance.depth) if instance.residual == "scaled" else 1.0
    for tokens, *weights in zip(*layers, strict=True):
        for query, key, value, output in weights:
            inputs = layer_norm(tokens) if instance.normalisation == "layer_norm" else tokens
            # Σ_h softmax(QK'/√p)V O by standard normal weights (h, k, m), scaled to keep the size of tokens.
            q, k, v = (np.einsum("tm,hkm->htk", inputs, each) / np.sqrt(d) for each in (query, key, value))
            means = softmax(q @ k.swapaxes(1, 2) / np.sqrt(p)) @ v
            branch = np.einsum("htk,hkm->tm", means, output) / np.sqrt(n_heads * p)
            tokens = branch if instance.residual == "none" else tokens + share * branch
        apart = tokens - tokens.mean(axis=0)
        size = np.linalg.norm(tokens)
        visible = np.linalg.svd(apart, compute_uv=False) > APART * size
        spread = np.linalg.norm(apart) / size
        yield spread, np.log(max(spread, np.finfo(float).eps)), visible.sum()
