#!/usr/bin/env bash
# Guess: a kernel density estimate at 0 changes by a 1000th when one of 1001 values lies far away, as its formula says.
# Found (statsmodels 0.15.0, KDEpy 1.1.12, numpy 2.4.6, R 4.2.2): not where it is computed on a grid.  The grid spans all values; once
# its steps are wider than the bandwidth, errors are of the size of the density.  With one value at 10 000 it is 1.17 in KDEpy,
# 1.08 in R's density() and 0.00 in statsmodels, not 0.39; for 2000 Cauchy values 0.56, 0.99 and 0.19, not 0.30.
# There is no warning.  `evaluate` of statsmodels sums the formula and is as guessed.  Documented: numbers of grid points.
# Why it matters: estimates of diverged fits or heavy tails have such values; densities, modes and plots of all others change.
# Needs R of Debian 12 (r-base-core 4.2.2).
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check statsmodels==0.15.0 KDEpy==1.1.12 scipy==1.17.1 numpy==2.4.6
cat > "$work/density.R" <<'R'
x <- scan(commandArgs(TRUE)[1], quiet = TRUE)
found <- density(x)
cat(approx(found$x, found$y, 0)$y, mean(dnorm(x / found$bw)) / found$bw)
R
"$work/venv/bin/python" -W ignore - "$work" <<'PY'
import subprocess
import sys

import numpy as np
from KDEpy import FFTKDE
from statsmodels.nonparametric.kde import KDEUnivariate

work = sys.argv[1]


def formula(x, bandwidth):
    return np.exp(-((x / bandwidth) ** 2) / 2).mean() / bandwidth / np.sqrt(2 * np.pi)


def by_statsmodels(x):
    estimate = KDEUnivariate(x)
    estimate.fit()
    assert np.isclose(estimate.evaluate(0.0)[0], formula(x, estimate.bw))
    return np.interp(0, estimate.support, estimate.density), formula(x, estimate.bw)


def by_kdepy(x):
    estimate = FFTKDE(bw="silverman").fit(x)
    return np.interp(0, *estimate.evaluate()), formula(x, estimate.bw)


def by_r(x):
    np.savetxt(f"{work}/x.txt", x)
    return map(float, subprocess.check_output(["Rscript", "--vanilla", f"{work}/density.R", f"{work}/x.txt"]).split())


x = np.random.default_rng(0).normal(size=1000)
cases = {f"one value at {far}": np.append(x, far) for far in (10, 1000, 10_000)}
cases["Cauchy values"] = np.random.default_rng(1).standard_cauchy(2000)
ratios = {}
for name, values in cases.items():
    for library, by in (("statsmodels", by_statsmodels), ("KDEpy", by_kdepy), ("R", by_r)):
        found, right = by(values)
        ratios[name, library] = found / right
        print(f"{name}, {library}: density at 0 {found:.4f}, by the formula {right:.4f}")
for library in ("statsmodels", "KDEpy", "R"):
    assert abs(ratios["one value at 10", library] - 1) < 0.005
assert abs(ratios["one value at 10000", "statsmodels"]) < 0.01 and ratios["Cauchy values", "statsmodels"] < 0.7
for library in ("KDEpy", "R"):
    assert min(ratios[name, library] for name in ("one value at 1000", "one value at 10000", "Cauchy values")) > 1.4
PY
