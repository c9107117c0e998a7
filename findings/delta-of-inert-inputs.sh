#!/usr/bin/env bash
# Guess: SALib's delta indices are those of the sample less their bias, and its first-order indices those of the sample.
# Found (SALib 1.6.0, scipy 1.16.3, numpy 2.4.6): both are those of one bootstrap sample, and delta's bias is estimated by the difference to
# others of its kind, which have the same bias.  An input without influence has the mean `delta_raw` 0.08 over 12 samples of 400, and 0.038
# by the formula that is cited, 0.06 without any correction, and 0.08 in bootstrap samples; `S1` is 0.025 for 0.011.  The deviation of
# `delta_raw` of an input with influence is 0.054 for 0.027.  There is no warning.
# Documented: as the bias reduction of Plischke, Borgonovo and Smith (2013).  Known: that results changed since 1.4.5 was reported in 2025;
# the answer was indices of other kinds.
# Why it matters: inputs without influence seem to have some, and the more, the fewer runs of a model there are.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check SALib==1.6.0 pandas==2.3.3 scipy==1.16.3 numpy==2.4.6
MPLBACKEND=Agg "$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from SALib.analyze import delta
from scipy.stats import gaussian_kde, rankdata

warnings.simplefilter("error")
SIZE, RESAMPLES, STUDIES = 400, 20, 12
KINDS = ("delta_raw", "by hand, plain", "by hand, less its bias", "by hand, of bootstrap samples", "first order by hand", "S1")
CLASSES = int(np.ceil(SIZE ** (2 / (7 + np.tanh((1500 - SIZE) / 500)))))
problem = {"num_vars": 2, "names": ["used", "inert"], "bounds": [[0, 1]] * 2}


def split(x):
    groups = np.ceil(rankdata(x, method="ordinal") / len(x) * CLASSES)
    return [groups == g for g in np.unique(groups)]


def distance(x, y):
    """Half the mean distance of the output's density in classes of the input from its density."""
    grid = np.linspace(y.min(), y.max(), 100)
    whole = gaussian_kde(y, "silverman")(grid)
    return sum(rows.mean() * np.trapezoid(abs(gaussian_kde(y[rows], "silverman")(grid) - whole), grid) for rows in split(x)) / 2


def by_hand(x, y, random):
    again = np.mean([distance(x[rows], y[rows]) for rows in random.integers(SIZE, size=(RESAMPLES, SIZE))])
    first = sum(rows.mean() * (y[rows].mean() - y.mean()) ** 2 for rows in split(x)) / y.var()
    return distance(x, y), 2 * distance(x, y) - again, again, first


random = np.random.default_rng(1)
found = []
for seed in range(1, STUDIES + 1):
    x = random.random((SIZE, 2))
    y = x[:, 0] + 0.3 * random.normal(size=SIZE)
    got = delta.analyze(problem, x, y, num_resamples=RESAMPLES, seed=seed)
    found.append([[got["delta_raw"][i], *by_hand(x[:, i], y, random), got["S1"][i]] for i in range(2)])
means, deviations = np.mean(found, axis=0), np.std(found, axis=0)
for name, middle, deviation in zip(problem["names"], means, deviations, strict=True):
    for what, mean, spread in zip(KINDS, middle, deviation, strict=True):
        print(f"{name}, {what}: {mean:.3f}, deviation {spread:.3f}")
raw, plain, reduced, again, first, stated = means[1]
assert reduced < plain < again and abs(raw / again - 1) < 0.2 and raw > 1.7 * reduced and raw > 1.2 * plain and stated > 1.7 * first
PY
