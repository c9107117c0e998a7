#!/usr/bin/env bash
# Guess: an optional package makes diagnostics faster, not other: the Monte Carlo standard error of a mean does not depend on it.
# Found (arviz 0.23.4, numba 0.68.1): if Numba is installed, `mcse` and `summary` subtract the square of a sum from a sum of
# squares.  Of log-likelihoods near -3 million with a standard deviation of .01 or .1 most errors are wrong: NaN, half of the right
# ones, or up to 700 times as large.  Without Numba, or after `arviz.Numba.disable_numba()`, all are right.
# Effective sizes, R-hat and the `sd` in the same row of the summary are right in any case.  Not documented.
# Why it matters: the precision that is reported depends on what else is installed, with no warning.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check arviz==0.23.4 numpy==2.4.6 xarray==2026.9.0
cat > "$work/errors.py" <<'PY'
import sys

import arviz
import numpy as np

wrong = {}
for centre, sd in ((0, 0.01), (-3e6, 0.01), (-3e6, 0.1)):
    ratios = []
    for seed in range(20):
        draws = centre + sd * np.random.default_rng(seed).normal(size=(4, 1000))
        told = arviz.summary({"x": draws}, round_to="none").iloc[0]
        assert abs(told.sd / sd - 1) < 0.1 and told.ess_bulk > 3000 and abs(told.r_hat - 1) < 0.01
        ratios.append((np.ravel(arviz.mcse(draws))[0] / (sd / 4000**0.5), told.mcse_mean / (sd / 4000**0.5)))
    arviz.Numba.disable_numba()
    assert abs(np.ravel(arviz.mcse(draws))[0] / (sd / 4000**0.5) - 1) < 0.2
    if sys.argv[1] == "with":
        arviz.Numba.enable_numba()
    off = [~(abs(each - 1) < 0.2) for each in np.array(ratios).T]
    wrong[centre, sd] = [int(each.sum()) for each in off]
    print(f"centre {centre:g}, sd {sd}: reported / right of mcse, 6 of 20:", *(f"{each[0]:.3g}" for each in ratios[:6]), end="; ")
    print("wrong of 20: {} of mcse, {} of summary".format(*wrong[centre, sd]))
assert wrong[0, 0.01] == [0, 0] and all((min(each) >= 3) == (sys.argv[1] == "with") for each in list(wrong.values())[1:])
assert sys.argv[1] == "with" or not any(map(any, wrong.values()))
PY
export ARVIZ_DATA="$work" MPLCONFIGDIR="$work"
echo "without Numba"; "$work/venv/bin/python" -W ignore "$work/errors.py" without
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numba==0.68.1
echo "with Numba"; "$work/venv/bin/python" -W ignore "$work/errors.py" with
