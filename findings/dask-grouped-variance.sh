#!/usr/bin/env bash
# Guess: variances of Dask's data frames are those of pandas to rounding, grouped or not.
# Found (dask 2026.8.0, pandas 3.1.1): without groups they are.  With `groupby`, `var` and `std` subtract the square of a sum
# from a sum of squares: of log-likelihoods near -3 million with a standard deviation of .01, 0 or several times too much.
# Why it matters: standard errors by group are 0 or too large, with no warning; subtract a constant first.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "dask[dataframe]==2026.8.0" pandas==3.1.1
"$work/venv/bin/python" - <<'PY'
import dask.dataframe as dd
import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
table = pd.DataFrame({"model": np.arange(40_000) % 8, "loglik": -3e6 + 0.01 * rng.normal(size=40_000)})
lazy = dd.from_pandas(table, npartitions=4)
right, found = (each.groupby("model").loglik.std() for each in (table, lazy))
found, centred = found.compute(), lazy.assign(loglik=lazy.loglik + 3e6).groupby("model").loglik.std().compute()
print("pandas", right.round(4).tolist())
print("dask  ", found.round(4).tolist())
whole = lazy.loglik.std().compute()
print(f"dask without groups {whole:.4f}; of numbers less a constant {centred.round(4).tolist()}")
assert abs(whole / table.loglik.std() - 1) < 1e-3 and np.allclose(centred, right, rtol=1e-6)
assert (abs(found / right - 1) > 0.3).sum() >= 4
PY
