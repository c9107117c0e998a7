#!/usr/bin/env bash
# Guess: `np.mean` in a compiled function is NumPy's to rounding, also of float32.
# Found (numba 0.68.1, numpy 2.4.6): numbers are added one by one in float32.  The mean of 20 million 0/1 outcomes of a rate
# of .95 is .84, as the sum stops growing at 2^24; `np.var` of equal numbers is not 0.  NumPy adds in pairs: .95 and 0.
# Why it matters: coverage, accuracy or power from compiled loops is too low, the more so the more replicates there are.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numba==0.68.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import numba
import numpy as np


@numba.njit
def compiled(x):
    return x.mean(), x.var()


covered = np.random.default_rng(0).random(20_000_000, dtype=np.float32) < 0.95
for name, x in {"rates": covered.astype(np.float32), "equal": np.full(20_000_000, 0.1, np.float32)}.items():
    (mean, variance), wide = compiled(x), compiled(x.astype(np.float64))
    print(f"{name}: numba {mean:.4f} {variance:.2g}, numpy {x.mean():.4f} {x.var():.2g}, numba of float64 {wide[0]:.4f}")
    assert abs(x.mean() - wide[0]) < 1e-4 < 1e-3 < abs(mean - wide[0])
    assert name == "rates" or (x.var() < 1e-12 and variance > 1e-6)
PY
