#!/usr/bin/env bash
# Guess: tigramite's `RegressionCI` keeps the level of its p-values under independence, whatever variables are categories.
# Found (tigramite 5.2.10.1, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): degrees of freedom are the number of categories of one variable.  Two
# variables of 3 categories have 3 for (3 − 1)(3 − 1) = 4 and are called dependent at 5 % in 9 % of samples, those of 5 categories have 5 for 16 and
# are in 80 %.  Two categories have 2 for 1, beside another pair or a number, and 2 % are rejected.
# Documented: "according to a chi-square distribution with 'dof' degrees of freedom", those of the larger model less those of the smaller one.
# No report of it was found.
# Why it matters: graphs of causes gain links among categories and lose those between categories and numbers.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check tigramite==5.2.10.1 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
OMP_NUM_THREADS=1 "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from tigramite.data_processing import DataFrame
from tigramite.independence_tests.regressionCI import RegressionCI

SIZE, SAMPLES = 300, 300
rng = np.random.default_rng(1)
share = {}
for categories in ((2, 2), (3, 3), (5, 5), (2, 0), (4, 0)):
    p_values = []
    for _ in range(SAMPLES):
        data = np.stack([rng.integers(n, size=SIZE) if n else rng.normal(size=SIZE) for n in (*categories, 0)], axis=1).astype(float)
        kinds = np.tile(np.array([n > 0 for n in (*categories, 0)], int), (SIZE, 1))
        test = RegressionCI(significance="analytic")
        test.set_dataframe(DataFrame(data, data_type=kinds))
        p_values.append(test.run_test([(0, 0)], [(1, 0)], [(2, 0)])[1])
    share[categories] = np.mean(np.array(p_values) <= 0.05)
    print(f"categories {categories} (0: a number): independent, rejected at 5 % {share[categories]:.3f}")
assert share[3, 3] > 0.07 and share[5, 5] > 0.5 and share[2, 0] < 0.035 and share[4, 0] < 0.045
PY
