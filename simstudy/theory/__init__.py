"""Predictions of a cell's bias and covariance from probability theory alone: no simulation, no estimator code.

Imports NumPy, SciPy, simstudy.settings and simstudy.cells only.
"""

from simstudy.theory.exact import ExactPrediction, exact_moments
from simstudy.theory.functions import Function, noise_variance, regression_function
from simstudy.theory.leading import Prediction, leading_order
from simstudy.theory.measures import (
    measure_errors_by_query,
    measures_by_query,
    predicted_measure_errors,
    predicted_measures,
)

__all__ = [
    "ExactPrediction",
    "Function",
    "Prediction",
    "exact_moments",
    "leading_order",
    "measure_errors_by_query",
    "measures_by_query",
    "noise_variance",
    "predicted_measure_errors",
    "predicted_measures",
    "regression_function",
]
