#!/usr/bin/env bash
# Guess: data.sel(method="ols") on a dimension named "method" selects the label, or raises an error.
# Found (xarray 2026.9.0): it is taken for the way of inexact matching and returns everything, without a word; "tolerance"
# and "drop" do the same.  The mapping form data.sel({"method": "ols"}) is right.
# Why it matters: a table of methods is the standard result of a simulation study, so a mean over "ols" is one over all.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check xarray==2026.9.0
"$work/venv/bin/python" - <<'PY'
import xarray as xr

for name in ("method", "tolerance", "drop", "estimator"):
    data = xr.DataArray([1.0, 2.0, 3.0], coords={name: ["ols", "ridge", "lasso"]}, dims=name)
    by_keyword = data.sel(**{name: "ols"})
    by_mapping = data.sel({name: "ols"})
    print(f"xarray {xr.__version__}, dimension {name!r}: keyword gives {by_keyword.values.tolist()}, mapping {by_mapping.item()}")
    assert by_mapping.item() == 1.0
    assert (by_keyword.size == 3) == (name != "estimator")
PY
