#!/usr/bin/env bash
# Guess: densities of a copula integrate to 1, at any strength of dependence that the library takes.
# Found (statsmodels 0.15.0, scipy 1.17.1, numpy 2.4.6): those of `FrankCopula` do up to 15 only.  `pdf` integrates to 0.95 at 20 (Kendall's
# tau 0.82), 0.75 at 25 and 0.63 at 30: towards (1, 1) it is 0, where differences of numbers next to 1 cancel.  `logpdf` is right there, so
# that at (0.9, 0.9) and 30 `pdf` is 0 and exp(`logpdf`) 7.89.  Distribution function and draws agree with `logpdf`.  There is no warning.
# Documented: no range of the parameter but all numbers except 0.  No report was found.
# Why it matters: a likelihood by `pdf` is 0 for a third of the data of a strong dependence, and mixtures of copulas weigh them wrongly.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from statsmodels.distributions.copula.api import FrankCopula

N, DRAWS = 1000, 20_000
warnings.simplefilter("error")
grid = (np.arange(N) + 0.5) / N
points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)


def log_density(points, theta):
    """Of Frank's copula, with terms divided by the largest one."""
    low, high = points.min(axis=-1), points.max(axis=-1)
    terms = 1 + np.exp(-theta * (high - low)) - np.exp(-theta * high) - np.exp(-theta * (1 - low))
    return np.log(theta) + np.log1p(-np.exp(-theta)) + theta * (low - high) - 2 * np.log(terms)


corner = np.array([[0.9, 0.9]])
totals = {}
for theta in (5, 15, 20, 25, 30):
    copula = FrankCopula(theta=theta)
    drawn = copula.rvs(DRAWS, rng=1)
    right = np.exp(log_density(points, theta))
    totals[theta] = copula.pdf(points).mean()
    here, by_log, known = (float(np.squeeze(x)) for x in (
        copula.pdf(corner), np.exp(copula.logpdf(corner)), np.exp(log_density(corner, theta))))
    lost = np.mean(copula.pdf(drawn) == 0)
    share, stated = np.mean((drawn <= 0.95).all(axis=1)), float(np.squeeze(copula.cdf([[0.95, 0.95]])))
    print(f"{theta} (tau {copula.tau():.2f}): pdf integrates to {totals[theta]:.3f}, right {right.mean():.3f}; at (0.9, 0.9) {here:.3f}, "
          f"exp(logpdf) {by_log:.3f}, right {known:.3f}; 0 at {lost:.1%} of draws; below 0.95 {share:.3f} of them, cdf {stated:.3f}")
    assert abs(right.mean() - 1) < 1e-3 and abs(by_log / known - 1) < 1e-3 and abs(share - stated) < 0.01
    assert abs(np.mean(copula.logpdf(drawn) - log_density(drawn, theta))) < 1e-3
assert abs(totals[5] - 1) < 1e-3 and abs(totals[15] - 1) < 1e-3
assert 0.9 < totals[20] < 0.99 and 0.6 < totals[25] < 0.9 and 0.5 < totals[30] < 0.75
assert FrankCopula(theta=30).pdf(corner) == 0
PY
