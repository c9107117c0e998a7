"""Performance measures of estimates, intervals and tests: numbers of single replicates, and functions of means."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
OfMeans = Callable[[Mapping[str, Array]], Array]
"""A measure as a function of means (case,) by name, among them the mean of its formula in `KNOWN`."""
FAILURE_RATE = "failure_rate"  # a measure of all functions
OF_TABLES = ("relative_precision", "bias_eliminated_coverage", "convergence")
"""Measures that need all estimates at once."""
CATALOGUE = """[functions: source cell]
bias | unit of the estimate | difference between an estimate and the truth | estimate - truth
mean_squared_error | unit of the estimate, squared | squared difference between an estimate and the truth |
    (estimate - truth)^2
variance | unit of the estimate, squared | variance of the errors of an estimate | mean_squared_error - bias^2
relative_bias | 1 | bias relative to the truth | estimate / truth - 1
empirical_se | unit of the estimate | standard deviation of the errors of an estimate | sqrt(variance)
root_mean_squared_error | unit of the estimate | root of the mean squared error | sqrt(mean_squared_error)
model_se | unit of the estimate | root of the mean squared standard error that a method states | sqrt(E se^2)
relative_error_of_model_se | 1 | error of the standard errors that a method states, relative to the empirical one |
    model_se / empirical_se - 1
coverage | 1 | share of intervals that cover the truth, ends included | lower <= truth <= upper
interval_length | unit of the estimate | length of an interval | upper - lower
rejection_rate | 1 | share of tests that reject | reject
bias_eliminated_coverage | 1 | share of intervals that cover the mean estimate; by simstudy.performance
relative_precision | 1 | variance of a reference method over that of a method, minus 1; by simstudy.performance
convergence | 1 | share of data sets in which a method gives all its results; by simstudy.performance
"""
_OF_ERRORS = ("bias", "mean_squared_error", "variance")


def covers(lower: Array, upper: Array, truth: Array) -> Array:
    """Return 1 where an interval covers the truth, ends included, else 0; NaN where any argument is NaN."""
    return np.where(np.isnan(lower) | np.isnan(upper) | np.isnan(truth), np.nan, (lower <= truth) & (truth <= upper))


_ERROR = ("estimate", "truth")
_SQUARED: tuple[tuple[str, ...], Callable[..., Any]] = (_ERROR, lambda estimate, truth: (estimate - truth) ** 2)
_SQUARED_SE: tuple[tuple[str, ...], Callable[..., Any]] = (("se",), lambda se: se**2)
KNOWN: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "bias": (_ERROR, lambda estimate, truth: estimate - truth),
    "relative_bias": (_ERROR, np.errstate(all="ignore")(lambda estimate, truth: estimate / truth - 1.0)),
    **dict.fromkeys(("mean_squared_error", "variance", "empirical_se", "root_mean_squared_error"), _SQUARED),
    **dict.fromkeys(("model_se", "relative_error_of_model_se"), _SQUARED_SE),
    "coverage": (("lower", "upper", "truth"), covers),
    "interval_length": (("lower", "upper"), lambda lower, upper: upper - lower),
    "rejection_rate": (("reject",), lambda reject: reject),
}
"""Measures that need no function of the user: names of their arguments, and the formula for one replicate."""
OF_MEANS: dict[str, OfMeans] = {
    "variance": lambda mean: mean["variance"] - mean["bias"] ** 2,
    "empirical_se": lambda mean: np.sqrt(mean["empirical_se"] - mean["bias"] ** 2),
    "root_mean_squared_error": lambda mean: np.sqrt(mean["root_mean_squared_error"]),
    "model_se": lambda mean: np.sqrt(mean["model_se"]),
    "relative_error_of_model_se": lambda mean: mean["model_se"] / mean["empirical_se"] - 1.0,
}
"""Measures that are functions of means, in the order of computation."""


def measured_with(stated: Iterable[str]) -> tuple[str, ...]:
    """Return measures with those from which they are computed; measures of errors come first and together."""
    names = [*stated]
    names += ["empirical_se", "model_se"] if "relative_error_of_model_se" in names else []
    errors = _OF_ERRORS if {*_OF_ERRORS, "empirical_se"} & {*names} else ()
    return (*errors, *(name for name in dict.fromkeys(names) if name not in (*_OF_ERRORS, FAILURE_RATE)))
