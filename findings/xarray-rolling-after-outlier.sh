#!/usr/bin/env bash
# Guess: a standard deviation over a moving window depends on the values in the window.
# Found (xarray 2026.4.0, bottleneck 1.6.0): where bottleneck is installed, xarray uses it unasked, and one value of 1e10
# spoils all later windows, for ever: 18.1 where 1.03 is right.  Without bottleneck, by pandas 3.1.1 and polars 2.1.0, and
# by xarray 2026.9.0, which no longer uses bottleneck unless told to, windows forget what has left them.
# Why it matters: one replicate that diverges makes all running Monte Carlo errors after it wrong; without it they are right.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 xarray==2026.4.0 bottleneck==1.6.0 \
    pandas==3.1.1 polars==2.1.0
cat > "$work/rolling.py" <<'PY'
import numpy as np
import pandas as pd
import polars as pl
import xarray as xr

WINDOW, LAST = 100, 1000
estimates = np.random.default_rng(0).standard_normal(3000)
estimates[500] = 1e10
truth = np.array([each.std() for each in np.lib.stride_tricks.sliding_window_view(estimates, WINDOW)])[-LAST:]


def by_xarray(use_bottleneck):
    with xr.set_options(use_bottleneck=use_bottleneck):
        return xr.DataArray(estimates, dims="replicate").rolling(replicate=WINDOW).std().values[-LAST:]


found = {
    "xarray with bottleneck": by_xarray(True),
    "xarray without": by_xarray(False),
    "pandas": pd.Series(estimates).rolling(WINDOW).std(ddof=0).values[-LAST:],
    "polars": pl.Series(estimates).rolling_std(WINDOW, ddof=0).to_numpy()[-LAST:],
}
print(f"xarray {xr.__version__}")
for name, each in found.items():
    print(f"{name:24}{each[0]:8.4f}, right is {truth[0]:.4f}; largest relative error {np.abs(each / truth - 1).max():.1g}")
assert xr.get_options()["use_bottleneck"] == (xr.__version__ == "2026.4.0")  # by default
wrong = [name for name, each in found.items() if not np.allclose(each, truth, rtol=1e-9)]
assert wrong == ["xarray with bottleneck"], wrong
PY
"$work/venv/bin/python" "$work/rolling.py"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check xarray==2026.9.0
"$work/venv/bin/python" "$work/rolling.py"
