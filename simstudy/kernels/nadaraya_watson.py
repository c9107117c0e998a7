"""Nadaraya–Watson heads of many replicates: estimates, and moments given the keys.

The weights of head h at query q are a softmax over the keys of the logits −|k_q − k_i|²/(2b²) or k_q·k_i/b²
(Nadaraya 1964; Watson 1964; Vaswani et al. 2017).  Keys pass in tiles; sums over tiles are float64 in either
precision.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simstudy.kernels import few_queries, many_queries
from simstudy.kernels.jit import writable
from simstudy.kernels.shifts import Law, law_of


def nw_estimates(
    projected_keys: np.ndarray, values: np.ndarray, projected_queries: np.ndarray, bandwidth: float, logits: str
) -> np.ndarray:
    """Estimate every head at every query in every replicate.

    Parameters
    ----------
    projected_keys : array (R, H, p, n), float64 or float32
        W_hᵀ X_i, feature-major; its precision is that of the computation.
    values : array (R, n)
        Y_i.
    projected_queries : array (Q, H, p) or (R, Q, H, p)
        W_hᵀ x_q: the same for all replicates, or one set for each.
    bandwidth : float
        b > 0; the softmax temperature is b².
    logits : {"distance", "dot_product"}
        −|·|²/(2b²) or (·)/b².

    Returns
    -------
    float64 array (R, Q, H)
        sum_i w_i Y_i.  NaN where it is undefined: a NaN among the keys, or no finite logit.  The bits for one
        replicate do not depend on the others.
    """
    keys, queries, law = arguments_of(projected_keys, projected_queries, bandwidth, logits)
    values = writable(values, keys.dtype)
    if not many_queries.worth_while(keys, queries):
        return few_queries.estimates(keys, values, queries, law)
    estimates, done = many_queries.estimates(keys, values, queries, law)
    for part, place, rest in queries_left(done, queries):
        estimates[place] = few_queries.estimates(keys[part], values[part], rest, law)[0]
    return estimates


def nw_moments(
    projected_keys: np.ndarray,
    values: np.ndarray,
    variances: np.ndarray,
    projected_queries: np.ndarray,
    bandwidth: float,
    logits: str,
    with_mass: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Mean and covariance of the head estimates given the keys, so that noise need not be drawn.

    Parameters
    ----------
    projected_keys, projected_queries, bandwidth, logits
        As in `nw_estimates`.
    values : array (R, n)
        m(X_i).
    variances : array (R, n)
        Var(ε_i | X_i) ≥ 0.
    with_mass : bool
        Whether the third array is wanted, which takes 12 ns for each head at each query.

    Returns
    -------
    mean : float64 array (R, Q, H)
        sum_i w_hi m(X_i).
    noise_gram : float64 array (R, Q, H, H)
        sum_i w_hi w_gi Var(ε_i | X_i), symmetric to the bit; σ² times the weight Gram where the variance is σ².
    log_mass : float64 array (R, Q, H) or None
        ln sum_i exp(logit_hi): what the softmax divides by.
        All are NaN where `nw_estimates` is.
    """
    keys, queries, law = arguments_of(projected_keys, projected_queries, bandwidth, logits)
    values, variances = writable(values, keys.dtype), writable(variances, keys.dtype)
    if many_queries.worth_while(keys, queries):
        *found, done = many_queries.moments(keys, values, variances, queries, law, with_mass)
        for part, place, rest in queries_left(done, queries):
            one = few_queries.moments(keys[part], values[part], variances[part], rest, law, with_mass)
            for whole, piece in zip(found if with_mass else found[:2], one, strict=False):
                whole[place] = piece[0]
    else:
        found = list(few_queries.moments(keys, values, variances, queries, law, with_mass))
    means, grams, logs = found
    return means, grams, logs if with_mass else None


def queries_left(done: np.ndarray, queries: np.ndarray) -> Iterator[tuple[slice, tuple[int, np.ndarray], np.ndarray]]:
    """Yield replicates with queries that are not done: replicate, place of these queries, and the queries."""
    if done.all():
        return
    for r in np.flatnonzero(~done.all(axis=1)):
        left = np.flatnonzero(~done[r])
        own = queries[r if len(queries) > 1 else 0]
        yield slice(r, r + 1), (int(r), left), np.ascontiguousarray(own[None, ..., left])


def arguments_of(
    projected_keys: np.ndarray, projected_queries: np.ndarray, bandwidth: float, logits: str
) -> tuple[np.ndarray, np.ndarray, Law]:
    """Return keys and queries as kernels take them, and the law of the weights."""
    real = projected_keys.dtype
    # Feature-major as the keys are, (R or 1, H, p, Q).
    queries = projected_queries.reshape((-1, *projected_queries.shape[-3:])).transpose(0, 2, 3, 1)
    return writable(projected_keys, real), writable(queries, real), law_of(logits, float(bandwidth), real)
