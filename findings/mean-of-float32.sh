#!/usr/bin/env bash
# Guess: the mean of float32 numbers is right to float32 however they lie in memory, as NumPy adds in pairs.
# Found (numpy 2.4.6, xarray 2026.9.0, pandas 3.1.1, numba 0.68.1): the mean of 20 million 0/1 outcomes of a rate of .95 is
# .839 over the first axis of an array (replicate, method), by `mean`, by `einsum` and by xarray: numbers are added one by
# one, and such a sum stops growing at 2^24.  Of one column, in Fortran's order and by pandas it is .950.  A compiled
# function of Numba adds one by one in any case; its variance of equal numbers is not 0.
# Why it matters: coverage, power and accuracy come out too low, the more so the more replicates there are.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 xarray==2026.9.0 pandas==3.1.1 numba==0.68.1
"$work/venv/bin/python" - <<'PY'
import numba
import numpy as np
import pandas as pd
import xarray as xr

compiled = numba.njit(lambda x: (x.mean(), x.var()))
covered = (np.random.default_rng(0).random((20_000_000, 2), dtype=np.float32) < 0.95).astype(np.float32)
truth = covered.mean(axis=0, dtype=np.float64)
found = {
    "numpy, over the first axis": covered.mean(axis=0),
    "numpy, einsum": np.einsum("rm->m", covered) / np.float32(len(covered)),
    "xarray": xr.DataArray(covered, dims=("replicate", "method")).mean("replicate").values,
    "numba, of a column": compiled(covered[:, 0].copy())[0],
    "numpy, of a column": covered[:, 0].mean(),
    "numpy, in Fortran's order": np.asfortranarray(covered).mean(axis=0),
    "pandas": pd.DataFrame(covered).mean().values,
}
right = [name for name, means in found.items() if np.allclose(means, truth[: np.size(means)], atol=1e-4)]
for name, means in found.items():
    print(f"{name:28}{np.ravel(means)[0]:.4f}")
equal = np.full(20_000_000, 0.1, np.float32)
variances = equal.var(), compiled(equal)[1]
print("variance of equal numbers: numpy {:.1g}, numba {:.1g}".format(*variances))
assert right == ["numpy, of a column", "numpy, in Fortran's order", "pandas"], right
assert variances[0] < 1e-12 and variances[1] > 1e-6
PY
