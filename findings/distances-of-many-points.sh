#!/usr/bin/env bash
# Guess: the distance of two points is the same number however many other points, or features, there are.
# Found (torch 2.13.0, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): `torch.cdist` takes differences for up to 25 points; from 26 on
# it expands the square, where float32 loses what is small beside the values.  Months from 2024 on, 0.083 years apart, are then 0
# to 0.5 apart, and a kernel regression over a tenth of a year has 13 times the error.  Neighbours of scikit-learn change so at
# 16 features, in float64: near 1e8, 1 % are right.  There is no warning; `cdist` of SciPy is as guessed.
# Documented: the 25 as an option of torch, the loss in a note of scikit-learn; not the 15 of its neighbours as a loss.
# Why it matters: tests with few points hold, the study fails; data should be centred first.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

warnings.simplefilter("error")
generator = torch.Generator().manual_seed(0)
found = {}
for points in (25, 26):
    years = (2024 + torch.arange(points, dtype=torch.float64) / 12)[:, None].float()
    apart = torch.cdist(years, years)
    steps = apart.diagonal(1)
    m = torch.sin(2 * torch.pi * (years[:, 0] - 2024) / 2)
    y = m + 0.1 * torch.randn(1000, points, generator=generator)
    weights = torch.exp(-0.5 * (apart / 0.1) ** 2)
    exact = torch.exp(-0.5 * ((years - years.T) / 0.1) ** 2)
    errors = [((y @ (each / each.sum(1, keepdim=True)).T - m) ** 2).mean().item() for each in (weights, exact)]
    found[points] = steps.min().item(), steps.max().item(), errors[0] / errors[1]
    print(f"{points} points: steps of 1/12 are {steps.min():.3f} to {steps.max():.3f}, squared errors "
          f"{errors[0]:.4f}, of exact distances {errors[1]:.4f}")
assert abs(found[25][0] - 1 / 12) < 1e-3 and abs(found[25][1] - 1 / 12) < 1e-3 and abs(found[25][2] - 1) < 0.01
assert found[26][0] < 0.05 and found[26][1] > 0.4 and found[26][2] > 5
rng, shares = np.random.default_rng(0), {}
for features in (15, 16):
    x = rng.normal(size=(500, features))
    for far in (0.0, 1e7, 1e8):
        near = NearestNeighbors(n_neighbors=5).fit(x + far).kneighbors(return_distance=False)
        right = np.argsort(cdist(x + far, x + far) + np.diag(np.full(500, np.inf)), axis=1)[:, :5]
        shares[features, far] = np.mean([len(np.intersect1d(a, b)) / 5 for a, b in zip(near, right)])
        print(f"{features} features near {far:g}: {shares[features, far]:.3f} of neighbours are right")
assert all(right == 1 for (features, far), right in shares.items() if features == 15 or not far)
assert shares[16, 1e7] < 0.95 and shares[16, 1e8] < 0.05
PY
