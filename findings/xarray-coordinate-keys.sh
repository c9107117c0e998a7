#!/usr/bin/env bash
# Guess: the name of a coordinate does not matter to functions of NumPy on a DataArray.
# Found (xarray 2026.9.0, numpy 2.4): with a coordinate named "keys", np.isfinite(array) and xr.where(array > 0, 1, 0) raise
# IndexError, as the array is taken for a dictionary; arithmetic on the same array works.
# Why it matters: a factor of a study may be called anything; "keys" is the usual name in work on attention.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check xarray==2026.9.0 numpy
"$work/venv/bin/python" - <<'PY'
import numpy as np
import xarray as xr

seen = {}
for name in ("keys", "values", "lengths"):
    array = xr.DataArray([1.0, 2.0], dims="cell", coords={name: ("cell", ["a", "b"])})
    assert (array + 1).values.tolist() == [2.0, 3.0]
    for label, call in (("isfinite", lambda a: np.isfinite(a)), ("where", lambda a: xr.where(a > 1, 1, 0))):
        try:
            call(array)
            seen[name, label] = "works"
        except IndexError as error:
            seen[name, label] = f"IndexError: {error}"
for (name, label), outcome in seen.items():
    print(f"xarray {xr.__version__}, coordinate {name!r}, {label}: {outcome}")
assert seen["keys", "isfinite"].startswith("IndexError") and seen["keys", "where"].startswith("IndexError")
assert seen["values", "isfinite"] == seen["lengths", "where"] == "works"
PY
