"""Nadaraya–Watson heads of many replicates: estimates, and moments given the keys.

The weights of head h at query q are a softmax over the keys of the logits −|k_q − k_i|²/(2b²) or k_q·k_i/b²
(Nadaraya 1964; Watson 1964; Vaswani et al. 2017).  Keys pass in tiles; sums over tiles are float64 in either
precision.
"""

from __future__ import annotations

import numpy as np

from simstudy.kernels import few_queries, many_queries
from simstudy.kernels.jit import writable
from simstudy.kernels.shifts import Law, law_of


def nw_moments(
    projected_keys: np.ndarray,
    values: np.ndarray,
    variances: np.ndarray | None,
    projected_queries: np.ndarray,
    bandwidth: float,
    logits: str,
    with_mass: bool = False,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Estimates of every head at every query in every replicate; their covariance given the keys, where noise has one.

    Parameters
    ----------
    projected_keys : array (R, H, p, n), float64 or float32
        W_hᵀ X_i, feature-major; its precision is that of the computation.
    values : array (R, n)
        Y_i, or m(X_i).
    variances : array (R, n) or None
        Var(ε_i | X_i) ≥ 0, so that noise need not be drawn; None if the values have theirs.
    projected_queries : array (Q, H, p) or (R, Q, H, p)
        W_hᵀ x_q: the same for all replicates, or one set for each.
    bandwidth : float
        b > 0; the softmax temperature is b².
    logits : {"distance", "dot_product"}
        −|·|²/(2b²) or (·)/b².
    with_mass : bool
        Whether the third array is wanted, which takes 12 ns for each head at each query.

    Returns
    -------
    mean : float64 array (R, Q, H)
        sum_i w_hi values_i.
    noise_gram : float64 array (R, Q, H, H) or None
        sum_i w_hi w_gi Var(ε_i | X_i), symmetric to the bit; σ² times the weight Gram where the variance is σ².
    log_mass : float64 array (R, Q, H) or None
        ln sum_i exp(logit_hi): what the softmax divides by.
        All are NaN where they are undefined: a NaN among the keys, or no finite logit.  The bits for one replicate do
        not depend on the others.
    """
    keys, queries, law = _arguments_of(projected_keys, projected_queries, bandwidth, logits)
    noise = np.empty((len(keys), 0)) if variances is None else variances
    data = writable(values, keys.dtype), writable(noise, keys.dtype)
    if many_queries.worth_while(keys, queries):
        *found, done = many_queries.moments(keys, *data, queries, law, with_mass)
        _recompute(found, done, keys, data, queries, law)
    else:
        found = list(few_queries.moments(keys, *data, queries, law, with_mass))
    means, grams, logs = found
    return means, None if variances is None else grams, logs if with_mass else None


def _recompute(
    found: list[np.ndarray], done: np.ndarray, keys: np.ndarray, data: tuple[np.ndarray, ...], queries: np.ndarray,
    law: Law,
) -> None:  # fmt: skip
    """Replace what `many_queries.moments` found where it is not done by what `few_queries.moments` does."""
    for r in np.flatnonzero(~done.all(axis=1)):
        left = np.flatnonzero(~done[r])
        rest = np.ascontiguousarray(queries[r if len(queries) > 1 else 0][None, ..., left])
        values, variances = (each[r : r + 1] for each in data)
        one = few_queries.moments(keys[r : r + 1], values, variances, rest, law, found[2].size > 0)
        for whole, piece in zip(found, one, strict=True):
            if whole.size:
                whole[r, left] = piece[0]


def _arguments_of(
    projected_keys: np.ndarray, projected_queries: np.ndarray, bandwidth: float, logits: str
) -> tuple[np.ndarray, np.ndarray, Law]:
    """Return keys and queries as kernels take them, and the law of the weights."""
    real = projected_keys.dtype
    # Feature-major as the keys are, (R or 1, H, p, Q).
    queries = projected_queries.reshape((-1, *projected_queries.shape[-3:])).transpose(0, 2, 3, 1)
    return writable(projected_keys, real), writable(queries, real), law_of(logits, float(bandwidth), real)
