#!/usr/bin/env bash
# Guess: results that are opened, aligned to a longer index and saved again keep their flags, with missing ones missing.
# Found (xarray 2026.9.0, netCDF4 1.7.5): the encoding of the first file stays with the variable, so that a flag that is
# missing after reindex is written, and read, as True; a missing text of fixed width is cut to "na".
# Why it matters: whoever joins the results of two studies gets cells that "reached their precision" without having run.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check xarray==2026.9.0 netCDF4==1.7.5
cd "$work" && "$work/venv/bin/python" - <<'PY'
import numpy as np
import xarray as xr

made = xr.Dataset(
    {"reached": ("cell", [True, False]), "name": ("cell", np.array([b"ab", b"cd"]))}, coords={"cell": [0, 1]}
)
made.to_netcdf("one.nc")
with xr.open_dataset("one.nc") as opened:
    longer = opened.load().reindex(cell=[0, 1, 2])
print("after reindex:", longer.reached.values.tolist(), longer.name.values.tolist())
outcome = {}
for name in ("reached", "name"):
    try:
        longer[[name]].to_netcdf(f"{name}.nc")
        with xr.open_dataset(f"{name}.nc") as again:
            outcome[name] = again[name].values.tolist()
    except Exception as error:
        outcome[name] = f"{type(error).__name__}: {error}"
    print(f"xarray {xr.__version__}, {name} saved and read again: {outcome[name]}")
assert longer.reached.isnull().values.tolist() == [False, False, True]
assert outcome["reached"] == [True, False, True]
PY
