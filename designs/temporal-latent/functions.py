"""Latent vectors of consecutive tokens merged in a cache (arXiv 2505.13544): all prefixes at once, and token by token.

Token i of chunk j adds σ(Ac_i·Bp_j)c_i to the latent of its chunk, with c_i its own latent, normalised, and p_j the
encoding of the position of the chunk.
"""

import numpy as np
from scipy.special import expit, softmax


def latents(draw, stride, n_tokens=64, n_features=8, head_dim=8):
    """Queries, and what each token adds to the latent of its chunk (replicate, token, dimension)."""
    tokens = draw.normals(n_tokens, n_features)
    query, latent = np.split(draw.normals(n_features, 2 * head_dim) / np.sqrt(n_features), 2, axis=2)
    own, place = np.split(draw.normals(head_dim, 2 * head_dim), 2, axis=2)
    latents = tokens @ latent
    latents = latents - latents.mean(axis=2, keepdims=True)
    latents = latents / np.sqrt((latents**2).mean(axis=2, keepdims=True))
    # Sines and cosines at geometric frequencies (Vaswani et al. 2017).
    k = np.arange(head_dim)
    angles = (np.arange(n_tokens) // stride)[:, None] / 10_000.0 ** (2 * (k // 2) / head_dim)
    places = np.where(k % 2 == 0, np.sin(angles), np.cos(angles))
    gates = expit(((latents @ own) * (places @ place)).sum(axis=2, keepdims=True) / head_dim)
    return {"queries": tokens @ query / np.sqrt(head_dim), "parts": gates * latents}


def decode(queries, parts, stride, mask):
    """Largest difference of an output between both ways, relative to the largest output."""
    one_by_one = token_by_token(queries, parts, stride)
    gap = np.abs(all_at_once(queries, parts, stride, mask) - one_by_one).max(axis=(1, 2))
    return {"decoding_gap": gap / np.abs(one_by_one).max(axis=(1, 2))}


def all_at_once(queries, parts, stride, mask):
    """Outputs of all tokens from the partial latents of all prefixes, under a mask."""
    asking, seen = np.ogrid[1 : parts.shape[1] + 1, 1 : parts.shape[1] + 1]
    same_chunk = (asking - 1) // stride == (seen - 1) // stride
    partial = (same_chunk & (seen <= asking)).astype(float) @ parts
    # A chunk is seen once it is complete, and the one of the token that asks as far as it goes.
    visible = (seen <= asking) & ((seen % stride == 0) | (seen == asking) | (mask == "causal"))
    return softmax(np.where(visible, queries @ partial.mT, -np.inf), axis=2) @ partial


def token_by_token(queries, parts, stride):
    """Outputs of all tokens from a cache that grows by one latent for each chunk."""
    outputs, cache = np.empty_like(parts), np.empty_like(parts[:, :0])
    for m in range(parts.shape[1]):
        if m % stride:
            cache[:, -1] += parts[:, m]
        else:
            cache = np.concatenate([cache, parts[:, m : m + 1]], axis=1)
        weights = softmax(cache @ queries[:, m, :, None], axis=1)
        outputs[:, m] = (weights.mT @ cache)[:, 0]
    return outputs


def merged_bias(coefficient, stride, bandwidth=0.1):
    """Squared bias for many keys averaged in chunks, target sin 2x, over the query points of the design.

    Means of chunks are Gaussian, so their law given a Gaussian kernel is, and so is that of a key given its chunk's
    mean: E sin 2x = sin(2 E x) exp(−2 Var x).
    """
    points = np.array([0.08, 0.24, 0.40, 0.58, 0.78, 1.01, 1.32, 1.86])  # and −x, of the same squared bias
    lags = np.abs(np.subtract.outer(np.arange(stride), np.arange(stride)))
    shared = (np.float64(coefficient) ** lags).mean(axis=0)[:, None]  # covariance of each key with the mean
    seen = shared.mean() + bandwidth**2
    estimate = np.sin(2.0 * points * shared / seen) * np.exp(-2.0 * (1.0 - shared**2 / seen))
    return float(((estimate.mean(axis=0) - np.sin(2.0 * points)) ** 2).mean())
