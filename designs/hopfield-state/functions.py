"""Attention with the hidden state of a modern Hopfield network (arXiv 2511.20698): logits that remember earlier layers.

The hidden state of a layer is h_l = a h_{l-1} + (1 - a) s_l, s_l the new logits of the layer, from h_1 = s_1 on.
"""

import numpy as np
from scipy.special import softmax


def noise(draw, layers, n_logits=64):
    """Standard normal noise of logits: common to all layers, and of each layer."""
    return {"common": draw.normals(n_logits), "own": draw.normals(layers, n_logits)}


def remember(common, own, memory, persistence):
    """Second moment of the hidden state, if the noise of any two layers has the correlation ``persistence``."""
    shared, rest = np.sqrt(persistence) * common, np.sqrt(1.0 - persistence)
    state = shared + rest * own[:, 0]
    for layer in range(1, own.shape[1]):
        state = memory * state + (1.0 - memory) * (shared + rest * own[:, layer])
    return {"noise_factor": (state**2).mean(axis=1)}


def remaining_noise(memory, layers, persistence=0.0):
    """Variance of noise in the hidden state of the last layer over that in the logits of one layer."""
    former = memory ** (2 * (layers - 1))
    independent = former + (1.0 - former) * (1.0 - memory) / (1.0 + memory)
    return persistence + (1.0 - persistence) * independent


def noise_theory(memory, layers, persistence):
    """Exact numbers of the grid of noise."""
    return {"noise_factor": remaining_noise(memory, layers, persistence)}


def tower(draw, layers, projections, n_tokens=32, n_features=16):
    """Normal tokens, and W_Q, W_K and W_V (replicate, layer, feature, 3 · dimension), "tied" over layers or "drawn"."""
    tokens = draw.normals(n_tokens, n_features)
    drawn = draw.normals(layers if projections == "drawn" else 1, n_features, 3 * n_features) / np.sqrt(n_features)
    return {"tokens": tokens, "weights": np.broadcast_to(drawn, (draw.count, layers, *drawn.shape[2:]))}


def climb(tokens, weights, memory, key_scale, skip=0.5):
    """Likeness and rank of the tokens over the layers; attention without a memory and a product of kernels beside."""
    n, plain, pool, state = tokens.shape[1], tokens, 1.0, 0.0
    cosines, ranks = [], []
    for layer in range(weights.shape[1]):
        kept = memory if layer else 0.0
        logits, values = scores(tokens, weights[:, layer], key_scale)
        state = kept * state + (1.0 - kept) * logits
        pool = pool**kept * softmax(logits, axis=2) ** (1.0 - kept)
        tokens = skip * tokens + (1.0 - skip) * softmax(state, axis=2) @ values
        units = tokens / np.linalg.norm(tokens, axis=2, keepdims=True)
        cosines.append(((units.sum(axis=1) ** 2).sum(axis=1) - n) / (n * (n - 1)))
        ranks.append(effective_rank(tokens))
        logits, values = scores(plain, weights[:, layer], key_scale)
        kernel = np.exp(logits - logits.max(axis=2, keepdims=True))
        plain = skip * plain + (1.0 - skip) * (kernel @ values) / kernel.sum(axis=2, keepdims=True)
    return {
        "token_cosine": cosines[-1],
        "token_rank": ranks[-1],
        "path_cosine": np.mean(cosines, axis=0),
        "path_rank": np.mean(ranks, axis=0),
        "ordinary_gap": np.abs(tokens - plain).max(axis=(1, 2)) / np.abs(plain).max(axis=(1, 2)),
        "pool_gap": np.abs(softmax(state, axis=2) - pool / pool.sum(axis=2, keepdims=True)).max(axis=(1, 2)),
    }


def scores(tokens, weights, key_scale):
    """Logits (replicate, query, key) and values of one layer; "normalised" queries and keys have length √dimension."""
    queries, keys, values = np.split(tokens @ weights, 3, axis=2)
    if key_scale == "normalised":
        queries, keys = (rows / np.sqrt((rows**2).mean(axis=2, keepdims=True)) for rows in (queries, keys))
    return queries @ keys.mT, values


def effective_rank(rows):
    """Exponential of the entropy of the squared singular values (Roy and Vetterli 2007)."""
    sizes = np.linalg.svd(rows, compute_uv=False) ** 2
    shares = sizes / sizes.sum(axis=1, keepdims=True)
    return np.exp(-(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1))


def chain(draw, vocabulary, length, dimension=32, sharpness=3.0):
    """Tokens (r, t) of chains of second order with laws of their own, the law of the next, and embeddings."""
    laws, rows = softmax(sharpness * draw.normals(vocabulary, vocabulary, vocabulary), axis=3), np.arange(draw.count)
    levels, tokens = draw.uniforms(length), np.zeros((draw.count, length), int)
    for t in range(2, length):
        reached = laws[rows, tokens[:, t - 2], tokens[:, t - 1]].cumsum(axis=1)[:, :-1]
        tokens[:, t] = (reached < levels[:, t, None]).sum(axis=1)
    return {
        "tokens": tokens,
        "law": laws[rows, tokens[:, -2], tokens[:, -1]],
        "embedding": draw.normals(vocabulary, dimension),
    }


def recall(tokens, law, embedding, leak, bandwidth):
    """Squared error of next-token probabilities by an associative memory of Memory Mosaics (arXiv 2405.06394).

    Its keys are leaky averages of the tokens so far, normalised, and the value of a key is the token that follows.
    The memory is a regression with a Gaussian kernel; softmax attention with the same keys stands beside it.
    """
    rows, average, keys = np.arange(len(tokens)), 0.0, []
    for t in range(tokens.shape[1]):
        average = leak * average + embedding[rows, tokens[:, t]]
        keys.append(average / np.linalg.norm(average, axis=1, keepdims=True))
    *seen, query = keys
    seen, values = np.stack(seen, axis=1), np.eye(law.shape[1])[tokens[:, 1:]]
    kernel = np.exp(-((seen - query[:, None]) ** 2).sum(axis=2) / (2.0 * bandwidth**2))
    predicted = (kernel[:, None] @ values)[:, 0] / kernel.sum(axis=1, keepdims=True)
    attended = (softmax((seen @ query[:, :, None])[..., 0] / bandwidth**2, axis=1)[:, None] @ values)[:, 0]
    return {
        "memory_gap": np.abs(predicted - attended).max(axis=1),
        "next_token_error": ((predicted - law) ** 2).sum(axis=1),
    }
