#!/usr/bin/env bash
# Guess: Niederreiter points of pydoe fill the cube more evenly than random points, and the more there are, as SciPy's Sobol points do.
# Found (pydoe 1.6.0, scipy 1.17.1, numpy 2.4.6): coordinates take 4, 8, 8, 16, 16, 32, … values, however many points there are; the first
# is always 0, 3/7, 5/7 or 6/7, a quarter of points each.  In the plane 64 and 8,192 points are 32 places.  The squared discrepancy in one
# and two dimensions stays 0.012 and 0.016; that of random points falls with their number, of Sobol points to 3e-7 and 1e-6 at 1,024.  In
# twenty dimensions it is 61 and 1.8 at 64 and 1,024 points, for 1.3 and 0.08.  Means of 3x² stay 1.0714, for 1.  `n_bits` does not change
# how many values there are.  There is no warning.
# Documented: as a digital net, with a "proper low-discrepancy behavior" up to 2^30 points.  No report on this was found.
# Why it matters: integrals converge to wrong numbers, and more points repeat the same settings of experiments.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pydoe==1.6.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import pydoe
from scipy.stats import qmc

warnings.simplefilter("error")
LARGE, VALUES = 8192, [4, 8, 8, 16, 16, 32, 32, 64, 64, 128]

points = pydoe.niederreiter_sequence(LARGE, 10)
found = [np.unique(each.round(8)) for each in points.T]
print(f"{LARGE} points: coordinates with {[len(each) for each in found]} values, the first {found[0].tolist()}")
assert [len(each) for each in found] == VALUES and np.allclose(found[0], np.array([0, 3, 5, 6]) / 7)
assert (np.histogram(points[:, 0], [0, 0.2, 0.5, 0.8, 1])[0] == LARGE // 4).all()
for bits in (10, 20, 40):
    assert [len(np.unique(each)) for each in pydoe.niederreiter_sequence(1024, 10, n_bits=bits).T] == VALUES

plane = {size: len(np.unique(pydoe.niederreiter_sequence(size, 2), axis=0)) for size in (64, 1024, LARGE)}
print(f"distinct points of the plane, by number of points: {plane}")
assert set(plane.values()) == {32}

for columns in (1, 2, 20):
    for size in (64, 1024):
        sets = {
            "pydoe": pydoe.niederreiter_sequence(size, columns), "random": np.random.default_rng(1).random((size, columns)),
            "Sobol": qmc.Sobol(columns, scramble=False).random(size)}
        discrepancy = {name: qmc.discrepancy(each) for name, each in sets.items()}
        mean = {name: float(np.mean(3 * each[:, 0] ** 2)) for name, each in sets.items()}
        print(f"{columns} dimensions, {size} points: squared discrepancy {', '.join(f'{key} {value:.2g}' for key, value in discrepancy.items())}"
              f"; mean of 3x² {', '.join(f'{key} {value:.4f}' for key, value in mean.items())}")
        assert discrepancy["pydoe"] > 2 * discrepancy["random"] and abs(mean["pydoe"] - 1.0714) < 1e-4
        assert size < 1024 or discrepancy["pydoe"] > 20 * discrepancy["random"] and discrepancy["Sobol"] < discrepancy["random"]
        assert size < 1024 or abs(mean["Sobol"] - 1) < 0.002
PY
