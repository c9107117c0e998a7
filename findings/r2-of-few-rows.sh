#!/usr/bin/env bash
# Guess: `r2` and `adj_r2` in polars-ds's report of a regression are R² and its correction, which of noise is 0 on average.
# Found (polars-ds 0.13.0, polars 2.1.0, statsmodels 0.15.0, scipy 1.17.1, numpy 2.4.6): `r2` divides the sum of squared residuals by the number of
# rows and that of outcomes by one less, so that it is 1 - (1 - R²) (n - 1) / n.  With one feature without effect and 4 rows it is 0.49 on
# average for 0.33, with 5 rows 0.40 for 0.25, and with 100 rows still twice R².  `adj_r2` counts the bias as a feature: -0.52 with 4 rows and
# -0.20 with 5, for 0.  Coefficients, errors and p-values are those of statsmodels.  There is no warning.
# Documented: nothing beyond the names.  No report on this was found.
# Why it matters: reports by group have few rows each; R² there depends on their number, and adjusting turns good fits into bad ones.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check polars-ds==0.13.0 polars==2.1.0 statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import numpy as np
import polars as pl
import polars_ds as pds
import statsmodels.api as sm

rng = np.random.default_rng(1)
for rows in (4, 5, 10, 20, 100):
    kept = []
    for _ in range(400):
        table = pl.DataFrame({"x": rng.normal(size=rows), "y": rng.normal(size=rows)})
        report = table.select(pds.lin_reg_report("x", target="y", add_bias=True).alias("r")).unnest("r")
        right = sm.OLS(table["y"].to_numpy(), sm.add_constant(table["x"].to_numpy())).fit()
        assert np.isclose(report["beta"][0], right.params[1]) and np.isclose(report["std_err"][0], right.bse[1])
        assert np.isclose(report["p>|t|"][0], right.pvalues[1])
        assert np.isclose(report["r2"][0], 1 - (1 - right.rsquared) * (rows - 1) / rows)
        assert np.isclose(report["adj_r2"][0], 1 - (1 - report["r2"][0]) * (rows - 1) / (rows - 3))
        kept.append((report["r2"][0], right.rsquared, report["adj_r2"][0], right.rsquared_adj))
    r2, right_r2, adjusted, right_adjusted = np.mean(kept, axis=0)
    print(f"{rows} rows: r2 {r2:.3f}, R² {right_r2:.3f}; adj_r2 {adjusted:.3f}, adjusted R² {right_adjusted:.3f}")
    if rows <= 5:
        assert r2 > 1.4 * right_r2 and adjusted < right_adjusted - 0.15
PY
