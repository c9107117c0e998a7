#!/usr/bin/env bash
# Guess: to_zarr(append_dim="row") aligns the new rows by their labels, or refuses other labels; durations stay what they are.
# Found (xarray 2026.9.0, zarr 3.1.5): the labels of the other dimensions are overwritten, so that the rows stored first
# change their meaning: 1.0 of "ols" is then 1.0 of "ridge".  Durations of the appended rows are read 60 times too long, as
# their unit is that of the rows stored first.  Nothing is said.
# Why it matters: a table of replicates by method grows by appending; methods in another order swap their results.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check xarray==2026.9.0 zarr==3.1.5
cd "$work" && "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import xarray as xr
import zarr


def table(row, estimators, values, seconds):
    return xr.Dataset(
        {"x": (("row", "estimator"), [values]), "seconds": ("row", np.array([seconds], "timedelta64[s]"))},
        coords={"row": [row], "estimator": estimators},
    )


table(0, ["ols", "ridge"], [1.0, 2.0], 60).to_zarr("store")
table(1, ["ridge", "ols"], [3.0, 4.0], 90).to_zarr("store", append_dim="row")
with xr.open_zarr("store") as opened:
    first = {str(k): float(opened.x.sel(row=0, estimator=k)) for k in opened.estimator.values}
    seconds = opened.seconds.astype("timedelta64[s]").astype(int).values.tolist()
print(f"xarray {xr.__version__}, zarr {zarr.__version__}: the first row, stored as ols 1.0 and ridge 2.0, is read as {first}")
print(f"durations stored as 60 s and 90 s are read as {opened.seconds.values.tolist()}")
assert first == {"ridge": 1.0, "ols": 2.0}
assert seconds[0] != 60 or seconds[1] != 90
PY
