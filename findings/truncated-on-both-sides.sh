#!/usr/bin/env bash
# Guess: chaospy's `Trunc(X, lower, upper)` is X between two bounds, as `Trunc(X, lower)` and `Trunc(X, upper=...)` are X beyond one.
# Found (chaospy 4.3.21, scipy 1.17.1, numpy 2.4.6): two bounds divide by the product of the masses of the two sides, not by the mass
# between.  Of a uniform variable between 0.4 and 0.6, 44 % of draws are exactly 0.6; of a standard normal one between 0 and 1, 19 % are
# exactly 1, the mean is 0.56 for 0.46, and the density has an area of 0.81.  `E` and `Std` of the same distribution are right, and
# sampling rules are alike.  One bound, two calls of one bound each, and `TruncNormal` are as guessed.  There is no warning.
# Documented: one bound, with examples; two as calls in turn.  No report was found; one of negative densities of 2018 is closed.
# Why it matters: inputs between physical limits pile up at the upper one; comparing moments with `E` says that draws are unlucky.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check chaospy==4.3.21 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import chaospy
import numpy as np
from scipy import stats

DRAWS = 20_000
warnings.simplefilter("error")


def show(name, distribution, right, upper):
    """Share of draws at the upper bound, error of their mean, and area under the density."""
    y = distribution.sample(DRAWS, seed=1)
    sobol = distribution.sample(DRAWS, rule="sobol")
    low, high = right.support()
    grid = np.linspace(max(low, -9), min(high, 9), 10_001)[:-1]
    area = np.sum(distribution.pdf(grid)) * (grid[1] - grid[0])
    shares = np.mean(y == upper), np.mean(sobol == upper)
    print(f"{name}: {shares[0]:.1%} of draws at the upper bound, of Sobol points {shares[1]:.1%}; mean {y.mean():.3f}, by E "
          f"{float(chaospy.E(distribution)):.3f}, right {right.mean():.3f}; area {area:.3f}")
    assert abs(chaospy.E(distribution) - right.mean()) < 1e-3 and abs(chaospy.Std(distribution) - right.std()) < 1e-3
    assert abs(shares[0] - shares[1]) < 0.01
    return shares[0], y.mean() - right.mean(), area


uniform, normal = chaospy.Uniform(0, 1), chaospy.Normal(0, 1)
both = {
    "uniform from 0.4 to 0.6": show(
        "uniform from 0.4 to 0.6", chaospy.Trunc(uniform, 0.4, 0.6), stats.uniform(0.4, 0.2), 0.6),
    "normal from 0 to 1": show("normal from 0 to 1", chaospy.Trunc(normal, 0, 1), stats.truncnorm(0, 1), 1)}
for name, (share, low, high) in {"uniform from 0.4 to 0.6": (0.444, 0.4, 0.6), "normal from 0 to 1": (0.189, 0, 1)}.items():
    found, error, area = both[name]
    assert abs(found - share) < 0.01 and abs(area - (1 - share)) < 0.01 and error > 0.04
for name, distribution, right, upper in (
        ("normal above 0", chaospy.Trunc(normal, lower=0), stats.truncnorm(0, np.inf), np.inf),
        ("normal below 1", chaospy.Trunc(normal, upper=1), stats.truncnorm(-np.inf, 1), 1),
        ("normal below 1, then above 0", chaospy.Trunc(chaospy.Trunc(normal, upper=1), lower=0), stats.truncnorm(0, 1), 1),
        ("TruncNormal", chaospy.TruncNormal(0, 1, 0, 1), stats.truncnorm(0, 1), 1)):
    share, error, area = show(name, distribution, right, upper)
    assert share == 0 and abs(error) < 0.02 and abs(area - 1) < 0.01
PY
