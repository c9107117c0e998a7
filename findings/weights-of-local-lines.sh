#!/usr/bin/env bash
# Guess: weights of observations in scikit-fda's local linear estimators are weights of least squares.
# Found (scikit-fda 0.10.1, multimethod 1.12, scipy 1.16.3, numpy 2.4.6): they are not.  `KernelSmoother` multiplies the smoother's matrix by
# them, whose moments are those without weights: values on the line 3 + 2t, with weights from 0.1 to 3 at 21 points, are smoothed to values
# that are wrong by up to 0.04, where any weighted least squares returns the line, and as it does itself without weights.
# `KernelRegression` takes them and ignores them if its predictors have a basis: weights that leave only one half of 60 curves change no digit
# of a prediction, by hand they change it by up to 0.3.  With Nadaraya-Watson estimators both are as by hand.  There is no warning.
# Documented: "weight coefficients for each point".  No report on this was found.
# Why it matters: unequal errors are to be weighted away, and bend a line, or are left as they were.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scikit-fda==0.10.1 multimethod==1.12 pandas==2.3.3 scipy==1.16.3 numpy==2.4.6
MPLBACKEND=Agg "$work/venv/bin/python" - <<'PY'
import numpy as np
from skfda import FDataBasis, FDataGrid
from skfda.misc.hat_matrix import LocalLinearRegressionHatMatrix, NadarayaWatsonHatMatrix
from skfda.ml.regression import KernelRegression
from skfda.preprocessing.smoothing import KernelSmoother
from skfda.representation.basis import FourierBasis

CURVES = 60
random = np.random.default_rng(1)


def by_hand(x, y, weights, query, bandwidth, linear):
    """Intercept of a line by weighted least squares around each query, or the mean."""
    found = []
    for each in query:
        near = x - each
        root = np.sqrt(weights * np.exp(-0.5 * (near**2).sum(axis=1) / bandwidth**2))
        terms = np.column_stack([np.ones(len(x)), near]) if linear else np.ones((len(x), 1))
        found.append(np.linalg.lstsq(root[:, None] * terms, root * y)[0][0])
    return np.array(found)


places = np.linspace(0, 1, 21)
line, weights = 3 + 2 * places, random.uniform(0.1, 3, size=21)
basis = FourierBasis((0, 1), n_basis=3)
coefficients = random.normal(size=(CURVES, 3))
curves, half = FDataBasis(basis, coefficients), np.arange(CURVES) % 2
y = np.where(half, 1, -1) * coefficients[:, 0] + half
for linear, matrix in ((True, LocalLinearRegressionHatMatrix), (False, NadarayaWatsonHatMatrix)):
    for name, each in (("equal", np.ones(21)), ("given", weights)):
        smoothed = KernelSmoother(matrix(bandwidth=0.1), weights=each).fit_transform(FDataGrid([line], places)).data_matrix.ravel()
        right = by_hand(places[:, None], line, each, places[:, None], 0.1, linear)
        error = np.abs(smoothed - right).max()
        print(f"{matrix.__name__}, {name} weights: smoothed line differs from the line by {np.abs(smoothed - line).max():.2g}, "
              f"least squares by {np.abs(right - line).max():.2g}, the two from each other by {error:.2g}")
        assert error > 0.03 if linear and name == "given" else error < 1e-12
    found = {}
    for name, each in (("all", np.ones(CURVES)), ("half", half.astype(float))):
        predicted = KernelRegression(kernel_estimator=matrix(bandwidth=1.0)).fit(curves, y, each).predict(curves[:3])
        found[name] = predicted, by_hand(coefficients, y, each, coefficients[:3], 1, linear)
        print(f"{matrix.__name__}, weights for {name}: predictions {predicted.round(3)}, least squares {found[name][1].round(3)}")
    change, right = (np.abs(found["half"][way] - found["all"][way]).max() for way in (0, 1))
    assert np.allclose(*found["all"]) and right > 0.2 and np.allclose(*found["half"]) != linear and (change < 1e-12) == linear
PY
