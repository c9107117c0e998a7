"""Two t-tests of two normal samples with one mean, for t-tests.toml."""

from scipy import stats


def groups(draw, sd):
    """Samples of 5, with a standard deviation, and of 15, with 1."""
    return {"a": sd * draw.normals(5), "b": draw.normals(15)}


def pooled(a, b):
    """Student's test, for equal variances."""
    return {"reject": stats.ttest_ind(a, b, axis=1).pvalue < 0.05}


def welch(a, b):
    """Welch's test, for any variances."""
    return {"reject": stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue < 0.05}
