#!/usr/bin/env bash
# Guess: groupby of xarray gives the same numbers whether or not the packages that make it fast are installed.
# Found (xarray 2026.9.0, flox 0.11.2, numbagg 0.9.6): with flox the mean of 10^6 numbers of float32 near 1000 is wrong by almost
# 1 percent, thousands of standard errors.  With numbagg too, count() of int8 is modulo 256 (negative, or small), and of int16
# modulo 65536.  Without a group both are right.
# Why it matters: flox and numbagg come with xarray[accel]; a rate is a count of flags, which are int8 in many files.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check xarray==2026.9.0 flox==0.11.2 numbagg==0.9.6 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import xarray as xr

rng = np.random.default_rng(0)
values = (1000 + rng.standard_normal(10**6)).astype(np.float32)
table = xr.Dataset(
    {"loss": ("run", values), "int8": ("run", np.ones(10**6, np.int8)), "int16": ("run", np.ones(10**6, np.int16))},
    coords={"cell": ("run", np.zeros(10**6, int))},
)
error = values.std() / 1000
found = {}
for flox in (False, True):
    with xr.set_options(use_flox=flox):
        found["mean", flox] = table.loss.groupby("cell").mean().item()
        for name in ("int8", "int16"):
            found[name, flox] = table[name].groupby("cell").count().item()
print(f"xarray {xr.__version__}: mean {found['mean', False]:.4f}, with flox {found['mean', True]:.4f}, standard error {error:.4f}")
print(f"count of int8 {found['int8', False]}, with flox and numbagg {found['int8', True]}; of int16 {found['int16', True]}")
assert abs(found["mean", False] - 1000) < 5 * error and abs(found["mean", True] - 1000) > 1000 * error
assert table.int8.count() == found["int8", False] == found["int16", False] == 10**6
assert found["int8", True] == np.int64(10**6).astype(np.int8) and found["int16", True] == np.int64(10**6).astype(np.int16)
PY
