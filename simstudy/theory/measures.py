"""Performance measures of an ensemble, computed from a prediction of its bias and covariance."""

import numpy as np
from numpy.typing import ArrayLike

from simstudy.arguments import real_array
from simstudy.theory.exact.moments import ExactPrediction
from simstudy.theory.functions import Array
from simstudy.theory.leading import Prediction


def measures_by_query(
    prediction: Prediction | ExactPrediction, weights: ArrayLike, overlap: ArrayLike | None = None
) -> dict[str, Array]:
    """Measures of the ensemble sum_h a_h f_h at every query.

    Formulas :eq:`decomposition`, :eq:`effective-heads`, :eq:`ambiguity`.

    Parameters
    ----------
    prediction : Prediction or ExactPrediction
        Bias and covariance of the heads.
    weights : (H,) array
        Combination weights a_h; they need not sum to 1.
    overlap : (H, H) array, optional
        For heads with vector values: tr(A_h'A_g) up to a factor, formula :eq:`value-overlap`.  The target is then the
        image of the regression function under the maps A_h.

    Returns
    -------
    dict of (Q,) arrays
        ``squared_bias`` and ``ensemble_variance`` of the ensemble and their sum ``mse`` (Ueda and Nakano 1996);
        ``mean_squared_bias`` and ``mean_variance`` over heads; ``ambiguity``, by which the mean squared error
        of single heads exceeds that of their uniform average (Krogh and Vedelsby 1995); ``mean_covariance`` and
        ``correlation``, means over pairs of distinct heads, NaN for one head; ``output_diversity`` = 1 - correlation;
        ``effective_heads``, the mean variance of heads over that of their uniform average.  NaN where a moment is.

    Raises
    ------
    ValueError
        If there is not one weight for each head.
    """
    combination = real_array("weights", weights).astype(float)
    if combination.shape != (n_heads := prediction.bias.shape[1],):
        raise ValueError(f"weights has shape {combination.shape}; give ({n_heads},), one for each head")
    through, components = _through(overlap, len(combination))
    covariance, biases = through * prediction.covariance, prediction.bias[:, :, None] * components
    bias = np.einsum("h,qhc->qc", combination, biases)
    if overlap is None:
        # Weights that do not sum to 1 shrink or inflate the target itself.
        bias += (combination.sum() - 1) * prediction.target[:, None]
    correlation = _mean_over_pairs(_correlations(covariance))
    measures = {
        "squared_bias": (bias**2).sum(axis=1),
        "mean_squared_bias": (biases**2).sum(axis=2).mean(axis=1),
        "mean_variance": np.trace(covariance, axis1=1, axis2=2) / len(combination),
        "mean_covariance": _mean_over_pairs(covariance),
        "ensemble_variance": np.einsum("h,qhg,g->q", combination, covariance, combination),
        "correlation": correlation,
        "output_diversity": 1 - correlation,
    }
    measures["mse"] = measures["squared_bias"] + measures["ensemble_variance"]
    spread = ((biases - biases.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).mean(axis=1)
    measures["ambiguity"] = spread + measures["mean_variance"] - covariance.mean(axis=(1, 2))
    measures["effective_heads"] = _effective_heads(covariance)
    return measures


def predicted_measures(
    prediction: Prediction | ExactPrediction, weights: ArrayLike, overlap: ArrayLike | None = None
) -> dict[str, float]:
    """Measures averaged over the queries: those of :func:`measures_by_query`.

    ``effective_heads`` is the ratio of query-averaged variances, not the average of ratios.

    Parameters
    ----------
    prediction, weights, overlap
        As of :func:`measures_by_query`.

    Returns
    -------
    dict of float
        NaN where the prediction is blank at some query.
    """
    by_query = measures_by_query(prediction, weights, overlap)
    measures = {name: float(values.mean()) for name, values in by_query.items()}
    covariance = _through(overlap, prediction.bias.shape[1])[0] * prediction.covariance
    measures["effective_heads"] = float(_effective_heads(covariance.mean(axis=0, keepdims=True))[0])
    return measures


# If standard deviations are 0 and the covariance has an error, that of the correlation is unbounded: infinity or NaN.
@np.errstate(invalid="ignore", divide="ignore")
def measure_errors_by_query(
    prediction: ExactPrediction, weights: ArrayLike, overlap: ArrayLike | None = None
) -> dict[str, Array]:
    """Bounds, to first order, of the numerical error of each measure of :func:`measures_by_query`.

    Absolute errors of biases and covariances are added as if all had the worst sign.

    Parameters
    ----------
    prediction, weights, overlap
        As of :func:`measures_by_query`; the prediction has numerical errors.

    Returns
    -------
    dict of (Q,) arrays
        The bound for each measure, in its unit.
    """
    size = np.abs(real_array("weights", weights).astype(float))
    through, components = _through(overlap, len(size))
    covariance, errors = through * prediction.covariance, np.abs(through * prediction.covariance_error)
    measures = measures_by_query(prediction, weights, overlap)
    error = prediction.bias_error[:, :, None] * np.abs(components)
    bias_error = np.linalg.norm(np.einsum("h,qhc->qc", size, error), axis=1)
    relative = np.diagonal(errors, axis1=1, axis2=2) / np.diagonal(covariance, axis1=1, axis2=2)
    deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    correlation = errors / (deviation[:, :, None] * deviation[:, None, :])
    correlation += np.abs(_correlations(covariance)) * (relative[:, :, None] + relative[:, None, :]) / 2
    bounds = {
        "squared_bias": 2 * np.sqrt(measures["squared_bias"]) * bias_error + bias_error**2,
        "mean_variance": np.trace(errors, axis1=1, axis2=2) / len(size),
        "mean_covariance": _mean_over_pairs(errors),
        "ensemble_variance": np.einsum("h,qhg,g->q", size, errors, size),
        "correlation": _mean_over_pairs(correlation),
        "effective_heads": _effective_heads_error(covariance, errors),
    }
    biases = prediction.bias[:, :, None] * components
    bounds["mean_squared_bias"] = (2 * np.abs(biases) * error + error**2).sum(axis=2).mean(axis=1)
    spread = np.abs(biases - biases.mean(axis=1, keepdims=True))
    wrong = error + error.mean(axis=1, keepdims=True)
    bounds["ambiguity"] = (2 * spread * wrong + wrong**2).sum(axis=2).mean(axis=1) + bounds["mean_variance"]
    bounds["ambiguity"] += errors.mean(axis=(1, 2))
    bounds["output_diversity"] = bounds["correlation"]
    bounds["mse"] = bounds["squared_bias"] + bounds["ensemble_variance"]
    return bounds


def predicted_measure_errors(
    prediction: ExactPrediction, weights: ArrayLike, overlap: ArrayLike | None = None
) -> dict[str, float]:
    """Bounds of the numerical errors of :func:`predicted_measures`, to first order.

    Parameters
    ----------
    prediction, weights, overlap
        As of :func:`measures_by_query`; the prediction has numerical errors.

    Returns
    -------
    dict of float
        The bound for each measure, in its unit.
    """
    by_query = measure_errors_by_query(prediction, weights, overlap)
    bounds = {name: float(values.mean()) for name, values in by_query.items()}
    through, _ = _through(overlap, prediction.bias.shape[1])
    covariance = (through * prediction.covariance).mean(axis=0, keepdims=True)
    errors = np.abs(through * prediction.covariance_error).mean(axis=0, keepdims=True)
    bounds["effective_heads"] = float(_effective_heads_error(covariance, errors)[0])
    return bounds


def _through(overlap: ArrayLike | None, n_heads: int) -> tuple[Array, Array]:
    """Factors (H, H) of scalar covariances and (H, r) of scalar biases that give those of values with r components."""
    if overlap is None:
        return np.ones((n_heads, n_heads)), np.ones((n_heads, 1))
    matrix = real_array("overlap", overlap)
    values, vectors = np.linalg.eigh(matrix)
    return matrix, np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


@np.errstate(invalid="ignore", divide="ignore")
def _effective_heads_error(covariance: Array, errors: Array) -> Array:
    n_heads = covariance.shape[1]
    if n_heads == 1:
        return np.zeros(len(covariance))
    numerator = np.trace(errors, axis1=1, axis2=2) / np.trace(covariance, axis1=1, axis2=2)
    return _effective_heads(covariance) * (numerator + errors.sum(axis=(1, 2)) / np.abs(covariance.sum(axis=(1, 2))))


def _mean_over_pairs(matrices: Array) -> Array:
    n_heads = matrices.shape[1]
    if n_heads == 1:
        return np.full(len(matrices), np.nan)
    return matrices[:, ~np.eye(n_heads, dtype=bool)].mean(axis=1)


# Without noise or signal a head has no variance, and correlations are undefined: NaN, not a warning.
@np.errstate(invalid="ignore", divide="ignore")
def _correlations(covariance: Array) -> Array:
    deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    return covariance / (deviation[:, :, None] * deviation[:, None, :])


@np.errstate(invalid="ignore", divide="ignore")
def _effective_heads(covariance: Array) -> Array:
    n_heads = covariance.shape[1]
    mean_variance = np.trace(covariance, axis1=1, axis2=2) / n_heads
    # H = 1 divides equal numbers: exactly 1.
    return mean_variance / (covariance.sum(axis=(1, 2)) / n_heads**2)
