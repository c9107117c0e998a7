"""Predictions of bias, covariance and error from probability theory alone: no simulation, no estimator code.

Which function answers which question:

- What are bias and covariance of the heads of a cell? :func:`exact_moments` at any n with an
  estimate of its numerical error, for fixed heads (by quadrature for Gaussian keys, by quasi-Monte Carlo for others);
  :func:`leading_order` in closed form for many keys, which says where it does not hold;
  :func:`damped_leading_order` at every query, as a control variate; :func:`masked` for masks.
- What are the moments of the weights of heads without a design, such as those of a transformer? :func:`logit_moments`
  at any n, from the covariance of their logits.
- What are the measures of the ensemble? :func:`predicted_measures` averaged over queries, :func:`measures_by_query` at
  each; :func:`predicted_measure_errors` and :func:`measure_errors_by_query` bound the numerical error of exact theory.
- How does the correlation of two heads depend on their principal angles? :func:`origin_correlation` at x = 0;
  :func:`noise_ratio` at any query and :func:`averaged_noise_ratio` over queries; for dot-product logits
  :func:`dot_product_correlation`.
- Do larger principal angles lower the error? :func:`isotropic_bias` for a target without a preferred direction;
  :func:`alignment_threshold` for a linear target that lies partly in one subspace.
- Which weights of the heads are best? :func:`error_moments` of a prediction, then :func:`optimal_weights` of sum 1
  within a class, or :func:`unconstrained_weights`.  :func:`mean_squared_error` evaluates any weights.
- What is known of mechanisms other than softmax? :func:`compact_leading_order` and :func:`empty_window_rate` for
  compact kernels of fixed bandwidth; :func:`product_head`, the single head that equals a product of softmax kernels.
- What are the regression function and the noise variance of a design? :func:`regression_function` and
  :func:`noise_variance`, as a :class:`Function` whose Gaussian expectations have closed forms.
"""

from simstudy.theory.closed_forms import averaged_noise_ratio, dot_product_correlation, noise_ratio, origin_correlation
from simstudy.theory.compact_kernels import compact_leading_order, empty_window_rate
from simstudy.theory.exact.logits import LogitMoments, logit_moments
from simstudy.theory.exact.moments import ExactPrediction, exact_moments
from simstudy.theory.functions import Function, noise_variance, regression_function
from simstudy.theory.informed import alignment_threshold, isotropic_bias
from simstudy.theory.leading import Prediction, damped_leading_order, leading_order, masked, product_head
from simstudy.theory.measures import (
    measure_errors_by_query,
    measures_by_query,
    predicted_measure_errors,
    predicted_measures,
)
from simstudy.theory.weighting import (
    ErrorMoments,
    Weighting,
    error_moments,
    mean_squared_error,
    optimal_weights,
    unconstrained_weights,
)

__all__ = [
    "ErrorMoments", "ExactPrediction", "Function", "LogitMoments", "Prediction", "Weighting", "alignment_threshold",
    "averaged_noise_ratio", "compact_leading_order", "damped_leading_order", "dot_product_correlation",
    "empty_window_rate", "error_moments", "exact_moments", "isotropic_bias", "leading_order", "logit_moments",
    "masked", "mean_squared_error", "measure_errors_by_query", "measures_by_query",
    "noise_ratio", "noise_variance", "optimal_weights", "origin_correlation", "predicted_measure_errors",
    "predicted_measures", "product_head", "regression_function", "unconstrained_weights",
]  # fmt: skip
