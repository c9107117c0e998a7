#!/usr/bin/env bash
# Guess: compiled by Numba, `np.random.vonmises` draws what NumPy draws: directions between -π and π.
# Found (numba 0.68.1, numpy 2.4.6): they are the same points of the circle, as numbers from 0 to 2π.  Around a direction of 0 half of
# them lie near 2π: with concentration 4, mean and standard deviation are 3.14 and 2.73 for 0.00 and 0.55, and a regression on the
# direction has a slope of -0.14 for 1; even around 1.5, where 0.8 % differ, it is 0.55.  Around -1 all but few differ, by 2π; around 3
# NumPy's are cut and Numba's are not.  Sines and cosines agree; with concentrations below a millionth directions are others.
# Documented: NumPy's interval, and that Numba supports the function; not its own.  The source says it is Python's
# `random.vonmisesvariate`, which has 0 to 2π.  No report was found.
# Why it matters: a study that is compiled to be fast changes its results; tests of sines and cosines, or of mean lengths, pass.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numba==0.68.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numba
import numpy as np

SIZE = 100_000
warnings.simplefilter("error")


def draw(centre, concentration):
    np.random.seed(1)
    found = np.empty(SIZE)
    for k in range(SIZE):
        found[k] = np.random.vonmises(centre, concentration)
    return found


compiled = numba.njit(draw)
noise = np.random.default_rng(2).normal(size=SIZE)
moved = {}
for centre in (0.0, -1.0, 1.5, 3.0):
    plain, fast = draw(centre, 4.0), compiled(centre, 4.0)
    assert plain.min() > -np.pi and plain.max() < np.pi and fast.min() > 0 and fast.max() < 2 * np.pi
    assert np.allclose(np.sin(plain), np.sin(fast)) and np.allclose(np.cos(plain), np.cos(fast))
    y = plain + 0.1 * noise
    slopes = [np.polyfit(x, y, 1)[0] for x in (plain, fast)]
    moved[centre] = np.mean(abs(plain - fast) > 6)
    print(f"centre {centre:g}, NumPy and Numba: means {plain.mean():.2f} and {fast.mean():.2f}, standard deviations "
          f"{plain.std():.2f} and {fast.std():.2f}, slopes {slopes[0]:.2f} and {slopes[1]:.2f}; {moved[centre]:.1%} differ by 2π")
    if not centre:
        assert abs(plain.mean()) < 0.02 and abs(fast.mean() - np.pi) < 0.05 and fast.std() > 4 * plain.std()
        assert abs(slopes[0] - 1) < 0.01 and slopes[1] < 0.1
    elif centre == 3:
        assert fast.std() < 0.6 and plain.std() > 2
    else:
        assert abs(slopes[0] - 1) < 0.01 and slopes[1] < 0.7
assert abs(moved[0.0] - 0.5) < 0.02 and moved[-1.0] > 0.9 and moved[1.5] < 0.02
plain, fast = draw(1.0, 1e-7), compiled(1.0, 1e-7)
same = np.mean(abs(np.exp(1j * plain) - np.exp(1j * fast)) < 1e-6)
print(f"concentration 1e-7: {same:.1%} are the same points of the circle")
assert same == 0
PY
