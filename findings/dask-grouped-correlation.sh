#!/usr/bin/env bash
# Guess: correlations and covariances by group are pandas' in Dask, with missing values, too: those of pairs of which both are present.
# Found (dask 2026.8.0, pandas 2.3.3, numpy 2.4.6): not with missing values.  Of pairs around 3 with deviation 1.4 and correlation 0.5,
# `groupby(...).corr()` has 0.0 if 10 % of either are missing at random, -1.0 if 30 % are, and -2.2 if 50 %; covariances go from 1.0 to
# -4.  Products are summed over complete pairs, but sums and counts over all values of a column, so that the product of means does not
# cancel: around 0 correlations with 30 % missing are a third too small, around 1000 they are -50,000 with 10 %.  Variances on the
# diagonal are right; without groups, or after `dropna`, all is.  There is no warning.  Without groups `skew` of a frame with missing
# values is 0 for 1.6, and of a series NaN.
# Documented: pandas' own text for `corr`, "excluding NA/null values".  Known: that `ddof` is ignored in groups; no report on missing
# values.
# Why it matters: a replicate that failed is a missing value; paired differences by cell need this covariance.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "dask[dataframe]==2026.8.0" pandas==2.3.3 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd

SIZE, GROUPS = 3000, 3
warnings.simplefilter("error")


def pairs(mean, share):
    rng = np.random.default_rng(1)
    common, a, b = rng.normal(size=(3, SIZE))
    table = pd.DataFrame({"g": np.arange(SIZE) % GROUPS, "a": mean + common + a, "b": mean + common + b})
    for name in ("a", "b"):
        table.loc[rng.uniform(size=SIZE) < share, name] = np.nan
    return table


def study(mean, share, drop=False):
    """Correlations by group in Dask and pandas, and the greatest difference of a variance."""
    table = pairs(mean, share)
    lazy = dd.from_pandas(table, npartitions=4)
    if drop:
        table, lazy = table.dropna(), lazy.dropna()
    found, right = {}, {}
    for kind in ("corr", "cov"):
        found[kind] = getattr(lazy.groupby("g")[["a", "b"]], kind)().compute().sort_index()
        right[kind] = getattr(table.groupby("g")[["a", "b"]], kind)()
    one, other = (each["corr"].xs("a", level=1).b.to_numpy() for each in (found, right))
    whole = lazy[["a", "b"]].corr().compute().loc["a", "b"]
    covariances = [each["cov"].xs("a", level=1).b.to_numpy().round(2).tolist() for each in (found, right)]
    print(f"around {mean}, {share:.0%} missing{', dropped' if drop else ''}: correlations {one.round(3).tolist()}, of pandas "
          f"{other.round(3).tolist()}; covariances {covariances[0]} and {covariances[1]}; without groups {whole:.3f}")
    assert abs(whole - table.a.corr(table.b)) < 1e-6 and (abs(other - 0.5) < 0.15).all()
    if mean < 10:
        assert all(np.allclose(found["cov"].xs(name, level=1)[name], right["cov"].xs(name, level=1)[name]) for name in ("a", "b"))
    return one, other


for mean in (0, 3):
    one, other = study(mean, 0)
    assert np.allclose(one, other)
    one, other = study(mean, 0.3, drop=True)
    assert np.allclose(one, other)
one, other = study(0, 0.3)
assert (abs(one / other - 0.7) < 0.05).all()
for share, least in ((0.1, 0.3), (0.3, 0.9), (0.5, 1.8)):
    one, other = study(3, share)
    assert (other - one > least).all()
assert (one < -1).all()
one, other = study(1000, 0.1)
assert (one < -1000).all()
table = pairs(3, 0.1)
table["a"] = np.exp(table.a / 3)
lazy = dd.from_pandas(table, npartitions=4)
frame, series, right = float(lazy[["a"]].skew().compute().iloc[0]), float(lazy.a.skew().compute()), table.a.skew()
complete = float(lazy.dropna().a.skew().compute())
print(f"skewness with 10 % missing: of a frame {frame}, of a series {series}, of pandas {right:.3f}; without missing {complete:.3f}")
assert frame == 0 and np.isnan(series) and right > 0.5 and complete > 0.5
PY
