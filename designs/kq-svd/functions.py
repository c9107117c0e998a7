"""Keys and queries compressed to a low rank (arXiv 2512.05916): errors of attention scores and of outputs."""

import numpy as np
from scipy.special import softmax


def correlated_directions(draw, angle, scale=1.0, n_keys=100, head_dim=16, smallest=0.1):
    """Keys and as many queries (replicate, row, dimension) with standard deviations from 1 to ``smallest``, and values.

    ``angle`` degrees lie between the leading directions of keys and of queries; keys are multiplied by ``scale`` and
    queries divided by it.
    """
    deviations = np.geomspace(1.0, smallest, head_dim)
    keys, queries = (deviations * draw.normals(n_keys, head_dim) for _ in range(2))
    queries = queries @ rotation(head_dim, angle).T
    return {"keys": scale * keys, "queries": queries / scale, "values": draw.normals(n_keys, 1)}


def rotation(head_dim, degrees):
    """Rotation that turns the leading half of the axes by an angle towards the trailing half."""
    half = head_dim // 2
    leading, trailing = np.arange(half), np.arange(half) + head_dim - half
    matrix, angle = np.eye(head_dim), np.radians(degrees)
    matrix[leading, leading] = matrix[trailing, trailing] = np.cos(angle)
    matrix[trailing, leading], matrix[leading, trailing] = np.sin(angle), -np.sin(angle)
    return matrix


def best_projections(keys, queries, rank):
    """Matrices A and B (replicate, dimension, rank) with K A B'Q' nearest to the scores K Q'."""
    left, right = (np.linalg.qr(rows, mode="r") for rows in (keys, queries))
    u, sizes, vh = np.linalg.svd(left @ right.mT)
    roots = np.sqrt(sizes[:, None, :rank])
    return np.linalg.solve(left, u[..., :rank] * roots), np.linalg.solve(right, vh[:, :rank].mT * roots)


def compress(keys, queries, values, rank, compression, temperature=0.25):
    """Errors of the scores under one compression, and of the outputs of softmax attention."""
    scores = keys @ queries.mT
    output = softmax(scores.mT / temperature, axis=2) @ values

    def errors(left, right):
        found = (keys @ left) @ (queries @ right).mT
        missed = softmax(found.mT / temperature, axis=2) @ values - output
        return ((found - scores) ** 2).sum(axis=(1, 2)), np.linalg.norm(missed, axis=(1, 2))

    squared, error = errors(*best_projections(keys, queries, rank))
    best_error = error
    if compression != "scores":
        rows = keys if compression == "keys" else np.concatenate([keys, queries], axis=1)
        basis = np.linalg.eigh(rows.mT @ rows).eigenvectors[..., -rank:]
        squared, error = errors(basis, basis)
    # The squared singular values of K Q' are the eigenvalues of K'K Q'Q.
    products = np.linalg.eigvals((keys.mT @ keys) @ (queries.mT @ queries)).real
    least, total = np.sort(products)[:, :-rank].sum(axis=1), (scores**2).sum(axis=(1, 2))
    return {
        "score_error": np.sqrt(squared / total),
        "eckart_young_gap": (squared - least) / total,
        "output_error": error / np.linalg.norm(output, axis=(1, 2)),
        "beats_scores": error < best_error,
    }
