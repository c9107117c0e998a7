"""A head and its partner, sinks and gates on keys of one length; heads that share keys.

A key has one coordinate along a query, and logits are sharpness times that.  Noise has variance 1.
"""

import math

import numpy as np
from scipy import special

TARGETS = {  # shares of random harmonics of degree 1, 2, … in the variance of the target
    "degree 1": (1.0,),
    "degree 3": (0.0, 0.0, 1.0),
    "degrees 1 to 3": (0.6, 0.3, 0.1),
}
BEST = {  # sharpness of least risk of one head, 1024 keys in 8 dimensions: exact, by the study ``temperature``
    ("degree 1", 0.25): 8.439128,
    ("degree 1", 1.0): 11.381844,
    ("degree 1", 4.0): 14.522917,
    ("degree 3", 1.0): 16.114884,
    ("degrees 1 to 3", 1.0): 13.111580,
}
PAIRS = {  # weight of the partner, sharpness of both over the best one of a single head, the query of the partner
    "one head": (0.0, 1.0, 1.0, "same"),
    "cold head": (0.0, 2.0, 1.0, "same"),
    "λ = 0.2": (0.2, 0.82, 0.01, "same"),
    "λ = 0.5": (0.5, 0.6, 0.15, "same"),
    "λ = 0.8": (0.8, 0.45, 0.3, "same"),
    "orthogonal, λ = 0.5": (0.5, 1.0, 1.0, "orthogonal"),
    "orthogonal, λ = 0.5, hot": (0.5, 0.3, 0.3, "orthogonal"),
}


def keys_of_one_length(draw, n_keys=1024, head_dim=8):
    """Coordinates of keys, uniform on the unit sphere, along two orthogonal queries: (replicate, key) each."""
    along, other = draw.normals(n_keys), draw.normals(n_keys)
    rest = np.stack([rng.chisquare(head_dim - 2, n_keys) for rng in draw.generators()])
    length = np.sqrt(along**2 + other**2 + rest)
    return {"along": along / length, "other": other / length}


def head_pair(along, other, pair="one head", target="degree 1", signal=1.0, sink=0.0, gate=1.0, head_dim=8):
    """Risk and noise of (f₁ − λ f₂)/(1 − λ), averaged over targets and what keys are across the queries.

    A key of value 0, the sink, has ``sink`` times the expected mass of all keys; ``gate`` is a factor on the output.
    """
    weight, first, second, query = PAIRS[pair]
    best, n_keys = BEST[target, signal], along.shape[1]

    def head(places, sharpness):
        kernel = np.exp(sharpness * (places - 1.0))
        null = sink * n_keys * mean_kernel(head_dim, sharpness) if sink else 0.0
        return kernel / (kernel.sum(axis=1, keepdims=True) + null)

    weights = head(along, first * best)
    if weight:
        partner = head(along if query == "same" else other, second * best)
        weights = (weights - weight * partner) / (1.0 - weight)
    weights = gate * weights
    squares = weights * weights
    noise = squares.sum(axis=1)
    risk = noise
    if query == "orthogonal":  # of two queries known targets are linear
        missed = [(weights * along).sum(axis=1) - 1.0, (weights * other).sum(axis=1)]
        across = (squares * (1.0 - along**2 - other**2)).sum(axis=1)
        risk = risk + signal * (missed[0] ** 2 + missed[1] ** 2 + across)
    else:
        a = (head_dim - 3.0) / 2.0
        for degree, share in enumerate(TARGETS[target], start=1):
            if share:
                mean = special.eval_jacobi(degree, a, a, along) / special.eval_jacobi(degree, a, a, 1.0)
                missed = (weights * mean).sum(axis=1) - 1.0
                risk = risk + signal * share * (missed**2 + (squares * (1.0 - mean**2)).sum(axis=1))
    return {"pair_risk": risk, "pair_noise": n_keys * noise}


def mean_kernel(dimension, sharpness):
    """Mean of exp(sharpness (cosine - 1)) over uniform directions."""
    order = dimension / 2.0 - 1.0
    return math.gamma(order + 1.0) * (2.0 / sharpness) ** order * special.ive(order, sharpness)


def shared_keys(draw, head_dim, groups, heads=12, n_keys=4096):
    """Logits of dot-product heads (replicate, group, head, key): Gaussian keys of a group, random queries of length √p.

    Given the queries, logits of one group are normal and correlated like them; temperature is √p.
    """
    size = heads // groups
    queries = draw.normals(groups, size, head_dim)
    queries = queries / np.linalg.norm(queries, axis=-1, keepdims=True)
    # More heads than dimensions make the matrix singular: roots by its eigenvectors.
    values, vectors = np.linalg.eigh(queries @ queries.mT)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    return {"logits": roots @ draw.normals(groups, size, n_keys)}


def average(logits):
    """Variance that noise gives the average of heads, times keys."""
    weights = np.exp(logits)
    mean = (weights / weights.sum(axis=-1, keepdims=True)).mean(axis=(1, 2))
    return {"grouped_noise": logits.shape[-1] * (mean**2).sum(axis=1)}


def many_keys(head_dim, groups, heads=12):
    """Noise of the average for many keys: two heads give e^cos of the angle of queries on shared keys, else 1."""
    size = heads // groups
    sharing = math.e * mean_kernel(head_dim, 1.0)
    return {"grouped_noise": (math.e + (size - 1) * sharing + heads - size) / heads}
