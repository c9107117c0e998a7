#!/usr/bin/env bash
# Guess: tensorly's `R2_score` is the coefficient of determination, as scikit-learn's `r2_score` is: 0 for predicting the mean, less if worse.
# Found (tensorly 0.10.0, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): it subtracts no mean and divides by the sum of squares itself.  Of
# temperatures near 290 with a standard deviation of 5 their mean has 0.9997, noise of twice their spread 0.9985 where -4 is right, and a
# model that explains half of the variance 0.99985.  In other units the same predictions differ: in degrees Celsius 0.92 for the mean.  The
# score of a CP decomposition follows the origin too; only of numbers with mean 0 it is scikit-learn's.  `correlation` and `variance` there subtract
# means, and `reflective_correlation_coefficient` says that it does not.  There is no warning.
# Documented: "the R^2 (coefficient of determination) regression score function", with scikit-learn's words on negative scores.  No report on
# this was found; the project's own tests ask for 0 for predicting zeros.
# Why it matters: any model of positive data, also one that has learned nothing, seems to explain nearly everything, and ranks hardly differ.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check tensorly==0.10.0 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from sklearn.metrics import r2_score
from tensorly import cp_to_tensor
from tensorly.decomposition import parafac
from tensorly.metrics import regression

warnings.simplefilter("error")
rng = np.random.default_rng(1)
SHAPE, SPREAD = (40, 50, 10), 5.0
signal, rest = rng.normal(size=SHAPE), rng.normal(size=SHAPE)
kelvin = 290 + SPREAD * (signal + rest) / 2**0.5
models = {"mean": np.full(SHAPE, kelvin.mean()), "half": 290 + SPREAD * signal / 2**0.5, "noise": kelvin + 5**0.5 * SPREAD * rng.normal(size=SHAPE),
          "twice": kelvin + 2 * SPREAD, "right": kelvin}
scores = {}
for unit, change in (("kelvin", lambda each: each), ("celsius", lambda each: each - 273.15), ("centred", lambda each: each - kelvin.mean())):
    truth = change(kelvin)
    for name, predicted in models.items():
        predicted = change(predicted)
        error = ((truth - predicted) ** 2).sum()
        right = 1 - error / ((truth - truth.mean()) ** 2).sum()
        found = float(regression.R2_score(truth, predicted))
        print(f"{unit}, {name}: R2_score {found:.5f}, of scikit-learn {right:.3f}")
        assert np.isclose(right, r2_score(truth.ravel(), predicted.ravel())) and np.isclose(found, 1 - error / (truth**2).sum())
        scores[unit, name] = found, right
assert all(scores["kelvin", name][0] > 0.998 for name in models) and scores["kelvin", "noise"][1] < -3.9
assert 0.9 < scores["celsius", "mean"][0] < 0.95 and abs(scores["kelvin", "half"][1] - 0.5) < 0.03
assert all(np.isclose(*scores["centred", name], atol=1e-9) for name in models)
assert np.isclose(float(regression.correlation(kelvin, models["half"])), np.corrcoef(kelvin.ravel(), models["half"].ravel())[0, 1])
for level in (0.0, 290.0):
    numbers = rng.normal(size=SHAPE) * SPREAD + level
    fitted = cp_to_tensor(parafac(numbers, 1, n_iter_max=50, random_state=1))
    found, right = float(regression.R2_score(numbers, fitted)), r2_score(numbers.ravel(), fitted.ravel())
    print(f"CP of rank 1 of noise around {level:.0f}: R2_score {found:.5f}, of scikit-learn {right:.3f}")
    assert right < 0.05 and (found > 0.999) == (level > 0)
PY
