#!/usr/bin/env bash
# Guess: `sample_y` of scikit-learn's `GaussianProcessRegressor` draws another function at each call, as no seed is given.
# Found (scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): its `random_state` is 0 unless given, also where the regressor has its own
# or `np.random.seed` is set.  Every call starts at the same normals: 200 true functions of a study are one, and posterior draws
# from 200 data sets miss the mean by one number of standard deviations.
# With `random_state=None` or a Generator's integers it is as guessed.  `GaussianMixture.sample` repeats likewise if it was fitted
# with a seed; `KernelDensity.sample` does not.  Documented: the default of 0; known: reports since 2020.
# Why it matters: an error that is an average over random functions, or over posterior draws, is that of one.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity

REPLICATES, SIZE, NOISE = 200, 30, 0.1
warnings.simplefilter("error")
np.random.seed(1)
rng = np.random.default_rng(1)
x = np.linspace(0, 1, SIZE)[:, None]
grid = np.array([[0.5]])


def functions(**options):
    """Values of random functions at the middle, and errors of posterior draws there in posterior standard deviations."""
    values, errors = [], []
    for replicate in range(REPLICATES):
        process = GaussianProcessRegressor(RBF(0.2), alpha=NOISE**2, optimizer=None, random_state=replicate)
        truth = process.sample_y(x, **options)[:, 0]
        values.append(truth[SIZE // 2])
        process.fit(x, truth + NOISE * rng.normal(size=SIZE))
        mean, sd = process.predict(grid, return_std=True)
        errors.append((process.sample_y(grid, **options)[0, 0] - mean[0]) / sd[0])
    return np.array(values), np.array(errors)


for name, options in (("no option", {}), ("random_state=None", {"random_state": None})):
    values, errors = functions(**options)
    print(f"{name}: standard deviation of true functions at one point {values.std():.4f}, of errors of posterior draws "
          f"{errors.std():.2g}, their mean {errors.mean():.3f}")
    if options:
        assert abs(values.std() - 1) < 0.25 and abs(errors.std() - 1) < 0.25 and abs(errors.mean()) < 0.4
    else:
        assert values.std() < 1e-12 and errors.std() < 1e-3 and abs(errors.mean()) > 1
seeds = rng.integers(2**31, size=REPLICATES).tolist()
process = GaussianProcessRegressor(RBF(0.2))
assert len({float(process.sample_y(x, random_state=seed)[0, 0]) for seed in seeds}) == REPLICATES
y = rng.normal(size=(100, 1))
mixture, density = GaussianMixture(2, random_state=3).fit(y), KernelDensity().fit(y)
repeats = [len({float(draw()) for _ in range(5)}) for draw in (lambda: mixture.sample(1)[0][0, 0], lambda: density.sample(1)[0, 0])]
print("values of five calls that differ: GaussianMixture with a seed {}, KernelDensity {}".format(*repeats))
assert repeats == [1, 5]
PY
