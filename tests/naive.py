"""Slow, obvious references, written from the formulas: loops over scalars, nothing of the package."""

import itertools
import math

import naive_mechanisms
import numpy as np


def weights(keys, query, key_projection, query_projection, bandwidth, logits):
    """Softmax weights of one head at one query; keys (n, d), query (d,), projections (d, p)."""

    def image(vector, projection):
        return [sum(projection[j, k] * vector[j] for j in range(len(vector))) for k in range(projection.shape[1])]

    point = image(query, query_projection)
    scores = [naive_mechanisms.score(point, image(key, key_projection), bandwidth, logits) for key in keys]
    return naive_mechanisms.weights({"kind": "softmax"}, scores)


def ensemble(keys, values, queries, projections, bandwidth, logits, combination):
    """Head estimates (q, h), ensemble (q), weight Gram (q, h, g) of one data set."""
    n_heads = len(projections)
    estimates, grams = np.zeros((len(queries), n_heads)), np.zeros((len(queries), n_heads, n_heads))
    for q, query in enumerate(queries):
        w = [weights(keys, query, projections[h], projections[h], bandwidth, logits) for h in range(n_heads)]
        for h in range(n_heads):
            estimates[q, h] = math.fsum(w[h][i] * values[i] for i in range(len(values)))
            for g in range(n_heads):
                grams[q, h, g] = math.fsum(w[h][i] * w[g][i] for i in range(len(values)))
    return estimates, estimates @ np.asarray(combination), grams


def performance(estimates, target, combination):
    """Measures of head estimates (replicate, query, head) by the textbook formulas, averaged over queries."""
    _, n_queries, n_heads = estimates.shape
    pairs = list(itertools.permutations(range(n_heads), 2))
    rows = []
    for q in range(n_queries):
        covariance = np.cov(estimates[:, q].T, ddof=1).reshape(n_heads, n_heads)
        combined = estimates[:, q] @ np.asarray(combination)
        variance = combined.var(ddof=1)
        bias2 = (combined.mean() - target[q]) ** 2 - variance / len(combined)
        heads_bias2 = [
            (estimates[:, q, h].mean() - target[q]) ** 2 - covariance[h, h] / len(combined) for h in range(n_heads)
        ]
        uniform = estimates[:, q].mean(axis=1)
        correlation = [covariance[h, g] / math.sqrt(covariance[h, h] * covariance[g, g]) for h, g in pairs]
        rows.append(
            {
                "squared_bias": bias2,
                "mean_squared_bias": np.mean(heads_bias2),
                "mean_variance": np.trace(covariance) / n_heads,
                "mean_covariance": np.mean([covariance[h, g] for h, g in pairs]),
                "ensemble_variance": variance,
                "mse": np.mean((combined - target[q]) ** 2),
                "ambiguity": np.mean([(estimates[:, q, h] - uniform) ** 2 for h in range(n_heads)]),
                "correlation": np.mean(correlation),
            }
        )
    result = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    uniform = result["mean_variance"] / n_heads + (1 - 1 / n_heads) * result["mean_covariance"]
    return result | {"effective_heads": result["mean_variance"] / uniform}


def _basis(projection):
    """Gram-Schmidt on the columns of one projection."""
    columns = []
    for column in projection.T:
        for earlier in columns:
            column = column - (column @ earlier) * earlier
        columns.append(column / math.sqrt(column @ column))
    return np.array(columns).T


def cosines(first, second):
    """Cosines of the principal angles of two projections, descending, from the eigenvalues of MᵀM, M = U_hᵀU_g."""
    overlap = _basis(first).T @ _basis(second)
    return np.sqrt(np.clip(np.linalg.eigvalsh(overlap.T @ overlap), 0, 1))[::-1]


def _perplexity(values):
    total = sum(values)
    return math.exp(-sum(v / total * math.log(v / total) for v in values if v > 1e-14 * total))


def diversity(projections, bandwidth):
    """Diversity indices by name, from their definitions."""
    n_heads, _, p = projections.shape
    pairs = list(itertools.combinations(range(n_heads), 2))
    c = {pair: cosines(projections[pair[0]], projections[pair[1]]) for pair in pairs}
    c2 = np.mean([np.mean(c[pair] ** 2) for pair in pairs])
    kappa = 1 / (1 + bandwidth**2)
    projectors = [_basis(w) @ _basis(w).T for w in projections]
    gamma = np.array([[np.trace(a @ b) / p for b in projectors] for a in projectors])
    logdets = [-0.5 * sum(math.log((1 - kappa**2) / (1 - kappa**2 * x * x)) for x in c[pair]) for pair in pairs]
    return {
        "chordal": 1 - c2,
        "participation": n_heads / (1 + (n_heads - 1) * c2),
        "entropy": _perplexity(np.linalg.eigvalsh(sum(projectors))) / p,
        "logdet": np.mean(logdets),
        "volume": np.mean([math.prod(math.sqrt(max(0.0, 1 - x * x)) for x in c[pair]) for pair in pairs]),
        "vendi": _perplexity(np.linalg.eigvalsh(gamma / n_heads)),
        "min_angle": np.mean([math.sqrt(max(0.0, 1 - max(c[pair]) ** 2)) for pair in pairs]),
    }
