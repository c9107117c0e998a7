#!/usr/bin/env bash
# Guess: a variable of NumPy numbers needs no Dask, which is imported where something is chunked.
# Found (dask 2026.8.0): up to xarray 2026.2.0 it is so; xarray 2026.9.0 imports `dask.array` with the first variable.
# Why it matters: 135 modules, and a fifth of a second, in each process that labels one result.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
for version in 2026.2.0 2026.9.0; do
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 dask==2026.8.0 xarray==$version
    "$work/venv/bin/python" - <<'PY'
import sys
import time

import xarray as xr

before, began = len(sys.modules), time.process_time()
xr.Dataset({"mse": ("cell", [1.0, 2.0])})
imported, seconds = "dask.array" in sys.modules, time.process_time() - began
print(f"xarray {xr.__version__}: {len(sys.modules) - before} modules imported in {seconds:.2f} s of processor time")
assert imported == (xr.__version__ == "2026.9.0")
PY
done
