"""Slow, obvious references, written from the formulas: loops over scalars, nothing of the package."""

import itertools
import math

import numpy as np
from scipy.linalg import subspace_angles
from scipy.optimize import brentq
from scipy.stats import entropy


def score(query, key, bandwidth, logits):
    """Logit of one key (k,) at one query (k,)."""
    if logits == "distance":
        return -sum((a - b) ** 2 for a, b in zip(query, key, strict=True)) / (2 * bandwidth**2)
    return sum(a * b for a, b in zip(query, key, strict=True)) / bandwidth**2


def entmax(logits, power):
    """Weights (z/r − τ)_+^r of sum 1, the threshold by a search."""
    gaps = (np.array(logits) - max(logits)) / power
    threshold = brentq(lambda t: (np.maximum(gaps - t, 0.0) ** power).sum() - 1.0, -1.0, 0.0, xtol=1e-15)
    return np.maximum(gaps - threshold, 0.0) ** power


def normalised(powers):
    """Weights in proportion to some numbers; NaN if all are 0."""
    total = math.fsum(powers)
    return np.array([p / total if total else math.nan for p in powers])


def normalised_by(normaliser, logits):
    """Weights of a normaliser, given as the table of a design file."""
    kind = normaliser["kind"]
    if kind in ("softmax", "local_linear"):
        return normalised([math.exp(z - max(logits)) for z in logits])
    if kind == "top_k":
        least = sorted(logits)[-normaliser["k"] :][0]
        return normalised([math.exp(z - max(logits)) if z >= least else 0.0 for z in logits])
    if kind == "relu":
        return normalised([max(z - normaliser["threshold"], 0.0) for z in logits])
    if kind == "compact":
        squares = [-2 * z / normaliser.get("window", 1.0) ** 2 for z in logits]
        return normalised([max(1 - u2, 0.0) ** normaliser["power"] for u2 in squares])
    return entmax(logits, normaliser.get("power", 1))


def intercept(kernel, keys, query, ridge):
    """Weights (i,) of the intercept at a query of a line by weighted least squares, its slope penalised."""
    columns = np.array([[1.0, *(key - query)] for key in keys])
    normal = sum(k * np.outer(row, row) for k, row in zip(kernel, columns, strict=True))
    normal += ridge * np.diag([0.0] + [1.0] * len(query))
    return np.array([k * np.linalg.inv(normal)[0] @ row for k, row in zip(kernel, columns, strict=True)])


def merged(x, stride):
    """Means of consecutive chunks of the rows of x, and how many rows each has."""
    chunks = [x[start : start + stride] for start in range(0, len(x), stride)]
    return np.array([np.mean(chunk, axis=0) for chunk in chunks]), [len(chunk) for chunk in chunks]


def low_rank_scores(keys, queries, rank, method):
    """Approximation of K Qᵀ, keys (i, k), queries (q, k), by projections of whole matrices."""
    if method == "scores":
        u, s, v = np.linalg.svd(keys @ queries.T)
        return sum(s[j] * np.outer(u[:, j], v[j]) for j in range(min(rank, len(s))))
    matrix = keys if method == "keys" else np.vstack([keys, queries])
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    leading = vectors[:, np.argsort(values)[::-1][:rank]]
    return keys @ leading @ leading.T @ queries.T


def moments(mechanism, keys, values, variances, queries, bandwidth):
    """Means (q, h) and Gram (q, h, g) of one replicate.

    Of keys (h, i, k), values and variances (i,), and queries (q, h, k).
    """
    transformation = mechanism.get("transformation", {"kind": "none"})
    logits, normaliser = mechanism.get("logits", "distance"), mechanism.get("normaliser", {"kind": "softmax"})
    if transformation["kind"] == "merge":
        stride = transformation["stride"]
        values, sizes = merged(values, stride)
        variances = merged(variances, stride)[0] / sizes
        keys = np.array([merged(head, stride)[0] for head in keys])
    table = np.zeros((len(queries), len(keys), len(values)))
    for h, head in enumerate(keys):
        for q in range(len(queries)):
            table[q, h] = [score(queries[q, h], key, bandwidth, logits) for key in head]
        if transformation["kind"] == "low_rank":
            scores = low_rank_scores(head, queries[:, h], transformation["rank"], transformation["method"])
            table[:, h] = scores.T / bandwidth**2
    product = mechanism.get("combination", {}).get("logits")
    if product:
        table = table.sum(axis=1, keepdims=True) / (len(keys) if product == "mean" else 1)
    w = np.array([[normalised_by(normaliser, list(row)) for row in rows] for rows in table])
    if normaliser["kind"] == "local_linear":
        for q, h in np.ndindex(w.shape[:2]):
            w[q, h] = intercept(w[q, h], keys[h], queries[q, h], normaliser.get("ridge", 0.0) * bandwidth**2)
    return w @ values, np.einsum("qhi,qgi,i->qhg", w, w, variances)


def weights(keys, query, key_projection, query_projection, bandwidth, logits):
    """Softmax weights of one head at one query; keys (n, d), query (d,), projections (d, p)."""
    scores = [score(query @ query_projection, key @ key_projection, bandwidth, logits) for key in keys]
    return normalised_by({"kind": "softmax"}, scores)


def performance(estimates, target, combination):
    """Measures of head estimates (replicate, query, head) by means over replicates alone, averaged over queries."""
    _, n_queries, n_heads = estimates.shape
    pairs = list(itertools.permutations(range(n_heads), 2))
    rows = []
    for q in range(n_queries):
        covariance = np.cov(estimates[:, q].T, ddof=0).reshape(n_heads, n_heads)
        combined = estimates[:, q] @ np.asarray(combination)
        uniform = estimates[:, q].mean(axis=1)
        correlation = [covariance[h, g] / math.sqrt(covariance[h, h] * covariance[g, g]) for h, g in pairs]
        found = {
            "squared_bias": (combined.mean() - target[q]) ** 2,
            "mean_squared_bias": np.mean((estimates[:, q].mean(axis=0) - target[q]) ** 2),
            "mean_variance": np.trace(covariance) / n_heads,
            "mean_covariance": np.mean([covariance[h, g] for h, g in pairs]),
            "ensemble_variance": combined.var(),
            "mse": np.mean((combined - target[q]) ** 2),
            "ambiguity": np.mean([(estimates[:, q, h] - uniform) ** 2 for h in range(n_heads)]),
            "correlation": np.mean(correlation),
        }
        rows.append(found)
    result = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    uniform = result["mean_variance"] / n_heads + (1 - 1 / n_heads) * result["mean_covariance"]
    return result | {"effective_heads": result["mean_variance"] / uniform}


def turned(angles, basis):
    """Two heads (2, d, p) with these principal angles, in radians, along columns of an orthonormal basis (d, 2p)."""
    first, normal = basis[:, : len(angles)], basis[:, len(angles) : 2 * len(angles)]
    return np.stack([first, first * np.cos(angles) + normal * np.sin(angles)])


def diversity(projections, bandwidth):
    n_heads, _, p = projections.shape
    t = np.array([subspace_angles(w, u) for w, u in itertools.combinations(projections, 2)])  # (pair, direction)
    c2 = np.mean(np.cos(t) ** 2)
    kappa = 1 / (1 + bandwidth**2)
    projectors = [w @ np.linalg.pinv(w) for w in projections]
    gamma = np.array([[np.trace(a @ b) / p for b in projectors] for a in projectors])
    return {
        "chordal": 1 - c2,
        "participation": n_heads / (1 + (n_heads - 1) * c2),
        "entropy": np.exp(entropy(np.maximum(np.linalg.eigvalsh(sum(projectors)), 0))) / p,
        "logdet": np.mean(-0.5 * np.log((1 - kappa**2) / (1 - kappa**2 * np.cos(t) ** 2)).sum(axis=1)),
        "volume": np.mean(np.sin(t).prod(axis=1)),
        "vendi": np.exp(entropy(np.maximum(np.linalg.eigvalsh(gamma), 0))),
        "min_angle": np.mean(np.sin(t).min(axis=1)),
    }
