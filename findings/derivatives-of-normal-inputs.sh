#!/usr/bin/env bash
# Guess: derivative-based indices of SALib take normal inputs as its Sobol indices do, and bound these from above.
# Found (SALib 1.6.0, scipy 1.17.1, numpy 2.4.6): of `bounds`, which are mean and standard deviation where `dists` says "norm", both
# sampler and analysis make an interval.  The sampler moves the second point of each derivative into it: with mean 5 and standard
# deviation 1, to 5, so that the mean squared slope of (x - 5)² is 1 for 4.  The analysis multiplies by the squared difference of
# mean and deviation: indices of x + 2 z are 0 at mean 1 and 16 times those of mean 0 at mean 5, while Sobol indices are 0.2 and 0.8
# at all means; they exceed the bound at means 0 and 1.  No warning; uniform inputs are as guessed.  Samples of `seed` 1 and 2 are one.
# Documented: what `bounds` mean for "norm", and Sobol indices as a bound; not that it fails.  No report was found.
# Why it matters: such indices screen out inputs; one whose mean is near its standard deviation goes first.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check SALib==1.6.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from SALib.analyze import dgsm, sobol
from SALib.sample import finite_diff
from SALib.sample import sobol as sobol_points

SIZE = 1024
warnings.simplefilter("error")


def study(kind, mean):
    """Derivative-based and total Sobol indices of x + 2 z, and the mean squared slope of (x - mean)², inputs of deviation 1."""
    bounds = [mean, 1] if kind == "norm" else [mean - np.sqrt(3), mean + np.sqrt(3)]
    problem = {"num_vars": 2, "names": ["x", "z"], "bounds": [bounds] * 2, "dists": [kind] * 2}
    points = finite_diff.sample(problem, SIZE, delta=1e-4, seed=1)
    assert (points == finite_diff.sample(problem, SIZE, delta=1e-4, seed=2)).all()
    index = dgsm.analyze(problem, points, points @ [1, 2], seed=1)["dgsm"]
    slope = dgsm.analyze(problem, points, (points[:, 0] - mean) ** 2, seed=1)["vi"][0]
    total = sobol.analyze(problem, sobol_points.sample(problem, SIZE, seed=1) @ [1, 2], seed=1)["ST"]
    if kind == "norm" and mean == 5:
        assert (points[1::3, 0] == 5).all() and (points[2::3, 1] == 5).all(), "moved to the mean"
    return index, slope, total


found = {}
for kind in ("unif", "norm"):
    for mean in (0, 1, 5):
        found[kind, mean] = index, slope, total = study(kind, mean)
        print(f"{kind}, mean {mean}: derivative-based indices {index.round(3)}, total Sobol indices {total.round(3)}; "
              f"mean squared slope of (x - mean)² {slope:.2f}")
        assert abs(total - [0.2, 0.8]).max() < 0.01
        if kind == "unif":
            assert (index > total).all() and abs(index / total - 12 / np.pi**2).max() < 0.02 and abs(slope - 4) < 0.05
(zero, slope_zero, total), (one, slope_one, _), (five, slope_five, _) = (found["norm", mean] for mean in (0, 1, 5))
assert (zero < 0.15 * total).all() and not one.any() and abs(five / zero / 16 - 1).max() < 0.05
assert slope_zero < 2 and slope_one < 2 and abs(slope_five - 1) < 0.05
PY
