#!/usr/bin/env bash
# Guess: lowess at a value of x that many observations share is near their mean, the more so the narrower the window.
# Found (statsmodels 0.15.0, numpy 2.4.6): if a window holds no other x, it is the first of these observations, exactly; the others
# change nothing.  With xvals it is NaN.  Wider windows, and lowess of R 4, which takes their mean, are as guessed.
# Known: a report that it is not made for many equal x, and NaN may come, is open; not documented.
# Why it matters: replicates along the levels of a factor: the curve is one replicate, and looks as noisy as one.
# Needs R of Debian 12 (r-base-core 4.2.2).
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check statsmodels==0.15.0 numpy==2.4.6
"$work/venv/bin/python" -W ignore - "$work/data.csv" <<'PY'
import sys

import numpy as np
from statsmodels.nonparametric.smoothers_lowess import lowess

rng = np.random.default_rng(0)
level = np.repeat(np.arange(10.0), 200)
y = 5 * np.sin(level) + rng.normal(size=2000)
means, first = y.reshape(10, 200).mean(axis=1), y[::200]
narrow, wide = (lowess(y, level, frac=frac, it=0, return_sorted=False)[::200] for frac in (0.1, 0.11))
queried = lowess(y, level, frac=0.1, xvals=np.arange(10.0))
shuffled = lowess(rng.permuted(y.reshape(10, 200), axis=1).ravel(), level, frac=0.1, it=0, return_sorted=False)[::200]
for name, each in (("means", means), ("window of 10 %", narrow), ("the same, shuffled", shuffled), ("window of 11 %", wide)):
    print(f"{name:20}{each[:5].round(2)}")
print(f"{'with xvals':20}{queried[:5]}")
assert np.array_equal(narrow, first) and not np.allclose(shuffled, narrow, atol=0.5) and np.isnan(queried).all()
assert np.allclose(wide, means, atol=0.05)
np.savetxt(sys.argv[1], np.column_stack([level, y]), delimiter=",")
PY
Rscript --vanilla - "$work/data.csv" <<'R'
table <- read.csv(commandArgs(TRUE)[1], header = FALSE)
found <- lowess(table$V1, table$V2, f = 0.1, iter = 0, delta = 0)$y[seq(1, 2000, 200)]
cat("R, window of 10 %   ", round(found[1:5], 2), "\n")
stopifnot(max(abs(found - tapply(table$V2, table$V1, mean))) < 1e-6)
R
