"""Nadaraya–Watson heads of many replicates: projected keys, estimates, and moments given the keys.

The weights of head h at query q are a softmax over the keys of the logits −|k_q − k_i|²/(2b²) or k_q·k_i/b²
(Nadaraya 1964; Watson 1964; Vaswani et al. 2017).  Keys are processed in tiles; sums over tiles are float64 in both
precisions.
"""

import numpy as np

from simstudy.kernels import few_queries, many_queries
from simstudy.kernels.devices import gpu_kernels, on_cuda
from simstudy.kernels.few_queries import arrays_for
from simstudy.kernels.jit import aligned, writable
from simstudy.kernels.lanes import STRIP
from simstudy.kernels.memory import memory_for
from simstudy.kernels.shifts import scale_of
from simstudy.kernels.vectors import lanes

_WORTH_A_CALL = 1 << 13  # multiplications of a head that take as long as one call of `matmul`


def nw_moments(
    projected_keys: np.ndarray,
    values: np.ndarray,
    variances: np.ndarray | None,
    projected_queries: np.ndarray,
    bandwidth: float,
    logits: str,
    with_mass: bool = False,
    visible: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return estimates (R, Q, H), their covariance given the keys, and logarithms of sums of kernels (R, Q, H).

    Arguments are keys (R, H, p, n), in the precision of the computation, values (R, n), variances (R, n) or None,
    queries (Q, H, p) or (G, Q, H, p), a bandwidth b > 0, and logits "distance" or "dot_product".  The covariance
    (R, Q, H, H) is None without variances, the logarithm without ``with_mass``.  Each query sees only the keys that are
    true in ``visible`` (Q, n); values of all keys must be finite.  Results are NaN if a key is NaN or no logit is
    finite.  The bits for one replicate do not depend on the others.
    """
    given = projected_keys, values, variances, projected_queries
    if on_cuda():
        return gpu_kernels().nw_moments(*given, bandwidth, logits, with_mass)
    real, (arrays, found) = projected_keys.dtype, arrays_for(*given, with_mass)
    (keys, _, _, queries), scale = arrays, scale_of(logits, float(bandwidth), real)
    words = f"u{min(8, lanes(real.itemsize))}"
    seen = (np.empty((0, 0), words),) * 3
    if visible is not None:
        # Flags of the queries of a vector are adjacent, and read as words.
        rest = [(0, -length % STRIP) for length in visible.T.shape]
        flags = writable(np.pad(visible.T, rest) if np.any(rest) else visible.T, bool).view(words)
        strips = flags.reshape(-1, STRIP, flags.shape[1])
        seen = flags, np.bitwise_or.reduce(strips, axis=1), np.bitwise_and.reduce(strips, axis=1)
    module = many_queries if visible is not None or many_queries.worth_while(keys, queries) else few_queries
    module.MOMENTS[real](*arrays, scale, seen, memory_for(*queries.shape[1:], real), *found)
    means, grams, logs = found
    return means, None if variances is None else grams, logs if with_mass else None


def project(keys: np.ndarray, projections: np.ndarray) -> np.ndarray:
    """Return keys (R, d, n) projected by heads (H, d, p), or (G, H, d, p) for G equal parts, as (R, H, p, n).

    It is one matrix product of NumPy for each replicate, or for each head if heads see few features.  Its bits depend
    on the library, which is part of the identity of an engine, and on the number of threads, which is one for batches.
    """
    if on_cuda():
        return gpu_kernels().project(keys, projections)
    n_heads, n_features, head_dim = projections.shape[-3:]
    rows = np.ascontiguousarray(projections.swapaxes(-1, -2), keys.dtype).reshape(-1, 1, n_heads, head_dim, n_features)
    projected = aligned((len(keys), n_heads, head_dim, keys.shape[2]), keys.dtype)
    keys, found = (each.reshape(len(rows), -1, *each.shape[1:]) for each in (keys, projected))
    if not rows[..., 0, [0, -1]].all():  # from the first to the last feature that a head sees
        seen = np.asarray(rows.any(axis=(0, 1, 3)))
        first, last = seen.argmax(axis=1), n_features - seen[:, ::-1].argmax(axis=1)
        if head_dim * keys.shape[3] * (n_features - (last - first).mean()) > _WORTH_A_CALL:
            for head, features in enumerate(map(slice, first, last)):
                np.matmul(rows[:, :, head, :, features], keys[:, :, features], out=found[:, :, head])
            return projected
    flat = n_heads * head_dim, -1
    np.matmul(rows.reshape(len(rows), 1, -1, n_features), keys, out=found.reshape(*keys.shape[:2], *flat))
    return projected
