"""Hierarchies of resolutions: causal attention over mixed scores, such scores as a kernel, and errors of a level.

Every level halves the resolution of the one before, and scores of all levels are mixed.  The claims are those of arXiv
2604.08829.
"""

import numpy as np

from simstudy.attention.members import RELATIVE, Array, Rows, matrices, quantities
from simstudy.attention.normalisers import softmax
from simstudy.attention.reference import attention
from simstudy.attention.transformations import chunk_means
from simstudy.data import regression
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import hierarchy as settings

# Index legend: i and j position, k dimension of the head.

CUTS = 8
"""Positions from each of which on the sequence is changed."""


@quantities.register
def run_hierarchy(instance: settings.HierarchyInstance, cell: Cell, shared: SharedData) -> Rows:
    """One causal head of head_dim on a sequence of n_keys tokens, of random projections and random convex weights."""
    n, d, p, temperature = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim, cell.bandwidth**2
    draws, causal = matrices(shared, (n, d), (3, d, p), (instance.levels,)), instance.downsampling == "causal"
    # Stored alike, so that unchanged tokens go through the same instructions and have the same bits.
    sequences = np.ascontiguousarray(shared.keys(n).swapaxes(1, 2))
    for tokens, others, projections, logits in zip(sequences, *draws, strict=True):
        heads, weights = projections / np.sqrt(d), softmax(logits)
        found = causal_layer(tokens @ heads, weights, causal, temperature)
        gap = np.abs(found - causal_attention(tokens @ heads, temperature)).max()
        change = 0.0
        for cut in np.linspace(1, n - 1, CUTS).astype(int):
            changed = np.concatenate([tokens[:cut], others[cut:]])
            outputs = causal_layer(changed @ heads, weights, causal, temperature)
            change = max(change, np.abs(outputs[:cut] - found[:cut]).max())
        yield gap, change


def causal_layer(inputs: Array, weights: Array, causal: bool, temperature: float) -> Array:
    """Softmax attention by mixed scores, the future masked, of queries, keys and values (3, i, k)."""
    queries, keys, values = inputs
    mixed = mixed_scores(queries, keys, weights, causal)
    future = np.triu(np.ones(mixed.shape, bool), 1)
    return softmax(np.where(future, -np.inf, mixed / temperature)) @ values


def causal_attention(inputs: Array, temperature: float) -> Array:
    """Ordinary attention of every position to all up to itself, by the independent reference."""
    queries, keys, values = inputs
    n, p = values.shape
    outputs = np.empty((n, p))
    for i in range(n):
        past = np.broadcast_to(keys[: i + 1].T, (p, 1, p, i + 1))
        outputs[i] = attention(queries[None, i, None, None], past, values[: i + 1].T, temperature)[:, 0, 0]
    return outputs


# Index legend: i and j position, l level, k dimension.


def downsampled(x: Array, level: int, causal: bool) -> Array:
    """Means of 2^l consecutive rows of x (i, k); if ``causal``, row j holds the positions up to 2^l·j."""
    length = 2**level
    if not causal:
        return chunk_means(x.T, length).T
    count = -(-len(x) // length)
    padded = np.concatenate([np.repeat(x[:1], length - 1, axis=0), x])[: count * length]
    return padded.reshape(count, length, -1).sum(axis=1) / length


def mixed_scores(queries: Array, keys: Array, weights: Array, causal: bool) -> Array:
    """Σ_l c_l S_l(⌊i/2^l⌋, ⌊j/2^l⌋), S_l the products of queries and keys (i, k) at level l, coarsest first."""
    mixed: Array = np.zeros((1, 1))
    for level in reversed(range(len(weights))):
        left, right = (downsampled(x, level, causal) if level else x for x in (queries, keys))
        finer = np.repeat(np.repeat(mixed, 2, axis=0), 2, axis=1)[: len(left), : len(right)]
        mixed = weights[level] * (left @ right.T) + (finer if level < len(weights) - 1 else 0.0)
    return mixed


@quantities.register
def decompose_scores(instance: settings.ScoreKernelInstance, cell: Cell, shared: SharedData) -> Rows:
    """Scores of a head of head_dim among n_keys tokens, mixed over levels by random convex weights."""
    n, d, p = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim
    draws = matrices(shared, (2, d, p), (instance.levels,))
    for tokens, (query, key), logits in zip(shared.keys(n).swapaxes(1, 2), *draws, strict=True):
        key = query if instance.projections == "tied" else key
        scores = mixed_scores(tokens @ query, tokens @ key, softmax(logits), True)
        values = np.linalg.eigvalsh((scores + scores.T) / 2.0)
        least = RELATIVE * np.abs(values).max()
        form = query @ key.T
        share = (((form + form.T) / 2.0) ** 2).sum() / (form**2).sum()
        yield (values > least).sum(), (values < -least).sum(), share


@quantities.register
def coarsen(instance: settings.ResolutionInstance, cell: Cell, shared: SharedData) -> Rows:
    """Errors of chunk means of Y in the place of m(X_i), along a sequence of n_keys keys."""
    n, d, chunk = cell.data.n_keys, cell.data.n_features, instance.chunk
    if instance.signal == "keys":
        target = shared.regression(cell)
    else:
        (amplitudes,) = matrices(shared, (d, 2 * instance.band))
        target = regression.evaluate(cell.data.regression, amplitudes @ waves(n, instance.band))
    noise = np.sqrt(shared.variances(cell)) * shared.noise(cell)
    missed = target - np.repeat(chunk_means(target, chunk), chunk, axis=1)
    return zip((missed**2).mean(axis=1), (chunk_means(noise, chunk) ** 2).mean(axis=1), strict=True)


def waves(n_keys: int, band: int) -> Array:
    """Cosines and sines (2·band, i) of 1 to ``band`` periods in n keys: with normal amplitudes a stationary process."""
    phases = 2.0 * np.pi * np.outer(np.arange(1, band + 1), np.arange(n_keys)) / n_keys
    return np.concatenate([np.cos(phases), np.sin(phases)]) / np.sqrt(band)


@quantities.register
def weigh_chunks(instance: settings.CoarseMassInstance, cell: Cell, shared: SharedData) -> Rows:
    """Mass of n_keys keys beside that of chunk means, and what cumulants κ_k/w^(k−1) say of their ratio."""
    scores, width = shared.keys(cell.data.n_keys)[:, 0].astype(np.float64), instance.chunk
    fine, coarse = (np.log(np.exp(each).mean(axis=1)) for each in (scores, chunk_means(scores, width)))
    centred = scores - scores.mean(axis=1, keepdims=True)
    second, third, fourth = ((centred**k).mean(axis=1) for k in (2, 3, 4))
    gaussian = fine - coarse - second * (1.0 - 1.0 / width) / 2.0
    correction = third * (1.0 - 1.0 / width**2) / 6.0 + (fourth - 3.0 * second**2) * (1.0 - 1.0 / width**3) / 24.0
    return zip(fine - coarse, gaussian, gaussian - correction, strict=True)
