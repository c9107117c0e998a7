#!/usr/bin/env bash
# Guess: densities of scikit-learn's `KernelDensity` integrate to 1 with every kernel and in every dimension.
# Found (scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): not with `kernel="cosine"` in an even dimension.  In 2 dimensions the density has
# a mass of 0.36, in 6 one of 0.005, in 10 less than 0.00001; in 4, 8 and 12 it is NaN where there are data, and so is `score`.  Of the
# terms of the kernel's integral the last one is missing.  Mean held-out log densities of normal pairs are lower by 1.01 for that, so
# that a search over kernels never takes this one; with a mass of 1 it would be as good as others.  Odd dimensions and the other five
# kernels are right, in either tree.  There is no warning.
# Documented: six kernels, and that only for the Euclidean distance densities are normalised; not that one kernel is not.  No report was
# found.
# Why it matters: maps of pairs of coordinates are the usual case; a threshold on the density, or its integral over a region, is off
# by 2.75.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from scipy.integrate import quad
from scipy.special import gamma
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity

KERNELS = ("cosine", "linear", "epanechnikov", "tophat", "exponential", "gaussian")
warnings.simplefilter("error")
rng = np.random.default_rng(1)


def mass(kernel, dimension, tree):
    """Integral over spheres around the one observation, which all have the same density."""
    model = KernelDensity(bandwidth=0.5, kernel=kernel, algorithm=tree, rtol=0).fit(np.zeros((1, dimension)))
    area = 2 * np.pi ** (dimension / 2) / gamma(dimension / 2)
    end = {"gaussian": 10, "exponential": 50}.get(kernel, 0.5)
    return quad(lambda r: area * r ** (dimension - 1) * np.exp(model.score_samples(np.eye(1, dimension) * r)[0]), 0, end, limit=200)[0]


for tree in ("kd_tree", "ball_tree"):
    masses = {}
    for dimension in (1, 2, 3, 5, 6, 7, 10):
        masses[dimension] = found = {kernel: mass(kernel, dimension, tree) for kernel in KERNELS}
        print(f"{tree}, dimension {dimension}:", ", ".join(f"{kernel} {value:.2g}" for kernel, value in found.items()))
        assert all(abs(value - 1) < 1e-4 for kernel, value in found.items() if dimension % 2 or kernel != "cosine")
    assert abs(masses[2]["cosine"] - 0.363) < 0.001 and masses[6]["cosine"] < 0.01 and masses[10]["cosine"] < 1e-4
for dimension in (4, 8, 12):
    points = rng.uniform(size=(50, dimension))
    found = KernelDensity(bandwidth=1, kernel="cosine").fit(points).score(points)
    other = KernelDensity(bandwidth=1, kernel="epanechnikov").fit(points).score(points)
    print(f"dimension {dimension}, mean log density of 50 points: cosine {found}, Epanechnikov {other:.2f}")
    assert np.isnan(found) and np.isfinite(other)
points = rng.normal(size=(2000, 2))
nodes = np.linspace(-6, 6, 401)
grid = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
masses = {kernel: np.exp(KernelDensity(bandwidth=1.2, kernel=kernel).fit(points).score_samples(grid)).sum() * (nodes[1] - nodes[0]) ** 2
          for kernel in ("cosine", "epanechnikov", "linear")}
scores = {}
for kernel in masses:
    model = KernelDensity(bandwidth=1.2, kernel=kernel).fit(points[:1000])
    inside = points[1000:][np.linalg.norm(points[1000:], axis=1) < 2.5]
    scores[kernel] = np.mean(model.score_samples(inside))
    print(f"2000 normal pairs, {kernel}: mass {masses[kernel]:.3f}, mean held-out log density {scores[kernel]:.3f}, "
          f"by a density of mass 1 {scores[kernel] - np.log(masses[kernel]):.3f}")
search = GridSearchCV(KernelDensity(bandwidth=1.2), {"kernel": list(masses)}).fit(inside)
print("a search takes", search.best_params_["kernel"])
assert abs(masses["cosine"] - 0.363) < 0.005 and abs(masses["linear"] - 1) < 0.005 and abs(masses["epanechnikov"] - 1) < 0.005
assert search.best_params_["kernel"] != "cosine"
assert scores["cosine"] < min(scores["linear"], scores["epanechnikov"]) - 0.8
PY
