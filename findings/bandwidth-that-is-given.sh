#!/usr/bin/env bash
# Guess: a bandwidth that is given is the one that is used, in the units of x.
# Found (versions below): nprobust's lprobust enlarges it to the distance of the 21st nearest observation, and writes that into
# the caller's array of bandwidths; bwcheck=None takes it as it is.  pyGRNN's GRNN takes it as the start of a search;
# calibration="None", a string, takes it as it is.  kernelsmooth takes it in standard deviations of x.
# Why it matters: comparisons at "the same bandwidth" are none, and a loop over bandwidths compares equal estimates.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check kernelsmooth==0.1.0 pyGRNN==0.1.2 nprobust==0.5.0 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from kernelsmooth import KernelRegression
from nprobust import lprobust
from pyGRNN import GRNN

rng = np.random.default_rng(3)
x = np.sort(rng.uniform(0.0, 10.0, 80))
y = np.sin(x) + rng.normal(0.0, 0.3, 80)
queries = np.linspace(0.5, 9.5, 19)


def plain(bandwidth):
    weights = np.exp(-(((queries[:, None] - x) / np.reshape(bandwidth, (-1, 1))) ** 2) / 2)
    return weights @ y / weights.sum(axis=1)


given = np.full(19, 0.1)
found = lprobust(y, x, eval=queries, p=0, h=given, kernel="gau").Estimate[:, 4]
nearest = np.sort(np.abs(queries[:, None] - x), axis=1)[:, 20]
print(f"nprobust: 0.1 given; {given.min():.2f} to {given.max():.2f} used and written into the array")
assert np.allclose(given, nearest) and np.allclose(found, plain(nearest)) and not np.allclose(found, plain(0.1))
taken = lprobust(y, x, eval=queries, p=0, h=0.1, kernel="gau", bwcheck=None).Estimate[:, 4]
assert np.allclose(taken, plain(0.1))

model = GRNN(sigma=0.5).fit(x[:, None], y)
print(f"pyGRNN: 0.5 given, {float(model.sigma[0]):.4f} used")
assert np.allclose(model.predict(queries[:, None]), plain(model.sigma)) and not np.allclose(model.sigma, 0.5, rtol=0.1)

found = KernelRegression(bandwidth=0.1).fit(x[:, None], y).predict(queries[:, None])
print(f"kernelsmooth: 0.1 given, {0.1 * x.std(ddof=1):.4f} used")
assert np.allclose(found, plain(0.1 * x.std(ddof=1))) and not np.allclose(found, plain(0.1))
PY
