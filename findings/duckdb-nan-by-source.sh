#!/usr/bin/env bash
# Guess: a query has one answer for one table, whichever package or file holds it.
# Found (duckdb 2.0.1): of a column with NaN, NumPy and pandas give it missing values, so that count, mean and rates leave them
# out; polars and pyarrow give it NaN, which counts, and is larger than 1.96.  Of a Parquet file of polars or pyarrow, NaN is
# larger than 1.96 where it is selected, and is left out of `where z > 1.96`, by the statistics of its row group.
# Why it matters: a replicate that failed is no rejection, or is one, by the package that wrote the table.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1 \
    pandas==3.1.1 numpy==2.4.6
cd "$work" && "$work/venv/bin/python" - <<'PY'
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet

z = np.array([0.5, 2.5, np.nan, 0.1, np.nan])
tables = {"numpy": {"z": z}, "pandas": pd.DataFrame({"z": z}), "polars": pl.DataFrame({"z": z}), "pyarrow": pa.table({"z": z})}
tables["polars"].write_parquet("polars.parquet", row_group_size=2)
pa.parquet.write_table(tables["pyarrow"], "pyarrow.parquet", row_group_size=2)
print("duckdb", duckdb.__version__)
sources = {name: ("held", held) for name, held in tables.items()} | {
    f"file of {name}": (f"'{name}.parquet'", None) for name in ("polars", "pyarrow")}
found = {}
for name, (source, held) in sources.items():
    (row,) = duckdb.sql(f"select count(z), avg(z), avg((z > 1.96)::int) from {source}").fetchall()
    ((where,),) = duckdb.sql(f"select count(*) from {source} where z > 1.96").fetchall()
    found[name] = row[0], str(round(row[1], 3)), round(row[2], 3), where
    print(f"{name}: count {row[0]}, mean {row[1]:.3f}, rate of z > 1.96 {row[2]:.3f}, rows where so {where}")
assert found["numpy"] == found["pandas"] == (3, "1.033", 0.333, 1)
assert found["polars"] == found["pyarrow"] == (5, "nan", 0.6, 3)
assert found["file of polars"][:3] == found["file of pyarrow"][:3] == (5, "nan", 0.6)
assert found["file of polars"][3] == found["file of pyarrow"][3] == 2  # the row group of NaN and 0.1 is left out
PY
