#!/usr/bin/env bash
# Guess: polyfit leaves missing values out, so its covariance matrix is that of NumPy's polyfit of the values that are there.
# Found (xarray 2026.9.0, numpy 2.4.6): coefficients are; the covariance takes all values of x and their number.  If the first 40 of
# 200 values are there, the standard error of the slope is a 25th of NumPy's, and half of that with all values there.
# curvefit is as guessed.  Documented: invalid values are removed before each fit; nothing is said of the covariance.
# Why it matters: the more is missing, the smaller are standard errors; intervals of 95 % cover in 5 of 100 cases.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check xarray==2026.9.0 numpy==2.4.6 scipy==1.17.1
"$work/venv/bin/python" - <<'PY'
import numpy as np
import xarray as xr

rng = np.random.default_rng(0)
x = np.linspace(0, 1, 200)
there = np.arange(200) < 40
table = xr.DataArray(1 + 2 * x + rng.normal(size=(500, 200)), dims=("replicate", "x"), coords={"x": x})


def line(x, a, b):
    return a + b * x


def errors(fits):
    return np.sqrt(fits.polyfit_covariance.isel(cov_i=0, cov_j=0))


def plain(y):
    return np.sqrt(np.polyfit(x[: len(y)], y, 1, cov=True)[1][0, 0])


whole, part = table.polyfit("x", 1, cov=True), table.where(there).polyfit("x", 1, cov=True)
assert np.allclose(errors(whole), [plain(y) for y in table.values])
slopes, right = part.polyfit_coefficients.sel(degree=1), np.array([plain(y) for y in table.values[:, there]])
assert np.allclose(slopes, table[:, there].polyfit("x", 1).polyfit_coefficients.sel(degree=1))
curve = table.where(there).isel(replicate=0).curvefit("x", line)
assert np.isclose(curve.curvefit_covariance[1, 1] ** 0.5, right[0], rtol=1e-4)
print(f"all there: standard error {float(errors(whole).mean()):.3f}")
covered = {name: float((abs(slopes - 2) < 1.96 * each).mean()) for name, each in (("xarray", errors(part)), ("numpy", right))}
print(f"40 of 200 there: xarray {float(errors(part).mean()):.4f}, numpy {right.mean():.3f}; coverage {covered}")
print(f"standard deviation of the slopes: {float(slopes.std()):.3f}")
assert np.allclose(right / errors(part), right[0] / errors(part)[0]) and float((right / errors(part))[0]) > 20
assert covered["xarray"] < 0.15 and 0.9 < covered["numpy"] < 0.97
PY
