#!/usr/bin/env bash
# Guess: Polars' `mean_horizontal` of small integers is the mean of a row, between its least and largest number, as `mean` of a column is.
# Found (polars 2.1.0, pandas 3.1.1, numpy 2.4.6): it sums in the columns' type first, and wraps.  Of 1,000 rows of four percentages above 60 all
# means are 64 or 128 too low in Int8 columns and 64 in UInt8 columns, below all numbers of their rows; of ten columns 77 to 102.  So are those
# of Int16 numbers above 20,000 and of Int32 numbers near 2 billion.  The mean of row means is 16 where that of columns' means is 80, and
# `shrink_dtype` alone makes right means wrong.  `DataFrame.mean_horizontal`, `sum_horizontal`, `dot` and the streaming engine wrap too;
# `list.mean`, `mean` and `sum` do not, nor pandas.  There is no warning.
# Documented: "the mean of all values horizontally across columns"; for `sum`, that small integers are cast to Int64.  Known: the same of
# `sum_horizontal` is reported and open since February 2025, of means of columns mended in 2022; no report on row means was found.
# Why it matters: scores, counts and grades are read or shrunk to small integers; averages over replicates in columns are silently wrong.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check polars==2.1.0 pandas==3.1.1 numpy==2.4.6 pyarrow
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import pandas as pd
import polars as pl

warnings.simplefilter("error")
ROWS = 1000
rng = np.random.default_rng(1)
for kind, columns, low, high, step in (
        ("Int8", 4, 61, 101, 256), ("UInt8", 4, 61, 101, 256), ("Int8", 10, 61, 101, 256), ("Int16", 4, 20_000, 30_000, 2**16),
        ("Int32", 4, 1_900_000_000, 2_000_000_000, 2**32), ("Int64", 4, 61, 101, None), ("Float32", 4, 61, 101, None)):
    numbers = rng.integers(low, high, (ROWS, columns))
    table = pl.DataFrame({f"replicate{each}": numbers[:, each] for each in range(columns)}).cast(getattr(pl, kind))
    right = numbers.mean(axis=1)
    by_pandas = pd.DataFrame(table.to_dict(as_series=False), dtype=kind.lower()).mean(axis=1).to_numpy()
    found = {
        "select": table.select(pl.mean_horizontal(pl.all())).to_series().to_numpy(),
        "frame": table.mean_horizontal().to_numpy(),
        "streaming": table.lazy().select(pl.mean_horizontal(pl.all())).collect(engine="streaming").to_series().to_numpy()}
    by_list = table.select(pl.concat_list(pl.all()).list.mean()).to_series().to_numpy()
    by_column = np.mean(table.mean().row(0))
    errors = found["select"] - right
    print(f"{kind}, {columns} columns: errors of row means {errors.min():,.1f} to {errors.max():,.1f}, {np.mean(abs(errors) > 1e-3):.0%} wrong; "
          f"mean of row means {found['select'].mean():,.1f}, of column means {by_column:,.1f}; errors of list.mean {abs(by_list - right).max():.1g}")
    assert all(np.array_equal(each, found["select"]) for each in found.values())
    assert np.allclose(by_pandas, right) and np.allclose(by_list, right) and np.isclose(by_column, numbers.mean())
    if step is None:
        assert np.allclose(errors, 0, atol=1e-4)
    else:
        multiples = errors * columns / step
        assert np.allclose(multiples, multiples.round()) and np.mean(abs(errors) > 1) > 0.9
        total = table.select(pl.sum_horizontal(pl.all())).to_series().cast(pl.Int64).to_numpy()
        assert np.mean(total != numbers.sum(axis=1)) > 0.9
        below = np.mean(found["select"] < numbers.min(axis=1))
        print(f"  below the least number of their row: {below:.0%}")
        assert below > 0.9
numbers = rng.integers(61, 101, (ROWS, 4))
wide = pl.DataFrame({f"replicate{each}": numbers[:, each] for each in range(4)})
small = wide.select(pl.Series(each.to_list()).shrink_dtype().alias(each.name) for each in wide)
means = [each.mean_horizontal().mean() for each in (wide, small)]
print(f"mean of row means {means[0]:.1f}, after shrink_dtype to {small.dtypes[0]} {means[1]:.1f}")
assert small.dtypes[0] == pl.Int8 and means[0] - means[1] > 60
column = pl.Series("x", numbers[:, 0]).cast(pl.Int8)
print(f"dot {column.dot(column)}, right {int((numbers[:, 0] ** 2).sum())}; sum {column.sum()}, right {numbers[:, 0].sum()}")
assert column.dot(column) != (numbers[:, 0] ** 2).sum() and column.sum() == numbers[:, 0].sum()
PY
