"""Single heads behind an output projection, ranks after layer normalisation, and tokens after layers of attention.

The claims are those of arXiv 2604.23681; rank collapse is that of Dong, Cordonnier and Loukas (2021).
Index legend: r replicate, g group of positions with equal outputs of heads, t position, h head, k dimension of a head,
c channel (h, k), m feature.
"""

import numpy as np
from scipy.special import expit, softmax

MISSING = {"full rank": 0, "one short": 1, "three short": 3, "four short": 4}
"""How far the rank of an output projection W_O is below the largest possible; "average" is the plain average."""
ZERO = 1e-12  # singular values below this share of the largest are 0
VISIBLE = 1e-8  # the same after normalisation, which enlarges the rounding of tokens whose features are nearly equal
APART = 1e-6  # differences of tokens below this share of the tokens are lost


def layer(draw, n_keys=8, n_features=16, n_heads=4, head_dim=4, held=1):
    """Outputs of heads, equal at ``held`` consecutive positions, noise, tokens, and normals for gates and W_O."""
    channels = n_heads * head_dim
    return {
        "outputs": draw.normals(n_keys // held, channels),
        "noise": draw.normals(n_keys, n_features),
        "tokens": draw.normals(n_keys, n_features),
        "gate_weights": draw.normals(n_heads, n_features),
        "left": draw.normals(channels, n_features),
        "right": draw.normals(n_features, n_features),
    }


def output_projection(left, right, n_heads, output, condition):
    """W_O (r, c, m) in random directions: of given rank and condition, or the same block for every head."""
    turned = np.linalg.qr(right).Q
    if output == "average":
        return np.tile(turned[:, : left.shape[1] // n_heads] / n_heads, (1, n_heads, 1))
    rank = min(left.shape[1:]) - MISSING[output]
    sizes = np.geomspace(1.0, 1.0 / condition, rank)
    return np.linalg.qr(left).Q[..., :rank] * sizes @ turned[..., :rank].swapaxes(1, 2)


def recover(
    outputs, noise, tokens, gate_weights, left, right, output="full rank", condition=1.0, gates="none", noise_sd=0.1
):
    """Dimension of the null space of the map from all outputs of heads, and the error of least squares."""
    (count, groups, channels), n_heads, (n, d) = outputs.shape, gate_weights.shape[1], noise.shape[1:]
    opened = np.ones((count, n, n_heads))
    if gates == "position":
        opened = expit(tokens @ gate_weights.swapaxes(1, 2) / np.sqrt(d))
    opened = np.repeat(opened, channels // n_heads, axis=2)
    # What a group sees of its channels, its positions side by side: (r, g, c, t·m).
    seen = opened[..., None] * output_projection(left, right, n_heads, output, condition)[:, None]
    seen = seen.reshape(count, groups, -1, channels, d).swapaxes(2, 3).reshape(count, groups, channels, -1)
    blurred = outputs[:, :, None] @ seen + noise_sd * noise.reshape(count, groups, 1, -1)
    u, sizes, vh = np.linalg.svd(seen, full_matrices=False)
    kept = sizes > ZERO * sizes[..., :1]
    inverse = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=kept)
    recovered = (blurred @ vh.swapaxes(2, 3) * inverse[:, :, None]) @ u.swapaxes(2, 3)
    return {
        "nullity": (channels - kept.sum(axis=2)).sum(axis=1),
        "recovery_error": ((recovered[:, :, 0] - outputs) ** 2).mean(axis=(1, 2)),
    }


def recovery_theory(
    n_keys=8, n_features=16, n_heads=4, head_dim=4, held=1,
    output="full rank", condition=1.0, gates="none", noise_sd=0.1,
):  # fmt: skip
    """Nullity and error of recovery, if W_O has rank r.

    Gates, which differ from position to position, keep r of H·p channels at each, up to one position for each head:
    min(Hp, min(held, H) r).  Least squares has the noise σ² Σ 1/(held s_i²), and the variance 1 of a lost direction.
    """
    channels = n_heads * head_dim
    if output == "average":
        sizes = np.full(head_dim, n_heads**-0.5)
    else:
        rank = min(channels, n_features) - MISSING[output]
        sizes = condition ** (-np.arange(rank) / max(rank - 1, 1))
    lost = channels - min(channels, (min(held, n_heads) if gates == "position" else 1) * len(sizes))
    theory = {"nullity": n_keys // held * lost}
    if gates == "none":
        theory["recovery_error"] = (noise_sd**2 * (1.0 / sizes**2).sum() / held + lost) / channels
    return theory


def count_parameters(gate_weights, left):
    """Number of parameters of the gates relative to that of the output projection, of the shape of ``left``."""
    return {"gate_share": np.full(len(left), gate_weights[0].size / left[0].size)}


def subspace(draw, n_keys=32, n_features=16):
    """Normals for tokens in an affine subspace: coordinates, directions, and an offset."""
    return {
        "coordinates": draw.normals(n_keys, n_features),
        "directions": draw.normals(n_features, n_features),
        "away": draw.normals(n_features),
    }


def compare_ranks(coordinates, directions, away, rank=1, offset="none"):
    """Ranks of tokens in an affine subspace of given dimension, before and after layer normalisation."""
    tokens = coordinates[..., :rank] @ directions[:, :rank]
    tokens += {"none": 0.0, "random": away[:, None], "uniform": away[:, None, :1]}[offset]
    after = layer_norm(tokens)
    affine, former = affine_rank(after), affine_rank(tokens)
    return {"normalised_affine_rank": affine, "affine_rank_gain": affine - former}


def rank_theory(n_keys=32, n_features=16, rank=1, offset="none"):
    """Affine rank after layer normalisation LN(X) = D X P, D positive and diagonal, P = I − 11'/d.

    D changes no linear rank, so that of X P stays.  But it moves each token along its ray from 0: of the affine hull
    of rank r, if it misses 0 after P, it makes the cone over it, of rank r + 1.  P removes a uniform offset.
    """
    after = min(rank + (offset == "random"), n_features - 1, n_keys - 1)
    return {"normalised_affine_rank": after, "affine_rank_gain": after - rank}


def layer_norm(tokens):
    """Tokens (..., t, m) with mean 0 and variance 1 over the features of each, without gain."""
    return (tokens - tokens.mean(axis=-1, keepdims=True)) / tokens.std(axis=-1, keepdims=True)


def affine_rank(tokens):
    """Dimension of the smallest affine subspace that holds all tokens (r, t, m)."""
    return rank_of(tokens - tokens.mean(axis=1, keepdims=True))


def rank_of(matrices):
    """Number of singular values that are not 0."""
    sizes = np.linalg.svd(matrices, compute_uv=False)
    return (sizes > VISIBLE * sizes[:, :1]).sum(axis=1)


def layers(draw, n_keys=32, n_features=16, head_dim=4, depth=1):
    """Tokens, and queries, keys, values and outputs (layer, 4, h, k, m) of heads of total width n_features."""
    weights = draw.normals(depth, 4, n_features // head_dim, head_dim, n_features)
    return {"tokens": draw.normals(n_keys, n_features), "weights": weights}


def descend(tokens, weights, residual="none", normalisation="none"):
    """Differences of tokens after layers of softmax attention without feed-forward blocks."""
    depth, _, n_heads, p, d = weights.shape[1:]
    share = 1.0 / np.sqrt(depth) if residual == "scaled" else 1.0
    for query, key, value, output in np.moveaxis(weights, 0, 2):
        inputs = (layer_norm(tokens) if normalisation == "layer_norm" else tokens)[:, None]
        # Σ_h softmax(QK'/√p) V O, scaled to keep the size of tokens.
        q, k, v = (inputs @ each.swapaxes(2, 3) / np.sqrt(d) for each in (query, key, value))
        means = softmax(q @ k.swapaxes(2, 3) / np.sqrt(p), axis=3) @ v
        branch = (means @ output).sum(axis=1) / np.sqrt(n_heads * p)
        tokens = branch if residual == "none" else tokens + share * branch
    apart = tokens - tokens.mean(axis=1, keepdims=True)
    size = np.linalg.norm(tokens, axis=(1, 2))
    spread = np.linalg.norm(apart, axis=(1, 2)) / size
    return {
        "token_spread": spread,
        "visible_rank": (np.linalg.svd(apart, compute_uv=False) > APART * size[:, None]).sum(axis=1),
    }
