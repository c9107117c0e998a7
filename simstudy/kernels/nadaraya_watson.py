"""Nadaraya–Watson heads of many replicates: estimates, and moments given the keys.

The weights of head h at query q are a softmax over the keys of the logits −|k_q − k_i|²/(2b²) or k_q·k_i/b²
(Nadaraya 1964; Watson 1964; Vaswani et al. 2017).  Keys pass in tiles; sums over tiles are float64 in either
precision.
"""

from __future__ import annotations

import numpy as np

from simstudy.kernels import few_queries, many_queries
from simstudy.kernels.jit import writable
from simstudy.kernels.shifts import law_of


def nw_moments(
    projected_keys: np.ndarray,
    values: np.ndarray,
    variances: np.ndarray | None,
    projected_queries: np.ndarray,
    bandwidth: float,
    logits: str,
    with_mass: bool = False,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return estimates (R, Q, H), their covariance given the keys, and logarithms of sums of kernels (R, Q, H).

    Of keys (R, H, p, n), whose precision is that of the computation, values (R, n), variances (R, n) or None, queries
    (Q, H, p) or (R, Q, H, p), a bandwidth b > 0 and logits −|·|²/(2b²) or (·)/b².  The covariance (R, Q, H, H) is None
    without variances, the logarithm if not asked for.  All are NaN where a key is NaN or no logit is finite.  The bits
    for one replicate do not depend on the others.
    """
    real = projected_keys.dtype
    # Feature-major as the keys are, (R or 1, H, p, Q).
    queries = projected_queries.reshape((-1, *projected_queries.shape[-3:])).transpose(0, 2, 3, 1)
    keys, queries, law = writable(projected_keys, real), writable(queries, real), law_of(logits, float(bandwidth), real)
    noise = np.empty((len(keys), 0)) if variances is None else variances
    data = writable(values, real), writable(noise, real)
    if many_queries.worth_while(keys, queries):
        *found, done = many_queries.moments(keys, *data, queries, law, with_mass)
        # Queries that are not done take the careful formula.
        for r in np.flatnonzero(~done.all(axis=1)):
            left, one = np.flatnonzero(~done[r]), slice(r, r + 1)
            rest = np.ascontiguousarray(queries[r if len(queries) > 1 else 0][None, ..., left])
            again = few_queries.moments(keys[one], data[0][one], data[1][one], rest, law, with_mass)
            for whole, piece in zip(found, again, strict=True):
                if whole.size:
                    whole[r, left] = piece[0]
    else:
        found = list(few_queries.moments(keys, *data, queries, law, with_mass))
    means, grams, logs = found
    return means, None if variances is None else grams, logs if with_mass else None
