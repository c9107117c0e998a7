#!/usr/bin/env bash
# Guess: a local constant estimate far from all data is 0/0, that is NaN, as in statsmodels.
# Found (versions below): NaN, 0 (scikit-fda, pyGRNN, nprobust), the mean of all values (hessband), or the nearest value
# (kernelsmooth), without an error or a warning.  Near the data all agree.
# Why it matters: predictions at new points look like estimates, and a 0 pulls errors and scores without a trace.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check statsmodels==0.15.0 scikit-fda==0.10.1 kernelsmooth==0.1.0 \
    hessband==0.2.0 pyGRNN==0.1.2 nprobust==0.5.0 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import hessband
import numpy as np
from kernelsmooth import KernelRegression
from nprobust import lprobust
from pyGRNN import GRNN
from skfda.misc.hat_matrix import NadarayaWatsonHatMatrix
from statsmodels.nonparametric.kernel_regression import KernelReg

rng = np.random.default_rng(3)
x = np.sort(rng.uniform(0.0, 10.0, 80))
y = 5.0 + np.sin(x) + rng.normal(0.0, 0.3, 80)
queries, far = np.linspace(0.5, 9.5, 19), np.array([1e5])
smoothers = {
    "statsmodels": lambda q: KernelReg(y, x[:, None], "c", reg_type="lc", bw=[0.8]).fit(q[:, None])[0],
    "scikit-fda": lambda q: NadarayaWatsonHatMatrix(bandwidth=0.8)(
        delta_x=np.abs(q[:, None] - x), X_train=x[:, None], X=q[:, None], y_train=y),
    "pyGRNN": lambda q: GRNN(sigma=0.8, calibration="None").fit(x[:, None], y).predict(q[:, None]),
    "nprobust": lambda q: lprobust(y, x, eval=q, p=0, h=0.8, kernel="gau", bwcheck=None).Estimate[:, 4],
    "hessband": lambda q: hessband.nw_predict(x, y, q, 0.8),
    "kernelsmooth": lambda q: KernelRegression(bandwidth=0.8 / x.std(ddof=1)).fit(x[:, None], y).predict(q[:, None]),
}
weights = np.exp(-(((queries[:, None] - x) / 0.8) ** 2) / 2)
expected = weights @ y / weights.sum(axis=1)
found = {}
for name, smoother in smoothers.items():
    assert np.allclose(smoother(queries), expected, rtol=1e-9), name
    found[name] = float(smoother(far)[0])
    print(f"{name}: {found[name]:.4f} at 100 000")
print(f"data from {x.min():.1f} to {x.max():.1f}; values {y.min():.2f} to {y.max():.2f}, mean {y.mean():.4f}, last {y[-1]:.4f}")
assert np.allclose([*found.values()], [np.nan, 0.0, 0.0, 0.0, y.mean(), y[-1]], equal_nan=True)
PY
