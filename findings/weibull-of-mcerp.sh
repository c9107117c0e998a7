#!/usr/bin/env bash
# Guess: mcerp's `Weibull(lamda, k)` has the scale `lamda`, its `LogNormal(mu, sigma)` a logarithm with mean `mu`, as the pages it names say.
# Found (mcerp 1.1.1, scipy 1.17.1, numpy 2.4.6): neither has.  `lamda` is the power of an exponentiated Weibull distribution with scale 1:
# Weibull(1000, 2) has the mean 2.73 for 886, which is that of the largest of 1000 such numbers, and exceeds 886 in no draw for 46 %.
# `mu` is the median: LogNormal(5, 1) has the mean 8.2 for 245.  Closed forms and numpy agree with each other.  There is no warning.
# Documented: `lamda` as "the scale parameter", `mu` as "the location parameter", both as on Wikipedia.  Known: of Weibull's a report
# on the sister package is open since 2017; `mu` was a shift until May 2026, which was reported in 2024.
# Why it matters: propagated lives and costs have the wrong order of magnitude, and look like samples.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check mcerp==1.1.1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import math
import warnings

import mcerp
import numpy as np

warnings.simplefilter("error")
DRAWS = 200_000
random = np.random.default_rng(1)
for scale, shape in ((10, 2.0), (5, 1.5), (1, 3.0), (1000, 2.0)):
    np.random.seed(1)
    life = mcerp.Weibull(scale, shape)
    right, drawn = scale * math.gamma(1 + 1 / shape), scale * random.weibull(shape, DRAWS).mean()
    largest = np.log(-1 / np.expm1(np.log(random.random(DRAWS)) / scale)) ** (1 / shape)
    beyond = life > right
    print(f"Weibull({scale}, {shape}): mean {life.mean:.3f} for {right:.3f}, by numpy {drawn:.3f}; largest of {scale} with scale 1 "
          f"{largest.mean():.3f}; beyond {right:.3f} {beyond:.3f} for {math.exp(-math.gamma(1 + 1 / shape) ** shape):.3f}")
    assert abs(drawn / right - 1) < 0.01 and abs(life.mean / largest.mean() - 1) < 0.01
    assert (abs(life.mean / right - 1) < 0.01) == (scale == 1)
for middle, deviation in ((1.0, 0.5), (3.0, 0.5), (5.0, 1.0)):
    np.random.seed(1)
    x = mcerp.LogNormal(middle, deviation)
    right, drawn = math.exp(middle + deviation**2 / 2), random.lognormal(middle, deviation, DRAWS)
    print(f"LogNormal({middle}, {deviation}): mean {x.mean:.3f} for {right:.3f}, by numpy {drawn.mean():.3f}; mean of the logarithm "
          f"{np.log(x._mcpts).mean():.3f} for {middle}, by numpy {np.log(drawn).mean():.3f}")
    assert abs(drawn.mean() / right - 1) < 0.02 and abs(x.mean / (middle * math.exp(deviation**2 / 2)) - 1) < 0.02 and x.mean < 0.7 * right
PY
