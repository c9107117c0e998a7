"""Values that claims state as formulas, from the theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simstudy import theory
from simstudy.design.formulas import Formula
from simstudy.design.settings.ensembles import FibonacciCombination, GeometricCombination, weights_of
from simstudy.theory.systems import masks
from simstudy.theory.systems.hopfield import noise_factor


def _dot_product_floor(length: float) -> float:
    return float(theory.dot_product_correlation([length, 0.0], [0.0, length], np.eye(2)))


def _correlation_floor(head_dim: int, bandwidth: float) -> float:
    return (1 - (1 / (1 + bandwidth**2)) ** 2) ** (head_dim / 2)


def _origin_variance(n_keys: int, head_dim: int, bandwidth: float) -> float:
    middle = np.zeros(head_dim)
    return float(theory.noise_ratio(middle, middle, middle, bandwidth)) / n_keys


def _query_averaged_heads(n_heads: int, head_dim: int, bandwidth: float) -> float:
    # Covariances of orthogonal heads average to 1 over n, variances to those of aligned heads.
    covariance = 1 / float(theory.averaged_noise_ratio(np.zeros(head_dim), bandwidth))
    return n_heads / (1 + (n_heads - 1) * covariance)


def _fibonacci_learners(n_heads: int) -> float:
    return theory.effective_learners(np.array(weights_of(FibonacciCombination(kind="fibonacci"), n_heads)))


def _geometric_learners(n_heads: int, ratio: float) -> float:
    return theory.effective_learners(np.array(weights_of(GeometricCombination(kind="geometric", ratio=ratio), n_heads)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "tuned_risk_ratio": theory.tuned_risk_ratio,
    "correlation_floor": _correlation_floor,
    "origin_variance": _origin_variance,
    "dot_product_floor": _dot_product_floor,
    "query_averaged_heads": _query_averaged_heads,
    "limiting_slope": theory.limiting_slope,
    "fibonacci_learners": _fibonacci_learners,
    "geometric_learners": _geometric_learners,
    "noise_factor": noise_factor,
    "nearest_sum_rate": masks.nearest_sum_rate,
    "needed_width_rate": masks.needed_width_rate,
    "best_average_rate": masks.best_average_rate,
}
"""What evaluates each formula; its parameters are the fields of the record."""


def claimed(value: float | str | Formula) -> float:
    """Return the number that a claim states or quotes, or that its formula gives."""
    if isinstance(value, (float, str)):
        return float(value)
    return float(FUNCTIONS[value.kind](**value.model_dump(exclude={"kind"})))
