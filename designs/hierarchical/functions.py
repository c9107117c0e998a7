"""Attention over a hierarchy of resolutions: each level halves the one before, and scores of all levels are mixed.

The claims are those of arXiv 2604.08829.  Index legend: r replicate, i and j position, q query, k dimension of a head,
w keys in a chunk, l level.
"""

import numpy as np
from scipy.signal import lfilter
from scipy.special import softmax

ZERO = 1e-12  # eigenvalues below this share of the largest are 0
CUTS = 8  # positions from each of which on tokens are replaced


def chunk_means(x, length):
    """Means of consecutive chunks along the last axis; the last chunk may be shorter."""
    starts = np.arange(0, x.shape[-1], length)
    return np.add.reduceat(x, starts, axis=-1) / np.diff(starts, append=x.shape[-1])


def downsampled(x, level, downsampling):
    """Means of 2^l consecutive rows of x (r, i, k): causal ones of the positions up to 2^l·j, or whole chunks."""
    length = 2**level
    if downsampling == "chunk":
        return chunk_means(x.swapaxes(1, 2), length).swapaxes(1, 2)
    count = -(-x.shape[1] // length)
    padded = np.concatenate([np.repeat(x[:, :1], length - 1, axis=1), x], axis=1)[:, : count * length]
    return padded.reshape(len(x), count, length, -1).mean(axis=2)


def mixed_scores(queries, keys, weights, downsampling="causal"):
    """Σ_l c_l S_l(⌊i/2^l⌋, ⌊j/2^l⌋), S_l the products of queries and keys at level l, weights c (r, l)."""
    n, mixed = queries.shape[1], 0.0
    for level in range(weights.shape[1]):
        left, right = (downsampled(x, level, downsampling) if level else x for x in (queries, keys))
        place = np.arange(n) // 2**level
        mixed = mixed + weights[:, level, None, None] * (left @ right.swapaxes(1, 2))[:, place[:, None], place]
    return mixed


def sequence(draw, levels=1, n_keys=61, n_features=16, head_dim=4):
    """Tokens, others to replace them, projections to queries, keys and values, and random convex weights of levels."""
    return {
        "tokens": draw.normals(n_keys, n_features),
        "others": draw.normals(n_keys, n_features),
        "projections": draw.normals(3, n_features, head_dim) / np.sqrt(n_features),
        "weights": softmax(draw.normals(levels), axis=1),
    }


def causal_layer(tokens, projections, weights, downsampling):
    """Causal softmax attention by mixed scores over √head_dim."""
    queries, keys, values = (tokens @ each for each in np.moveaxis(projections, 1, 0))
    scores = mixed_scores(queries, keys, weights, downsampling) / np.sqrt(values.shape[2])
    return softmax(np.where(np.tri(tokens.shape[1], dtype=bool), scores, -np.inf), axis=2) @ values


def attend(tokens, others, projections, weights, downsampling="causal"):
    """Largest difference from ordinary causal attention, and largest change of outputs when later tokens change."""
    found = causal_layer(tokens, projections, weights, downsampling)
    queries, keys, values = (np.einsum("rim,rmk->rik", tokens, each) for each in np.moveaxis(projections, 1, 0))
    n, p = values.shape[1:]
    gap, change = np.zeros(len(tokens)), np.zeros(len(tokens))
    for i in range(n):
        kernel = np.exp(np.einsum("rk,rjk->rj", queries[:, i], keys[:, : i + 1]) / np.sqrt(p))
        ordinary = np.einsum("rj,rjk->rk", kernel, values[:, : i + 1]) / kernel.sum(axis=1, keepdims=True)
        gap = np.maximum(gap, np.abs(found[:, i] - ordinary).max(axis=1))
    for cut in np.linspace(1, n - 1, CUTS).astype(int):
        changed = np.concatenate([tokens[:, :cut], others[:, cut:]], axis=1)
        outputs = causal_layer(changed, projections, weights, downsampling)
        change = np.maximum(change, np.abs(outputs - found)[:, :cut].max(axis=(1, 2)))
    return {"attention_gap": gap, "future_effect": change}


def head(draw, levels=1, n_keys=128, n_features=8, head_dim=4):
    """Tokens, projections to queries and keys, and random convex weights of levels."""
    return {
        "tokens": draw.normals(n_keys, n_features),
        "projection_pair": draw.normals(2, n_features, head_dim),
        "weights": softmax(draw.normals(levels), axis=1),
    }


def decompose(tokens, projection_pair, weights, projections="untied"):
    """Number of negative eigenvalues of symmetrised mixed scores."""
    query, key = projection_pair[:, 0], projection_pair[:, 0 if projections == "tied" else 1]
    scores = mixed_scores(tokens @ query, tokens @ key, weights)
    values = np.linalg.eigvalsh((scores + scores.swapaxes(1, 2)) / 2.0)
    least = ZERO * np.abs(values).max(axis=1, keepdims=True)
    return {"negative_eigenvalues": (values < -least).sum(axis=1)}


def kernel_theory(levels=1, n_keys=128, n_features=8, head_dim=4, projections="untied"):
    """Number of negative eigenvalues.

    The form of one level, (QK' + KQ')/2, has p eigenvalues of either sign if the 2p columns of Q and K are independent;
    by Sylvester's law of inertia L levels have L times as many, if each level and those above it have no more columns
    than positions.
    """
    tied = projections == "tied"
    room = all(n_features * (levels - m) <= -(-n_keys // 2**m) for m in range(levels))
    known = room and (tied or 2 * head_dim <= n_features)
    return {"negative_eigenvalues": 0 if tied else head_dim * levels} if known else {}


def keys_in_time(draw, kind="autoregressive", coefficient=0.0, band=4, n_keys=1024):
    """Stationary keys of variance 1: autoregressive of order one, band-limited, or independent on a circle."""
    if kind == "circle":
        return {"x": np.sqrt(2.0) * np.cos(2.0 * np.pi * draw.uniforms(n_keys))}
    if kind == "band-limited":
        phases = 2.0 * np.pi * np.outer(np.arange(1, band + 1), np.arange(n_keys)) / n_keys
        return {"x": draw.normals(2 * band) @ np.concatenate([np.cos(phases), np.sin(phases)]) / np.sqrt(band)}
    innovations = draw.normals(n_keys) * np.sqrt(1.0 - coefficient**2)
    innovations[:, 0] /= np.sqrt(1.0 - coefficient**2)
    return {"x": lfilter([1.0], [1.0, -coefficient], innovations)}


def coarsen(x, chunk, regression="x"):
    """Mean squared difference of m(X) from its means over chunks."""
    target = x if regression == "x" else np.sin(2.0 * x)
    return {"level_error": ((target - np.repeat(chunk_means(target, chunk), chunk, axis=1)) ** 2).mean(axis=1)}


def weigh_chunks(x, chunk):
    """Log mean of exp(score) over keys against that over chunk means, minus what cumulants of the scores predict."""
    gap = np.log(np.exp(x).mean(axis=1)) - np.log(np.exp(chunk_means(x, chunk)).mean(axis=1))
    centred = x - x.mean(axis=1, keepdims=True)
    second, third, fourth = ((centred**k).mean(axis=1) for k in (2, 3, 4))
    gaussian = gap - second * (1.0 - 1.0 / chunk) / 2.0
    higher = third * (1.0 - chunk**-2.0) / 6.0 + (fourth - 3.0 * second**2) * (1.0 - chunk**-3.0) / 24.0
    return {"gaussian_gap": gaussian, "corrected_gap": gaussian - higher}


def pairs(draw, coefficient=0.0, n_keys=1024, n_queries=16):
    """Autoregressive keys, and queries of standard deviation ¾."""
    return keys_in_time(draw, coefficient=coefficient, n_keys=n_keys) | {"queries": 0.75 * draw.normals(n_queries)}


def regress(x, queries, levels, bandwidth, noise_sd=0.5):
    """Squared error of the Nadaraya–Watson estimator of sin 2x, noise integrated out; distances averaged over levels.

    Of the mean over levels of (q − k̄_l)²/2, the term q²/2 changes no weight.
    """
    means = [np.repeat(chunk_means(x, 2**level), 2**level, axis=1)[:, : x.shape[1]] for level in range(levels)]
    first, second = np.mean(means, axis=0), np.mean(np.square(means), axis=0) / 2.0
    weights = softmax((queries[:, :, None] * first[:, None] - second[:, None]) / bandwidth**2, axis=2)
    bias = (weights @ np.sin(2.0 * x)[:, :, None])[:, :, 0] - np.sin(2.0 * queries)
    return {"squared_error": (bias**2 + noise_sd**2 * (weights**2).sum(axis=2)).mean(axis=1)}
