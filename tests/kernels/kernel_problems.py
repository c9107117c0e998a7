"""Random inputs of the Nadaraya–Watson kernels, their naive solution, and the error that rounding explains."""

from dataclasses import dataclass, replace

import numpy as np

from simstudy.kernels import compact_moments, nw_moments

WINDOWED = {"float32": 2e-5, "float64": 2e-13}
"""Errors of compact kernels."""


@dataclass(frozen=True)
class Problem:
    """Arguments of a kernel: keys (R, H, p, n), values and variances (R, n), queries (Q, H, p) or (R, Q, H, p)."""

    keys: np.ndarray
    values: np.ndarray
    variances: np.ndarray
    queries: np.ndarray
    bandwidth: float = 1.0
    logits: str = "distance"
    window: tuple[float, int] | None = None
    """Radius and power of a compact kernel."""

    def moments(self):
        return self._by(self.variances)

    def estimates(self):
        return self._by(None)[0]

    def _by(self, variances):
        arrays = self.keys, self.values, variances, self.queries
        if self.window:
            return compact_moments(*arrays, *self.window)
        return nw_moments(*arrays, self.bandwidth, self.logits, variances is not None)

    def part(self, rows):
        queries = self.queries[rows] if self.queries.ndim == 4 else self.queries
        keys, values, variances = self.keys[rows], self.values[rows], self.variances[rows]
        return replace(self, keys=keys, values=values, variances=variances, queries=queries)


def problem(shape, logits="distance", precision="float64", bandwidth=0.7, spread=1.0, own_queries=False, window=None):
    """Standard normal keys and values; queries of standard deviation ``spread``; shape (R, Q, H, p, n)."""
    n_replicates, n_queries, n_heads, p, n = shape
    rng = np.random.default_rng(0)
    replicates = (n_replicates,) if own_queries else ()
    keys, values = rng.standard_normal((n_replicates, n_heads, p, n)), rng.standard_normal((n_replicates, n))
    variances = rng.uniform(0.1, 2.0, (n_replicates, n))
    queries = spread * rng.standard_normal((*replicates, n_queries, n_heads, p))
    return Problem(*(each.astype(precision) for each in (keys, values, variances, queries)), bandwidth, logits, window)


def naive_moments(given):
    """Mean (R, Q, H), noise Gram (R, Q, H, H) and logarithms of sums of kernels (R, Q, H), formula by formula.

    On whole arrays, as loops over scalars would take minutes, and in the widest precision of the machine.  Kernels are
    (1 - |k - q|²/radius²)_+^power where there is a window.
    """
    radius, power = given.window or (None, None)
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
    """Compare with the naive solution, and return means and Gram matrices."""
    expected, found = naive_moments(given), given.moments()
    bounds = rounding(given) * np.array([np.abs(given.values).max(), 2 * given.variances.max(), 1.0])
    bounds = [WINDOWED[given.keys.dtype.name]] * 2 if given.window else bounds
    np.testing.assert_allclose(given.estimates(), expected[0], rtol=0, atol=bounds[0])
    for one, other, bound in zip(found, expected, bounds, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=bound)
    np.testing.assert_array_equal(found[1], found[1].swapaxes(-1, -2))
    return found[:2]
