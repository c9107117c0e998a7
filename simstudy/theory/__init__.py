"""Predictions of a cell's bias and covariance from probability theory alone: no simulation, no estimator code.

Imports NumPy, simstudy.settings and simstudy.cells only.
"""

from simstudy.theory.functions import Function, noise_variance, regression_function
from simstudy.theory.leading import Prediction, leading_order
from simstudy.theory.measures import measures_by_query, predicted_measures

__all__ = [
    "Function",
    "Prediction",
    "leading_order",
    "measures_by_query",
    "noise_variance",
    "predicted_measures",
    "regression_function",
]
