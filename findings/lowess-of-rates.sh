#!/usr/bin/env bash
# Guess: lowess of 0/1 outcomes is near their local mean, so that it shows size, power or coverage along a factor.
# Found (statsmodels 0.15.0, seaborn 0.13.2): it is 0 where the rate is 0.05 or 0.1, 1 where it is 0.95, and 0.22 for 0.3, as its
# robust steps take the rarer outcome for outliers, even all of it.  lowess=True of seaborn does the same and has no way to
# switch them off; it=0 of statsmodels does, and is as guessed.
# Why it matters: a test of size 0.05 looks as if it never rejects, an interval of coverage 0.95 as if it never misses.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check statsmodels==0.15.0 seaborn==0.13.2 numpy==2.4.6
MPLBACKEND=agg "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import seaborn
from statsmodels.nonparametric.smoothers_lowess import lowess

rng = np.random.default_rng(0)
x = rng.uniform(size=2000)
found = {}
for rate in (0.05, 0.1, 0.3, 0.95):
    outcome = (rng.random(2000) < rate).astype(float)
    smooth, plain = (lowess(outcome, x, return_sorted=False, **options) for options in ({}, {"it": 0}))
    line = seaborn.regplot(x=x, y=outcome, lowess=True, scatter=False).lines[-1].get_ydata()
    found[rate] = smooth.mean(), line.mean(), plain.mean(), outcome.mean()
    print("rate {}: lowess {:.3f}, seaborn {:.3f}, lowess with it=0 {:.3f}, mean {:.3f}".format(rate, *found[rate]))
    assert abs(found[rate][2] - found[rate][3]) < 0.01
expected = np.array([0.0, 0.0, 0.22, 1.0])[:, None]
assert (abs(np.array([*found.values()])[:, :2] - expected) < 0.02).all()
PY
