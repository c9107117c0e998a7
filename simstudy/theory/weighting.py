"""Risk of weights of an ensemble of heads, and the weights of least risk in the classes of the literature.

An ensemble sum_h a_h f_h has the error sum_h a_h e_h + (sum_h a_h - 1) m with e_h = f_h - m, so that its risk is a
quadratic form: a'Ea with E_hg = E e_h e_g if the weights sum to 1 (Bates and Granger 1969; Ueda and Nakano 1996).
Index legend: h, g head; q query; k length of a prefix of heads.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simstudy.arguments import real_array, semidefinite
from simstudy.theory.exact.moments import ExactPrediction
from simstudy.theory.functions import Array
from simstudy.theory.leading import Prediction
from simstudy.weights import CLASSES, least_squares

# Eigenvalues below this share of the largest count as zero; rounding of closed-form moments is about 1e-15.
RANK_TOLERANCE = 1e-12
# Of several minimisers on a bounded class, a ridge selects the one with the smallest sum of squares.  It raises the
# risk by a share of order ridge^2, below rounding.
_RIDGE = 1e-9


class ErrorMoments(NamedTuple):
    """Second moments of head errors e_h = f_h - m and of the target m, averaged over queries.

    Attributes
    ----------
    errors : (H, H) array
        E e_h e_g = C_hg + bias_h bias_g; it determines the risk of weights of sum 1.
    cross : (H,) array
        E m e_h = m bias_h.
    target : float
        m^2.
    """

    errors: Array
    cross: Array
    target: float


class Weighting(NamedTuple):
    """The best weights of a class.

    Attributes
    ----------
    weights : (H,) array
        The best weights; if there are several, those with the smallest sum of squares.
    risk : float
        Mean squared error of the ensemble with these weights.
    rank : int
        Numerical rank of the moment matrix that was minimised over; below H there may be several best weights.
    """

    weights: Array
    risk: float
    rank: int


def error_moments(prediction: Prediction | ExactPrediction) -> ErrorMoments:
    """Second moments of errors, averaged over the queries of a prediction; NaN if any query is blank.

    Parameters
    ----------
    prediction : Prediction or ExactPrediction
        Bias and covariance of the heads.

    Returns
    -------
    ErrorMoments
        In units of Y^2.
    """
    bias, target = prediction.bias, prediction.target
    errors = np.mean(prediction.covariance + bias[:, :, None] * bias[:, None, :], axis=0)
    return ErrorMoments(errors, np.mean(target[:, None] * bias, axis=0), float(np.mean(target**2)))


def mean_squared_error(weights: ArrayLike, moments: ErrorMoments) -> float:
    """Mean squared error of any weights: a'Ea + 2 (s - 1) a'E[m e] + (s - 1)^2 E m^2 with s = sum_h a_h.

    Formula :eq:`risk`.

    Parameters
    ----------
    weights : (H,) array
        a_h; their sum need not be 1.
    moments : ErrorMoments
        Second moments of the errors of the same heads.

    Returns
    -------
    float
        In units of Y^2, averaged over queries.
    """
    a = real_array("weights", weights).astype(float)
    excess = a.sum() - 1
    return float(a @ moments.errors @ a + 2 * excess * (a @ moments.cross) + excess**2 * moments.target)


def optimal_weights(
    error_moment: ArrayLike, within: Literal["affine", "simplex", "front_greater"] = "affine"
) -> Weighting:
    """Minimise a'Ea over weights of sum 1; with negative ones, E^-1 1 / (1'E^-1 1) (Bates and Granger 1969).

    Formula :eq:`optimal-weights`.

    For singular E, the minimiser with the smallest sum of squares is returned.  If 1 lies in the range of E, as for
    identical heads, the formula holds with the pseudo-inverse.  Otherwise, with P the projection on the null space of
    E, the weights P1 / (1'P1) have risk 0; those of the pseudo-inverse would not be optimal.

    Parameters
    ----------
    error_moment : (H, H) array
        E e_h e_g; symmetric, positive semidefinite.
    within : str
        ``affine``; ``simplex``: no negative weights; ``front_greater``: also nonincreasing from head to head.

    Returns
    -------
    Weighting
        The weights, their risk, and the rank of E.

    Raises
    ------
    ValueError
        If the matrix is not finite, symmetric and positive semidefinite, or there is no such class.
    """
    if within not in CLASSES:
        raise ValueError(f"within = {within!r}; give one of {', '.join(CLASSES)}")
    matrix = solved = semidefinite("error_moment", error_moment)
    rank, n_heads, trace = _rank(matrix), len(matrix), np.trace(matrix)
    if within != "affine":
        scaled = matrix / trace if trace > 0 else matrix
        solved = scaled + (_RIDGE * np.eye(n_heads) if rank < n_heads else 0.0)
    weights = CLASSES[within](solved)
    return Weighting(weights, float(weights @ matrix @ weights), rank)


def unconstrained_weights(moments: ErrorMoments) -> Weighting:
    """Minimise E (sum_h a_h f_h - m)^2 over all weights: a learned output projection with one number per head.

    The normal equations are S a = r with S_hg = E f_h f_g = E_hg + E m e_h + E m e_g + E m^2 and
    r_h = E f_h m = E m^2 + E m e_h.  For singular S, the solution has the smallest sum of squares; r is in the range
    of S because the moment matrix of (f_1, ..., f_H, m) is positive semidefinite.

    Parameters
    ----------
    moments : ErrorMoments
        As :func:`error_moments` returns them.

    Returns
    -------
    Weighting
        The weights, their risk, and the rank of S.

    Raises
    ------
    ValueError
        If S is not finite, symmetric and positive semidefinite.
    """
    aligned = moments.target + moments.cross
    gram = semidefinite("S of moments", moments.errors + moments.cross[:, None] + aligned)
    weights = least_squares(gram, aligned)
    return Weighting(weights, mean_squared_error(weights, moments), _rank(gram))


def _rank(matrix: Array) -> int:
    values = np.linalg.eigvalsh(matrix)
    return int(np.sum(values > RANK_TOLERANCE * values[-1]))
