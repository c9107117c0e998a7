#!/usr/bin/env bash
# Guess: mean, variance and median that reliability's `DSZI_Model` states are those of its distribution function, and of its draws.
# Found (reliability 0.9.0, scipy 1.16.3, numpy 2.4.6): they are those of the distribution that was given, without the share of zeros
# (`ZI`) and of lives that never end (`DS`).  With a Weibull distribution, 30 % zeros have mean 4.51, variance 9.39 and median 3.92 for 3.16,
# 10.85 and 2.42; its distribution function is 0.65 at this median, and its `quantile(0.5)` is 2.42.  If 40 % never end, the median is 3.92
# for 7.38 and the mean 4.51, while `mean_residual_life` is infinite, as it should be.  `stats` prints them as
# "Descriptive statistics for DSZI Model".  Densities, distribution functions, quantiles and draws are right.  There is no warning.
# Documented: as attributes of the model.  No report on this was found.
# Why it matters: mean lives of products of which a third is dead on arrival are those of the others.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
  reliability==0.9.0 matplotlib==3.11.2 pandas==2.3.3 autograd==1.9.1 scipy==1.16.3 numpy==2.4.6
MPLBACKEND=Agg "$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from reliability.Distributions import DSZI_Model, Lognormal_Distribution, Weibull_Distribution
from scipy import optimize

DRAWS, LATE = 100_000, 1e9
warnings.simplefilter("error")
for base in (Weibull_Distribution(5, 1.5), Lognormal_Distribution(1, 0.5)):
    for zeros, ends in ((0.3, 1.0), (0.1, 1.0), (0.0, 0.6), (0.1, 0.8)):
        model = DSZI_Model(distribution=base, ZI=zeros, DS=ends)

        def below(x, model=model):
            return float(np.squeeze(model.CDF(xvals=[x], show_plot=False)))

        median = optimize.brentq(lambda x: below(x) - 0.5, 1e-9, 100)
        stated = model.mean, model.variance, model.median
        assert stated == (base.mean, base.variance, base.median) and np.isclose(model.quantile(0.5), median, rtol=1e-3)
        if ends == 1:
            mean = (1 - zeros) * base.mean
            right = mean, (1 - zeros) * (base.variance + base.mean**2) - mean**2, median
            drawn, _ = model.random_samples(DRAWS, seed=1)
            seen = drawn.mean(), drawn.var(), np.median(drawn)
            assert np.allclose(seen, right, rtol=0.03) and not np.isclose(stated, right, rtol=0.03).any()
        else:
            assert model.mean_residual_life(0.0) == np.inf
            right = np.inf, np.nan, median
            failures, censored = model.random_samples(DRAWS, right_censored_time=LATE, seed=1)
            assert np.isclose(np.median(np.append(failures, censored)), median, rtol=0.03)
        print(f"{base.name}, {zeros:.0%} zeros, {1 - ends:.0%} never: mean, variance, median {np.round(stated, 2)} for {np.round(right, 2)}; "
              f"share below the stated median {below(model.median):.3f}")
        assert abs(below(model.median) - 0.5) > 0.04
PY
