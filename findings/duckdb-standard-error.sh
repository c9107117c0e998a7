#!/usr/bin/env bash
# Guess: DuckDB's `sem` is pandas' and SciPy's, the sample standard deviation over the root of the number, as its `stddev` is theirs.
# Found (duckdb 2.0.1, pandas 3.1.1, scipy 1.17.1, numpy 2.4.6): it divides the sum of squares by the number, not by one less.  Standard
# errors of pairs are 29 % too small, of three numbers 18 %, of ten 5 %; of one number it is 0 where pandas has NaN and `stddev` NULL, so
# that a weight of 1 / sem² is infinite.  Student's intervals of 95 % cover the mean in 93.0 % of pairs and 93.1 % of fives, for 95.0 by
# pandas, and 1.96 `sem` in 60.5 % of pairs for 70.4.  `stddev`, `variance` and `kurtosis` correct for the number.  `sem` is the same in
# windows.  There is no warning.
# Documented: "the standard error of the mean"; for `kurtosis` the correction is named.  No report was found.
# Why it matters: tables of means by condition have few replicates each; a script moved from pandas to SQL has shorter error bars.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pandas==3.1.1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import duckdb
import numpy as np
import pandas as pd
from scipy import stats

GROUPS = 50_000
warnings.simplefilter("error")
database = duckdb.connect()
rng = np.random.default_rng(1)
for size in (2, 3, 5, 10, 100):
    groups = GROUPS if size < 100 else 1000
    table = pd.DataFrame({"g": np.repeat(np.arange(groups), size), "x": rng.normal(size=groups * size)})
    database.register("numbers", table)
    query = "select g, avg(x) as mean, sem(x) as sem, stddev(x) as sd, variance(x) as v from numbers group by g order by g"
    found = database.execute(query).df()
    by_pandas = table.groupby("g").x.sem().to_numpy()
    by_scipy = stats.sem(table.x.to_numpy().reshape(groups, size), axis=1)
    ratio = found["sem"].to_numpy() / by_pandas
    covered = {}
    for name, errors in (("DuckDB", found["sem"].to_numpy()), ("pandas", by_pandas)):
        covered[name] = [np.mean(abs(found["mean"]) < quantile * errors) for quantile in (stats.t.ppf(0.975, size - 1), 1.96)]
    print(f"{size} numbers: sem of DuckDB over that of pandas {ratio.min():.4f} to {ratio.max():.4f}; Student's intervals cover "
          f"{covered['DuckDB'][0]:.1%}, by pandas {covered['pandas'][0]:.1%}; 1.96 errors {covered['DuckDB'][1]:.1%} and "
          f"{covered['pandas'][1]:.1%}")
    assert np.allclose(by_pandas, by_scipy) and np.allclose(found.sd / np.sqrt(size), by_pandas) and np.allclose(found.v, found.sd**2)
    assert np.allclose(ratio, np.sqrt((size - 1) / size), rtol=1e-6)
    if size < 10:
        assert covered["DuckDB"][0] < 0.935 and abs(covered["pandas"][0] - 0.95) < 0.01
one = database.execute("select sem(x), stddev(x), count(*) from (select 3.0::double as x)").fetchone()
by_pandas = pd.Series([3.0]).sem()
print(f"one number: sem {one[0]}, stddev {one[1]}; sem of pandas {by_pandas}")
assert one[0] == 0 and one[1] is None and np.isnan(by_pandas)
window = database.execute("select sem(x) over (), stddev(x) over () from (values (1.0::double), (2.0::double)) as t(x)").fetchall()[0]
print(f"window of 1 and 2: sem {window[0]:.4f}, stddev over the root of 2 {window[1] / 2**0.5:.4f}")
assert abs(window[0] - 0.5 / 2**0.5) < 1e-9 and abs(window[1] / 2**0.5 - 0.5) < 1e-9
PY
