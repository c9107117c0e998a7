"""Two t-tests of two normal samples, for t-tests.toml."""

import numpy as np
from scipy import special


def groups(draw, first_sd, second_sd):
    """Samples of 5 and 15 with one mean."""
    return {"a": first_sd * draw.normals(5), "b": second_sd * draw.normals(15)}


def pooled(a, b):
    """Student's test, for equal variances."""
    variance = (4 * a.var(axis=1, ddof=1) + 14 * b.var(axis=1, ddof=1)) / 18
    return _test(a, b, np.sqrt(variance * (1 / 5 + 1 / 15)), 18)


def welch(a, b):
    """Welch's test, for any variances."""
    u, v = a.var(axis=1, ddof=1) / 5, b.var(axis=1, ddof=1) / 15
    return _test(a, b, np.sqrt(u + v), (u + v) ** 2 / (u**2 / 4 + v**2 / 14))


def _test(a, b, error, freedom):
    t = (a.mean(axis=1) - b.mean(axis=1)) / error
    return {"reject": 2 * special.stdtr(freedom, -np.abs(t)) < 0.05}
