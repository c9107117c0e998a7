#!/usr/bin/env bash
# Guess: two files of packed numbers that xarray reads, joins and writes again hold what they held, to the packing's precision.
# Found (xarray 2026.9.0, netCDF4 1.7.5.1.post1, dask 2026.8.0, numpy 2.4.6): all are packed as the first file was.  Numbers beyond
# its range wrap round: of a second part with ten times the spread 70 % come back wrong, by up to 35 where 10 is the spread, all
# inside the first part's range.  So do new values of a variable that was read, by `copy(data=...)` or by assignment in place.
# There is no warning.  After `drop_encoding`, or arithmetic, it is as guessed.  Known: reports since 2020; maintainers advise to
# reset the encoding.  Documented: that encodings are kept; not that values are lost.
# Why it matters: packing halves files of many replicates; histograms of what is lost look sound, as nothing lies far out.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    xarray==2026.9.0 netCDF4==1.7.5.1.post1 dask==2026.8.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import xarray as xr

SIZE, SPREADS = 1000, (1, 10)
warnings.simplefilter("error")
for part, spread in enumerate(SPREADS):
    y = spread * np.random.default_rng(part).normal(size=SIZE)
    packing = {"dtype": "int16", "scale_factor": np.ptp(y) / 65_000, "add_offset": (y.max() + y.min()) / 2, "_FillValue": -32768}
    packed = xr.Dataset({"y": ("replicate", y)}, {"replicate": np.arange(SIZE) + SIZE * part})
    packed.to_netcdf(f"{part}.nc", encoding={"y": packing})
first, second = (xr.load_dataset(f"{part}.nc") for part in range(2))
in_place = first.copy(deep=True)
in_place["y"][:] = second.y.values
cases = {
    "concat": xr.concat([first, second], "replicate"),
    "open_mfdataset": xr.open_mfdataset(["0.nc", "1.nc"]),
    "copy(data=...)": first.assign(y=first.y.copy(data=second.y.values)),
    "in place": in_place,
    "concat, the wide part first": xr.concat([second, first], "replicate"),
    "arithmetic": xr.concat([first, second], "replicate") * 1,
    "drop_encoding": xr.concat([first, second], "replicate").drop_encoding(),
}
found = {}
for name, held in cases.items():
    held.to_netcdf("again.nc")
    again = xr.load_dataset("again.nc")
    errors = np.abs(again.y - held.y).values
    found[name] = np.mean(errors[-SIZE:] > 0.01)
    print(f"{name}: {found[name]:.3f} of the last {SIZE} are wrong, by up to {errors.max():.4f}; standard deviation "
          f"{float(held.y.std()):.2f} is read as {float(again.y.std()):.2f}, largest value {float(again.y.max()):.2f}")
    if found[name]:
        assert float(again.y.max()) < 1.01 * float(first.y.max()) and errors.max() > 20
assert {name for name, wrong in found.items() if wrong} == {"concat", "open_mfdataset", "copy(data=...)", "in place"}
assert min(wrong for wrong in found.values() if wrong) > 0.5
PY
