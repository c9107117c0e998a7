#!/usr/bin/env bash
# Guess: QuantEcon's `ARMA` responds to an impulse at lag 0 with 1, and its simulated series have the variance that it gives by itself.
# Found (quantecon 0.11.4, statsmodels 0.15.0, scipy 1.17.1, numpy 2.4.6): if there are more autoregressive than moving-average coefficients,
# both are late by the difference (a number as theta counts as one).  An autoregression of order 2 has the responses 0, 1, 0.5 for 1, 0.5, 0.55,
# and each series starts with 0; of order 12 with eleven zeros, and of the 30 responses that are the default the last eleven are missing.
# Then series grow from 0: 90 values, the default, of order 12 with coefficient 0.9 have the mean square 2.4 for 5.3.  Equal
# numbers are not late, but start from 0 too: the first value's variance is 1 for 5.3 with order 1.  `autocovariance`, and the responses and
# series of statsmodels with `burnin`, are right.
# Documented: "We take psi[0] as unity", "a simulated sample path", no start.  No report on this was found.
# Why it matters: replicates start in a state that the process never has, and statistics of short series are biased; lags are misnumbered.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check quantecon==0.11.4 statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from quantecon import ARMA
from scipy.signal import lfilter
from statsmodels.tsa.arima_process import ArmaProcess

warnings.simplefilter("error")
SERIES, LENGTH = 2000, 90

for phi, theta in (([0.9], 0), ([0.5, 0.3], 0), ([0.5, 0.3], [0.4]), ([0.5, 0.3], [0.4, 0.2]), ([0] * 11 + [0.9], 0)):
    model, theta = ARMA(phi, theta), np.atleast_1d(theta)
    late = max(0, len(phi) - len(theta))
    ar, ma = np.r_[1, -np.array(phi)], np.r_[1, theta]
    known = ArmaProcess(ar, ma)
    by_hand = lfilter(ma, ar, np.eye(1, 30)[0])
    responses = model.impulse_response()
    assert np.allclose(by_hand, known.impulse_response(30)) and by_hand[0] == 1
    assert np.allclose(responses, np.r_[np.zeros(late), by_hand][:30])
    variance = known.acovf(1)[0]
    assert np.isclose(model.autocovariance(1)[0], variance, rtol=1e-3)
    drawn = np.array([model.simulation(random_state=seed) for seed in range(SERIES)])
    np.random.seed(1)
    right = known.generate_sample((LENGTH, SERIES), burnin=500, axis=0).T
    shocks = np.random.RandomState(7).standard_normal(LENGTH)
    assert np.allclose(drawn[7], np.r_[np.zeros(late), lfilter(ma, ar, shocks)][:LENGTH])
    print(f"order {len(phi)}, {len(theta)}: responses {responses[:4].round(3)} for {by_hand[:4].round(3)}, {late} zeros first; variance of the "
          f"first value {drawn[:, 0].var():.2f}, statsmodels' {right[:, 0].var():.2f}, of all {np.mean(drawn**2):.2f}, {np.mean(right**2):.2f} "
          f"for {variance:.2f}")
    assert (drawn[:, :late] == 0).all() and abs(drawn[:, late].var() - 1) < 0.15
    assert np.isclose(np.mean(right**2), variance, rtol=0.1) and np.isclose(right[:, 0].var(), variance, rtol=0.15)
assert late == 11 and np.mean(drawn**2) < 0.5 * variance
PY
