#!/usr/bin/env bash
# Guess: a smoothing spline whose penalty is chosen by generalized cross-validation is the same curve in metres and in kilometres.
# Found (scipy 1.17.1, numpy 2.4.6): not that of `make_smoothing_spline`.  The penalty has the unit of x cubed; it is sought between
# 0 and the number of values, by steps that know no unit.  200 values over a range of 1 or 10 get the curve that is meant.
# Over 0.1 they get a straight line, over 10 000 nearly their own noise; errors grow 53- and 21-fold, without a word.
# Weights act as the range does: those of standard errors of 0.001, 1e6, give the noise.
# Known: developers name the bounds in a review of 2026; documented is only that the criterion is used.
# Why it matters: times in seconds or doses in grams decide how smooth a regression is; a study of it compares units.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import numpy as np
from scipy.interpolate import make_smoothing_spline

SIZE, NOISE = 200, 0.3
rng = np.random.default_rng(0)
x = np.sort(rng.uniform(size=SIZE))
truth = np.sin(6 * x)
samples = truth + NOISE * rng.normal(size=(20, SIZE))


def error(curves):
    return np.mean((curves - truth) ** 2)


def curves(unit, weight=1.0):
    return np.array([make_smoothing_spline(x * unit, y, w=np.full(SIZE, weight))(x * unit) for y in samples])


line = np.array([np.polyval(np.polyfit(x, y, 1), x) for y in samples])
print(f"squared error of straight lines {error(line):.3f}, of the values themselves {error(samples):.3f}")
found = {}
for unit in (0.1, 1, 10, 100, 1e3, 1e4):
    found[unit] = error(curves(unit))
    print(f"range of x {unit:7g}: {found[unit]:.4f}")
assert found[1] < 0.004 and abs(found[10] / found[1] - 1) < 0.05
assert found[0.1] > 0.99 * error(line) and found[1e4] > 0.7 * error(samples)
heavy = error(curves(10, weight=1 / 0.001**2))
print(f"range of x 10, all weights 1e6: {heavy:.4f}")
assert heavy > 5 * found[10]
PY
