#!/usr/bin/env bash
# Guess: tasks that each write chunks of their own to one array of Zarr may write at once.
# Found (zarr 3.1.6, xarray 2026.9.0, dask 2026.8.0, numpy 2.4.6): without shards they may.  With them, chunks of a shard are one file
# that each task reads, changes and writes back: of 200 rows that eight threads write, more than half are missing afterwards,
# without a word.  So they are with `to_zarr(region=...)` of xarray, which refuses such Dask chunks, but no NumPy arrays.
# Writers of whole shards are as guessed.  Known: reports of 2025 and 2026; maintainers advise to write whole shards.
# Why it matters: shards are the advice for many small chunks, such as one replicate each; what is lost reads as fill values.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check zarr==3.1.6 xarray==2026.9.0 dask==2026.8.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xarray as xr
import zarr

ROWS, COLUMNS, SHARD = 200, 1000, 50
found = {}
for name, shards, step in (("chunks", None, 1), ("shards", (SHARD, COLUMNS), 1), ("whole shards", (SHARD, COLUMNS), SHARD)):
    array = zarr.create_array(
        f"{name}.zarr", shape=(ROWS, COLUMNS), chunks=(1, COLUMNS), shards=shards, dtype="float64", fill_value=np.nan)

    def write(row):
        array[row:row + step] = np.ones((step, COLUMNS))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(0, ROWS, step)))
    found[name] = int(np.isnan(array[:]).any(axis=1).sum())

empty = xr.Dataset({"y": (("row", "column"), np.full((ROWS, COLUMNS), np.nan))})
encoding = {"y": {"chunks": (1, COLUMNS), "shards": (SHARD, COLUMNS)}}
empty.to_zarr("xarray.zarr", encoding=encoding, zarr_format=3, consolidated=False)


def write_region(row):
    ones = xr.Dataset({"y": (("row", "column"), np.ones((1, COLUMNS)))})
    ones.to_zarr("xarray.zarr", region={"row": slice(row, row + 1)}, consolidated=False)


with ThreadPoolExecutor(8) as pool:
    list(pool.map(write_region, range(ROWS)))
with xr.open_zarr("xarray.zarr", consolidated=False) as stored:
    found["regions of xarray"] = int(stored.y.isnull().any("column").sum())
print(f"rows that are lost, of {ROWS}: {found}")
assert found["chunks"] == found["whole shards"] == 0 and found["shards"] > 20 and found["regions of xarray"] > 20
PY
