"""Random inputs of the Nadaraya–Watson kernels, their naive solution, and the error that rounding explains."""

from dataclasses import dataclass

import numpy as np

from simstudy.kernels import nw_moments


@dataclass(frozen=True)
class Problem:
    """Arguments of `nw_moments`: keys (R, H, p, n), values and variances (R, n), queries (Q, H, p) or (R, Q, H, p)."""

    keys: np.ndarray
    values: np.ndarray
    variances: np.ndarray
    queries: np.ndarray
    bandwidth: float
    logits: str

    def moments(self):
        return nw_moments(self.keys, self.values, self.variances, self.queries, self.bandwidth, self.logits, True)

    def estimates(self):
        return nw_moments(self.keys, self.values, None, self.queries, self.bandwidth, self.logits)[0]

    def part(self, rows):
        queries = self.queries[rows] if self.queries.ndim == 4 else self.queries
        return Problem(self.keys[rows], self.values[rows], self.variances[rows], queries, self.bandwidth, self.logits)


def problem(shape, logits="distance", precision="float64", bandwidth=0.7, spread=1.0, seed=0, own_queries=False):
    """Standard normal keys and values; queries of standard deviation ``spread``; shape (R, Q, H, p, n)."""
    n_replicates, n_queries, n_heads, p, n = shape
    rng = np.random.default_rng(seed)
    replicates = (n_replicates,) if own_queries else ()
    keys, values = rng.standard_normal((n_replicates, n_heads, p, n)), rng.standard_normal((n_replicates, n))
    variances = rng.uniform(0.1, 2.0, (n_replicates, n))
    queries = spread * rng.standard_normal((*replicates, n_queries, n_heads, p))
    return Problem(*(each.astype(precision) for each in (keys, values, variances, queries)), bandwidth, logits)


def naive_moments(given, radius=None, power=None):
    """Mean (R, Q, H), noise Gram (R, Q, H, H) and logarithms of sums of kernels (R, Q, H), formula by formula.

    On whole arrays, as loops over scalars would take minutes, and in the widest precision of the machine.  Kernels are
    (1 - |k - q|²/radius²)_+^power where these are given.
    """
    arrays = given.keys, given.values, given.variances, given.queries
    keys, values, variances, queries = (array.astype(np.longdouble) for array in arrays)
    # Replicate, query, head, dimension, key.
    queries = np.broadcast_to(queries, (len(keys), *queries.shape[-3:]))[..., None]
    squares = ((queries - keys[:, None]) ** 2).sum(axis=3)
    if given.logits == "distance":
        scores = -squares / (2 * np.longdouble(given.bandwidth) ** 2)
    else:
        scores = (queries * keys[:, None]).sum(axis=3) / np.longdouble(given.bandwidth) ** 2
    largest = scores.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):  # where no key has a weight
        powers = np.exp(scores - largest) if power is None else np.maximum(1.0 - squares / radius**2, 0.0) ** power
        total = powers.sum(axis=-1, keepdims=True)
        weights, logs = powers / total, (largest + np.log(total))[..., 0]
    mean = (weights * values[:, None, None]).sum(axis=-1)
    gram = (weights * variances[:, None, None]) @ weights.swapaxes(-1, -2)
    return tuple(array.astype(float) for array in ((mean, gram, logs) if power is None else (mean, gram)))


def rounding(given):
    """Bound on the relative error of a weight, first order: every operation on a logit errs by eps of its terms.

    Keys that matter lie within some 40 of the largest logit; for distances only that largest one and the 40 count.  Of
    numbers that are not finite there is no error.
    """
    keys, queries = np.nan_to_num(given.keys.astype(float), posinf=0.0), given.queries.astype(float)
    queries = np.broadcast_to(queries, (len(keys), *queries.shape[-3:]))[..., None]
    p = keys.shape[2]
    if given.logits == "distance":
        sizes = ((queries - keys[:, None]) ** 2).sum(axis=-2) / given.bandwidth / (2 * given.bandwidth)
        size = sizes.min(axis=-1).max() + 40
    else:
        size = np.abs(queries * keys[:, None]).sum(axis=-2).max() / given.bandwidth / given.bandwidth + 40
    return np.finfo(given.keys.dtype).eps / 2 * (p + 6) * size


def assert_solved(given):
    """Compare with the naive solution, and return the Gram matrices."""
    mean, gram, logs = naive_moments(given)
    found_mean, found_gram, found_logs = given.moments()
    tolerance = rounding(given)
    scale = np.abs(given.values).max()
    np.testing.assert_allclose(found_mean, mean, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(given.estimates(), mean, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(found_logs, logs, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found_gram, gram, rtol=0, atol=2 * tolerance * given.variances.max())
    np.testing.assert_array_equal(found_gram, found_gram.swapaxes(-1, -2))
    return found_gram
