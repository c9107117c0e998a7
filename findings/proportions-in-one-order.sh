#!/usr/bin/env bash
# Guess: mlxtend's `proportion_difference` gives the same p-value whichever of two proportions comes first.
# Found (mlxtend 0.25.0, statsmodels 0.15.0, scipy 1.17.1, numpy 2.4.6): it gives the probability of a smaller z.  Of 1,000 each, 0.99 and
# 0.5 have the p-value 1 and in the other order 3e-203.  With 0.8 and 0.7 true, 200 each, a test at 5 % rejects none of 2,000 pairs if the
# larger comes first and 75 % if it comes second; in the two-sided test it is 63 to 64 %.  Equal proportions are rejected in 5 %, all with
# the first smaller.  Two-sided p-values by hand from the same z agree with statsmodels' Wald test.  There is no warning.
# Documented: "Computes the test statistic and p-value for a difference of proportions test"; the user guide says to reject equality if z
# is above 1.96, or if p is below the level, and its example has the smaller one first.  No report on this was found.
# Why it matters: whether a better method is found depends on the order of two arguments.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check mlxtend==0.25.0 statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from mlxtend.evaluate import proportion_difference
from scipy import stats
from statsmodels.stats.proportion import test_proportions_2indep

warnings.simplefilter("error")
PAIRS, SIZE = 2000, 200


def two_sided(first, second, size):
    error = np.sqrt((first * (1 - first) + second * (1 - second)) / size)
    return 2 * stats.norm.sf(abs(first - second) / error)


for first, second in ((0.99, 0.5), (0.5, 0.99)):
    p = proportion_difference(first, second, 1000)[1]
    print(f"{first} and {second}, 1,000 each: p {p:.3g}, two-sided {two_sided(first, second, 1000):.3g}")
    assert two_sided(first, second, 1000) < 1e-100 and (p == 1 if first > second else p < 1e-100)

for first, second in ((0.8, 0.7), (0.7, 0.8), (0.7, 0.7)):
    counts = np.random.default_rng(1).binomial(SIZE, [first, second], size=(PAIRS, 2))
    rates = counts / SIZE
    ours = np.array([proportion_difference(*pair, SIZE)[1] for pair in rates])
    right = np.array([two_sided(*pair, SIZE) for pair in rates])
    for (one, other), p in zip(counts[:50], right, strict=False):
        assert np.isclose(test_proportions_2indep(one, SIZE, other, SIZE, method="wald", compare="diff").pvalue, p)
    smaller = rates[:, 0] < rates[:, 1]
    print(f"{first} and {second}: rejected {np.mean(ours <= 0.05):.1%}, two-sided {np.mean(right <= 0.05):.1%}; the first was smaller in "
          f"{np.mean(smaller[ours <= 0.05]) if (ours <= 0.05).any() else 0:.0%} of these")
    assert smaller[ours <= 0.05].all() and np.allclose(np.where(smaller, 2 * ours, 2 - 2 * ours), right)
    if first == second:
        assert 0.03 < np.mean(ours <= 0.05) < 0.07 and 0.03 < np.mean(right <= 0.05) < 0.07
    else:
        assert np.mean(right <= 0.05) > 0.5 and (np.mean(ours <= 0.05) == 0 if first > second else np.mean(ours <= 0.05) > 0.65)
PY
