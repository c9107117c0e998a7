#!/usr/bin/env bash
# Guess: draws of jax's `random.wald`, an inverse Gaussian distribution, are positive, as times of first passage are.
# Found (jax 0.10.2, scipy 1.17.1, numpy 2.4.6): in float32, the default, not with large means.  With mean 1000, of 200,000 draws 0.4 % are 0
# or less, and draws below 1 take 1,800 values for 63,000; with 10,000 17 % are, down to -85, with 100,000 36 %, down to -8,800, and the
# tenth percentile is -240 for 0.37.  Their logarithms are NaN.  Means hardly show it, as they come from the largest draws.  The smaller
# root of an equation is computed as a difference of numbers near the squared mean, of which float32 keeps seven digits.  With mean 100
# and less, in float64, and by NumPy all are positive with the right distribution.  There is no warning.
# Documented: samples of the distribution for a positive mean.  Known: the same in NumPy, in float64 from means of some 1e8, mended in
# 2025; no report on jax was found.
# Why it matters: a passage with weak drift has a mean far above its shape; log densities of such draws are NaN, and simulated times
# run backwards.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 scipy==1.17.1 numpy==2.4.6
export JAX_PLATFORMS=cpu
"$work/venv/bin/python" - <<'PY'
import warnings

import jax
import numpy as np
from scipy import stats

DRAWS = 200_000
warnings.simplefilter("error")


def by_jax(mean, precision):
    with jax.enable_x64(precision == "float64"):
        return np.asarray(jax.random.wald(jax.random.key(1), mean, (DRAWS,), dtype=precision), dtype=float)


def by_numpy(mean, precision):
    return np.random.default_rng(1).wald(mean, 1, DRAWS)


def study(draw, mean, precision):
    times, right = draw(mean, precision), stats.invgauss(mean)
    distance, chance = stats.kstest(times, right.cdf)
    below, negative = times[times < 1], np.mean(times <= 0)
    print(f"{draw.__name__[3:]} {precision}, mean {mean:,.0f}: {negative:.2%} are 0 or less, least {times.min():.4g}; tenth percentile "
          f"{np.quantile(times, 0.1):.4g} for {right.ppf(0.1):.4g}; {len(below)} below 1 take {len(np.unique(below))} values; distance from "
          f"the distribution {distance:.4f} (p = {chance:.1g})")
    return negative, times.min(), distance, len(np.unique(below)) / len(below)


found = {mean: study(by_jax, mean, "float32") for mean in (1.0, 10.0, 100.0, 300.0, 1e3, 1e4, 1e5)}
for mean in (1.0, 10.0, 100.0):
    assert found[mean][0] == 0 and found[mean][2] < 0.005
for mean, least, lowest in ((1e3, 0.001, 0), (1e4, 0.1, -50), (1e5, 0.3, -5000)):
    negative, minimum, distance, _ = found[mean]
    assert negative > least and minimum < lowest and distance > least
assert found[1e3][3] < 0.1 and found[1.0][3] > 0.9
for draw in (by_jax, by_numpy):
    for mean in (1.0, 1e3, 1e4, 1e5):
        negative, minimum, distance, distinct = study(draw, mean, "float64")
        assert negative == 0 and minimum > 0.03 and distance < 0.005 and distinct > 0.99
PY
