#!/usr/bin/env bash
# Guess: closed forms of the CRPS in scoringrules are the integral that defines it, so that on average no forecast beats the truth.
# Found (scoringrules 0.10.0, scipy 1.17.1, numpy 2.4.6): that of the hypergeometric distribution is not.  Its sum over outcomes ends at
# the number of failures in the population, not at the number of draws.  Of 10 draws from 50 successes and 5 failures outcomes of 5 to
# 10 have scores of 0 to 0.00000003 for 0.17 to 3.65.  Of 10 draws from 20 and 20 the truth has a mean score of 0.77, and a forecast of
# 20 and 2 one of 0.00 for 3.69.  With as many failures as draws, or more, it is as guessed; so are binomial, Poisson and negative
# binomial.  The log score is right.  There is no warning.
# Documented: that formula, with n as end of the sum and as number of failures; its example has more failures than draws.  No report
# was found.
# Why it matters: forecasts are ranked by mean scores; that with the fewest failures wins, whatever is observed.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scoringrules==0.10.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import scoringrules
from scipy import stats

warnings.simplefilter("error")
outcomes = np.arange(2000)


def by_definition(y, distribution):
    return np.sum((distribution.cdf(outcomes) - (outcomes >= y)) ** 2)


def hypergeometric(successes, failures, draws):
    return stats.hypergeom(successes + failures, successes, draws)


for name, score, distribution in (
        ("binomial", lambda y: scoringrules.crps_binomial(y, 10, 0.9), stats.binom(10, 0.9)),
        ("Poisson", lambda y: scoringrules.crps_poisson(y, 9.0), stats.poisson(9)),
        ("negative binomial", lambda y: scoringrules.crps_negbinom(y, 3.0, 0.25), stats.nbinom(3, 0.25))):
    error = max(abs(float(score(y)) - by_definition(y, distribution)) for y in range(11))
    print(f"{name}: errors up to {error:.0e}")
    assert error < 1e-6
for failures in (50, 10, 5, 3):
    found, right = [], []
    for y in range(10 - min(failures, 10), 11):
        found.append(float(scoringrules.crps_hypergeometric(y, 50, failures, 10)))
        right.append(by_definition(y, hypergeometric(50, failures, 10)))
        log = float(scoringrules.logs_hypergeometric(y, 50, failures, 10))
        assert abs(log + hypergeometric(50, failures, 10).logpmf(y)) < 1e-6
    found, right = np.array(found), np.array(right)
    print(f"10 draws from 50 successes and {failures} failures: scores from {found.min():.2g} to {found.max():.2g}, "
          f"right from {right.min():.2f} to {right.max():.2f}")
    assert abs(found - right).max() < 1e-6 if failures >= 10 else found.max() < 1e-7 and right.min() > 0.1
y = hypergeometric(20, 20, 10).rvs(1000, random_state=1)
means = {}
for failures in (20, 10, 5, 2):
    means[failures] = (np.mean(scoringrules.crps_hypergeometric(y, 20, failures, 10)),
                       np.mean([by_definition(each, hypergeometric(20, failures, 10)) for each in y]))
    print("forecast of 20 successes and {} failures, truth 20 and 20: mean score {:.3f}, right {:.3f}".format(
        failures, *means[failures]))
assert abs(means[20][0] - means[20][1]) < 1e-6 and min(right for _, right in means.values()) == means[20][1]
assert means[2][0] < 0.01 and means[2][1] > 3
PY
