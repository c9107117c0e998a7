#!/usr/bin/env bash
# Guess: hmmlearn's `GaussianHMM` finds the same hidden states whatever the unit of the values, as likelihoods do.
# Found (hmmlearn 0.3.3, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): by default 0.01 is added to each state's sum of squares, in whatever
# unit, and 0.001 to the first variances.  Of 1,000 values with one state and standard deviation 1 the deviation is right; of the same
# values in a unit that makes it 0.01 it is 5 % too large, and 3.2 times with 0.001, for each type of covariance.  Of two states with
# deviations 1 and 3, 97 % of values are put right; with 0.001 and 0.003 61 %, as all are in one state and the other has a deviation of 32.  Of means
# four deviations apart, 100 %, and 66 % with a deviation of 0.01.  With `covars_prior=0, min_covar=0` units change nothing.  There is no warning.
# Documented: `covars_prior` as parameters of a prior distribution without the effect of units, `min_covar` as a floor, but not that it is
# added.  Known: in 2015 that priors are regularisers.  No report on units was found.
# Why it matters: the usual data are returns; those of days are near 0.01 and those of minutes below 0.001, in per cent they are not.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check hmmlearn==0.3.3 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from hmmlearn.hmm import GaussianHMM

warnings.simplefilter("error")
DAYS, SERIES, UNITS = 1000, 5, (100.0, 1.0, 0.01, 0.001)
FREE = {"covars_prior": 0, "min_covar": 0}


def series(seed, means, deviations):
    rng = np.random.default_rng(seed)
    states = np.cumsum(rng.random(DAYS) < 0.02) % 2
    return states, (rng.normal(size=DAYS) * np.array(deviations)[states] + np.array(means)[states])[:, None]


def agreement(model, values, states):
    same = np.mean(model.predict(values) == states)
    return max(same, 1 - same)


def deviations(model):
    return np.sqrt(model.covars_.reshape(model.n_components, -1)[:, 0])


for kind in ("diag", "full", "spherical", "tied"):
    for unit in UNITS:
        values = unit * series(1, (0, 0), (1, 1))[1]
        one = GaussianHMM(1, covariance_type=kind).fit(values)
        variance, expected = deviations(one)[0] ** 2, (0.01 + DAYS * values.var()) / DAYS
        print(f"one state, {kind}, unit {unit:g}: deviation {variance**0.5 / values.std():.4f} times that of the values")
        assert np.isclose(variance, expected, rtol=1e-6)

found = {}
for name, means, spread in (("deviations 1 and 3", (0, 0), (1, 3)), ("means 4 deviations apart", (0, 4), (1, 1))):
    for unit in UNITS:
        for way, options in (("default", {}), ("free", FREE)):
            rates, sizes, gains = [], [], []
            for seed in range(SERIES):
                states, values = series(seed, means, spread)
                model = GaussianHMM(2, n_iter=50, random_state=0, **options).fit(unit * values)
                rates.append(agreement(model, unit * values, states))
                sizes.append(np.sort(deviations(model)) / unit)
                gains.append(model.score(unit * values) + DAYS * np.log(unit))
            found[name, unit, way] = np.mean(rates), np.median(sizes, axis=0), np.mean(gains)
            print(f"{name}, unit {unit:g}, {way}: right states {np.mean(rates):.1%}, deviations {np.median(sizes, axis=0).round(2)}, "
                  f"log likelihood {np.mean(gains):.0f}")
for name in ("deviations 1 and 3", "means 4 deviations apart"):
    free = [found[name, unit, "free"] for unit in UNITS]
    assert all(np.isclose(rate, free[0][0], atol=0.005) and np.allclose(sizes, free[0][1], rtol=0.01) for rate, sizes, _ in free)
    assert all(np.isclose(found[name, unit, "default"][0], free[0][0], atol=0.005) for unit in (100.0, 1.0)) and free[0][0] > 0.95
    assert found[name, 0.001, "default"][0] < 0.7 and found[name, 0.001, "default"][2] < free[0][2] - 400
    assert found[name, 0.001, "default"][1][0] > 3.5 and np.isclose(found[name, 0.001, "default"][1][1] * 0.001, 1000**0.5, rtol=0.01)
assert found["means 4 deviations apart", 0.01, "default"][0] < 0.75
PY
